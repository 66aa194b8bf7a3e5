"""``robolearn collect`` records episodes of a person, the task's scripted expert or a policy."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Args:
    """Record episodes into a store; Ctrl-C keeps what was saved."""

    # The episode store; made when absent, appended to when there.
    out: Path
    # A file of configs/collect/; not needed with --env.
    config: Path | None = None
    # A packaged scene, a scene folder or an adapter's name, instead of the file's world.
    env: str = ""
    # Who acts: the task's scripted expert, the expert at play (many goals, none of them the
    # task's), or a person at a device: keyboard (this terminal's keys), browser (a page), or
    # another one (docs/teleoperation.md); auto: as --config says, else browser in
    # Push-T and scripted elsewhere.
    agent: str = "auto"
    # A trained run, which acts instead: its episodes, failures included, are of kind 'rollout'.
    policy: Path | None = None
    # With --policy, who takes over from it when it is lost, and hands back: a person at a device
    # (keyboard, browser, ...), or scripted (the task's expert); the episodes are of kind
    # 'corrected', and say of every step who drove.
    corrected_by: str = ""
    # Clumsiness of the expert, 0 to 1.
    noise: float = 0.0
    # How many episodes to save.
    episodes: int = 10
    # Append to an existing store without asking.
    yes: bool = False
    # Port of the page (0: any free one).
    port: int = 0
    # Address of this computer under which a tablet in its network opens the page, with TLS; without
    # it nobody but this computer can.
    host: str = ""
    # Who is recording, kept with every episode.
    operator: str = ""
    # Print one JSON document at the end; 'saved episode' lines go to standard error.
    json: bool = False


def main(argv: list[str]) -> int:
    """Load, record, report."""
    args = parse(Args, argv, "collect", "Record episodes into a store.")
    if not 0 <= args.port <= 65535:
        raise ConfigError(f"--port must be 0 (any free one) to 65535, got {args.port}")
    from robolearn.cli.shared.consent import ask
    from robolearn.config import load_config
    from robolearn.operations.collect import CollectConfig, CollectListener, collect

    if args.config is None and not args.env:
        raise ConfigError("say where: --config configs/collect/FILE.yaml or --env WORLD")
    if args.config is None:
        config = CollectConfig(world=args.env)
    else:
        config = load_config(CollectConfig, args.config)
        config = replace(config, world=args.env or config.world)

    def begin(agent: str, before: int) -> None:
        if before:
            ask(f"{args.out} has {before} episode(s)", "Append to it?", yes=args.yes)
        say(
            f"recording {args.episodes} episode(s) with agent '{agent}' in {config.world}"
            f" into {args.out} ({before} there)",
            quiet=args.json,
        )

    def tell(text: str) -> None:
        print(text, file=sys.stderr if args.json else sys.stdout, flush=True)

    found = collect(
        config,
        args.out,
        agent=args.agent,
        policy=args.policy,
        corrected_by=args.corrected_by,
        noise=args.noise,
        episodes=args.episodes,
        port=args.port,
        host=args.host,
        operator=args.operator,
        listener=CollectListener(
            on_begin=begin,
            on_saved=lambda name: tell(f"saved episode {name}"),
            on_page=lambda url: tell(f"open this page: {url}"),
            on_view=lambda text: print(text, end="", file=sys.stderr, flush=True),
        ),
    )
    load = found.recorder
    if args.json:
        document = {"store": str(args.out), "saved": found.saved, "episodes": found.episodes}
        print_json(document | {"successes": found.successes, "recorder": asdict(load)})
        return 0
    lost = f"{load.lost_frames} FRAMES LOST: the disk cannot keep up" if load.lost_frames else ""
    say(f"recorder: {lost or 'no frame lost'}; at most {load.max_waiting} tick(s) waited for it")
    say(
        f"{len(found.saved)} saved, {found.successes} a success; {args.out} has {found.episodes}"
        " episode(s)"
    )
    return 0
