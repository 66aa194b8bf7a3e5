"""``robolearn serve RUN`` serves a policy over a websocket, for ``deploy --server``."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robolearn.agents.execution import GuidanceName
from robolearn.cli.shared.parse import parse, print_json, say


@dataclass(frozen=True, slots=True)
class Args:
    """Serve a trained policy until Ctrl-C or SIGTERM. The token comes from ROBOLEARN_TOKEN; without
    one a new one is made and printed (loopback only).
    """

    # Run directory of the policy.
    run: Annotated[Path, tyro.conf.Positional]
    # Network address to listen on.
    host: str = "127.0.0.1"
    # 0: any free port.
    port: int = 8765
    # At most this many clients at a time.
    clients: int = 4
    # How the policy continues what is left of a plan (real-time chunking): guided with the
    # Jacobian, with the identity instead, by a hard mask, or as trained (algorithm.max_prefix);
    # auto: as trained if it was, else jacobian.
    guidance: GuidanceName = "auto"
    # Threads of the network.
    threads: int = 1
    # Load the run though its files are not what was written (config, statistics, weights ...).
    accept_edited: bool = False
    # Print one JSON document when ready and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run the command."""
    args = parse(Args, argv, "serve", Args.__doc__ or "")
    from robolearn.inference.server import ServeConfig
    from robolearn.operations.deploy.serve import serve_policy

    given = os.environ.get("ROBOLEARN_TOKEN", "")
    config = ServeConfig(args.host, args.port, given, args.clients)
    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()

    with serve_policy(
        args.run,
        config,
        guidance=args.guidance,
        threads=args.threads,
        accept_edited=args.accept_edited,
    ) as server:
        before = {n: signal.signal(n, end) for n in (signal.SIGTERM, signal.SIGINT)}
        shown = "" if given else server.token
        if args.json:
            print_json({"url": server.url, "token": shown})
        say(f"serving {args.run} at {server.url}", quiet=args.json)
        if shown:
            say(f"token {shown} (set ROBOLEARN_TOKEN to it at the client)", quiet=args.json)
        ended.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    summary = f"{server.answered} request(s) answered, {server.refused} refused"
    say(f"stopped: {summary}", quiet=args.json)
    return 0
