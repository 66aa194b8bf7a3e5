"""``robolearn studio DIR`` serves one page over everything that is kept under some folders."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path

import tyro

from robolearn.cli.shared.parse import parse, print_json, say


@dataclass(frozen=True, slots=True)
class Args:
    """One page over every store, run, evaluation, trial session, scene, capture and certificate
    under the folders, until Ctrl-C or SIGTERM. Nothing is copied, and nothing is changed but what
    you say about episodes. The token comes from ROBOLEARN_TOKEN; without one a new one is made.
    """

    # Folders to look into.
    folders: tyro.conf.Positional[tuple[Path, ...]]
    # Network address to listen on; other than loopback: with TLS, for who has the token.
    host: str = "127.0.0.1"
    # 0: any free port.
    port: int = 8730
    # Print one JSON document when ready and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run the command."""
    args = parse(Args, argv, "studio", Args.__doc__ or "")
    from robolearn.operations.studio.found import counts
    from robolearn.operations.studio.server.serve import serve_studio

    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()

    token = os.environ.get("ROBOLEARN_TOKEN", "")
    with serve_studio(args.folders, args.host, args.port, token) as studio:
        before = {n: signal.signal(n, end) for n in (signal.SIGTERM, signal.SIGINT)}
        if args.json:
            print_json(
                {"url": studio.url, "token": studio.token, "fingerprint": studio.fingerprint}
            )
        found = counts(studio.library.things())
        listed = ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in found.items() if n)
        say(f"found: {listed or 'nothing yet; what appears is shown'}", quiet=args.json)
        say(f"open {studio.url}", quiet=args.json)
        if studio.fingerprint:
            say(f"its certificate: SHA-256 {studio.fingerprint}", quiet=args.json)
        ended.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    say("stopped", quiet=args.json)
    return 0
