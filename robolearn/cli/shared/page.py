"""Serves the studio's page until somebody ends it, and says where it is."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.cli.shared.parse import print_json, say

if TYPE_CHECKING:
    from robolearn.operations.studio.library import Library


def serve_page(
    folders: Sequence[Path],
    host: str,
    port: int,
    *,
    as_json: bool = False,
    view: Callable[[Library], str] = lambda _: "",
) -> None:
    """Everything under ``folders``, until Ctrl-C or SIGTERM; the address that is told leads to
    ``view``, a part of the page. The token comes from ROBOLEARN_TOKEN, or is a new one.
    """
    from robolearn.operations.studio.found import counts
    from robolearn.operations.studio.server.serve import serve_studio

    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()

    token = os.environ.get("ROBOLEARN_TOKEN", "")
    with serve_studio(folders, host, port, token) as studio:
        before = {n: signal.signal(n, end) for n in (signal.SIGTERM, signal.SIGINT)}
        url = studio.url + view(studio.library)
        if as_json:
            print_json({"url": url, "token": studio.token, "fingerprint": studio.fingerprint})
        found = counts(studio.library.things())
        listed = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in found.items() if n)
        say(f"found: {listed or 'nothing yet; what appears is shown'}", quiet=as_json)
        say(f"open {url}", quiet=as_json)
        if studio.fingerprint:
            say(f"its certificate: SHA-256 {studio.fingerprint}", quiet=as_json)
        ended.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    say("stopped", quiet=as_json)
