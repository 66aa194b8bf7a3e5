"""``robolearn collect``: record episodes with a person or with the task's scripted expert."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError

Agent = Literal["scripted", "play", "browser", "keyboard"]


@dataclass(frozen=True, slots=True)
class CollectConfig:
    """What to record, and where it happens (``configs/collect/*.yaml``)."""

    # A packaged scene, a scene folder, or an adapter's name.
    world: str
    # Time limit of an episode [control steps]; 0: that of the task.
    max_steps: int = 0
    # The task in words, kept with every episode.
    task_text: str = ""
    # Starts are drawn from it.
    seed: int = 0
    # How cameras are stored, by name: zstd, png, jpeg or jpeg:QUALITY (others: zstd up to 256 KiB a
    # frame, else jpeg:95).
    codecs: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if self.max_steps < 0:
            raise ValueError(f"max_steps must be 0 (the task's) or more, got {self.max_steps}")


@dataclass(frozen=True, slots=True)
class Args:
    """Record episodes into a store: start, keep or discard; Ctrl-C keeps what was saved."""

    # The episode store; made when absent, appended to when there.
    out: Path
    # A file of configs/collect/; not needed with --env.
    config: Path | None = None
    # A packaged scene, a scene folder or an adapter's name, instead of the file's world.
    env: str = ""
    # Who acts: the task's scripted expert, the expert at play (many goals, none of them the
    # task's), a local page, or the terminal's keys.
    agent: Agent = "browser"
    # Clumsiness of the expert, 0 to 1.
    noise: float = 0.0
    # How many episodes to save.
    episodes: int = 10
    # Append to an existing store without asking.
    yes: bool = False
    # Port of the page (0: any free one).
    port: int = 0
    # Who is recording, kept with every episode.
    operator: str = ""
    # Print one JSON document at the end; 'saved episode' lines go to standard error.
    json: bool = False


def main(argv: list[str]) -> int:
    """Load, build, record, report."""
    args = parse(Args, argv, "collect", "Record episodes into a store.")
    if args.episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, got {args.episodes}")
    if args.noise and args.agent not in ("scripted", "play"):
        raise ConfigError("--noise is for --agent scripted and play; people bring their own")
    if not 0 <= args.port <= 65535:
        raise ConfigError(f"--port must be 0 (any free one) to 65535, got {args.port}")
    from robolearn.cli.collect_run import Collection
    from robolearn.cli.shared.consent import ask
    from robolearn.config import load_config
    from robolearn.data.store.store import EpisodeStore
    from robolearn.operations.builders import env_builder

    if args.config is None and not args.env:
        raise ConfigError("say where: --config configs/collect/FILE.yaml or --env WORLD")
    if args.config is None:
        config = CollectConfig(world=args.env)
    else:
        config = load_config(CollectConfig, args.config)
        config = replace(config, world=args.env or config.world)
    env_builder(config.world)

    def open_store() -> EpisodeStore:
        store = EpisodeStore.open_or_create(args.out)
        before = len(store.ids())
        if before:
            ask(f"{args.out} has {before} episode(s)", "Append to it?", yes=args.yes)
        say(
            f"recording {args.episodes} episode(s) with agent '{args.agent}' in {config.world}"
            f" into {args.out} ({before} there)",
            quiet=args.json,
        )
        return store

    def tell(text: str) -> None:
        print(text, file=sys.stderr if args.json else sys.stdout, flush=True)

    saved, load = Collection(args, config, open_store, tell).run()
    found = {info.id: info for info in EpisodeStore.open(args.out).list()}
    total, good = len(found), sum(found[name].success for name in saved)
    if args.json:
        said = {"store": str(args.out), "saved": list(saved), "episodes": total}
        print_json(said | {"successes": good, "recorder": asdict(load)})
    lost = f"{load.lost_frames} FRAMES LOST: the disk cannot keep up" if load.lost_frames else ""
    say(
        f"recorder: {lost or 'no frame lost'}; at most {load.max_waiting} tick(s) waited for it",
        quiet=args.json,
    )
    say(f"{len(saved)} saved, {good} a success; {args.out} has {total} episode(s)", quiet=args.json)
    return 0
