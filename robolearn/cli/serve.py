"""``robolearn serve RUN`` serves a policy over a websocket, for ``deploy --server``; or it learns
what another machine practises, for ``finetune --learner``.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from robolearn.agents.execution import GuidanceName
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.inference.channel_server import ServeConfig
    from robolearn.inference.server import PolicyServer
    from robolearn.operations.practice.elsewhere.server import LearnerServer


@dataclass(frozen=True, slots=True)
class Args:
    """Serve a trained policy until Ctrl-C or SIGTERM; with --learn, learn what another machine
    practises with it. The token comes from ROBOLEARN_TOKEN; without one a new one is made and
    printed (loopback only).
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
    # Threads of the network, or of the learner.
    threads: int = 1
    # Load the run though its files are not what was written (config, statistics, weights ...).
    accept_edited: bool = False
    # Learn what another machine practises (finetune RUN --learner): run directory to write here.
    learn: Path | None = None
    # With --learn: folder for a copy of the store that the other machine writes.
    store: Path | None = None
    # With --learn: store of demonstrations, for --practice.demonstrations of every batch.
    demonstrations: Path | None = None
    # With --learn, instead of it: store of an earlier practice.
    practised: Path | None = None
    # Print one JSON document when ready and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run the command."""
    args = parse(Args, argv, "serve", Args.__doc__ or "")
    from robolearn.inference.server import ServeConfig

    given = os.environ.get("ROBOLEARN_TOKEN", "")
    config = ServeConfig(args.host, args.port, given, args.clients)
    ended = threading.Event()

    def end(*_: object) -> None:
        ended.set()

    with _serving(args, config) as server:
        before = {n: signal.signal(n, end) for n in (signal.SIGTERM, signal.SIGINT)}
        shown = "" if given else server.token
        if args.json:
            print_json({"url": server.url, "token": shown})
        what = "learning over" if args.learn is not None else "serving"
        say(f"{what} {args.run} at {server.url}", quiet=args.json)
        if shown:
            say(f"token {shown} (set ROBOLEARN_TOKEN to it at the client)", quiet=args.json)
        ended.wait()
        for number, handler in before.items():
            signal.signal(number, handler)
    summary = f"{server.answered} request(s) answered, {server.refused} refused"
    say(f"stopped: {summary}", quiet=args.json)
    return 0


def _serving(
    args: Args, config: ServeConfig
) -> AbstractContextManager[PolicyServer] | AbstractContextManager[LearnerServer]:
    if args.learn is None:
        if args.store or args.demonstrations or args.practised:
            raise ConfigError("--store, --demonstrations and --practised go with --learn OUT")
        from robolearn.operations.deploy.serve import serve_policy

        return serve_policy(
            args.run,
            config,
            guidance=args.guidance,
            threads=args.threads,
            accept_edited=args.accept_edited,
        )
    if args.store is None:
        raise ConfigError("--learn needs --store STORE: a folder for a copy of what is practised")
    if args.demonstrations is not None and args.practised is not None:
        raise ConfigError("--demonstrations and --practised: one other store for a batch, not two")
    from robolearn.operations.practice.elsewhere.server import Teaching, serve_learner
    from robolearn.operations.practice.frame import SecondStore

    other = args.demonstrations or args.practised
    second = None if other is None else SecondStore(other, practised=args.practised is not None)
    teaching = Teaching(args.run, args.learn, args.store, second, args.threads)
    return serve_learner(teaching, config)
