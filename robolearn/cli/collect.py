"""``robolearn collect`` records episodes of a person, the task's scripted expert or a policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.errors import ConfigError
from robolearn.machine.threads import one_thread
from robolearn.operations.stores.collect_options import CellOptions, CollectOptions

if TYPE_CHECKING:
    from robolearn.operations.collect import CollectConfig
    from robolearn.operations.stores.collection import Collected, CollectListener

OF_A_CELL = tuple(option.name for option in fields(CellOptions))
"""Options that have no use in a simulated world."""


@dataclass(frozen=True, slots=True)
class Args:
    """Record episodes into a store; Ctrl-C keeps what was saved."""

    # The episode store; made when absent, appended to when there.
    out: Path
    # A file of configs/collect/; not needed with --env or --robot.
    config: Path | None = None
    # A packaged scene, a scene folder or an adapter's name, instead of the file's world.
    env: str = ""
    # A cell instead: a file of configs/hardware/.
    robot: str = ""
    # How the cell is opened.
    cell: tyro.conf.OmitArgPrefixes[CellOptions] = field(default_factory=CellOptions)
    # On a cell: the task that judges, its starts and time limit (configs/eval/); without it your
    # keys judge, objects lie as they lie, and an episode ends by a key.
    suite: str = ""
    # Who acts, and how many episodes of it are kept.
    options: Annotated[CollectOptions, tyro.conf.arg(name="")] = field(
        default_factory=CollectOptions
    )
    # The task in words, kept with every episode, instead of the file's.
    task_text: str = ""
    # Append to an existing store, recover what was killed there, and let an arm move, without
    # asking.
    yes: bool = False
    # Lines instead of the whole screen, for a person at a device.
    plain: bool = False
    # Print one JSON document at the end; 'saved episode' lines go to standard error.
    json: bool = False


def main(argv: list[str]) -> int:
    """Load, record, report."""
    args = parse(Args, argv, "collect", "Record episodes into a store.")
    args.options.check()
    if args.robot:
        one_thread()
    from robolearn.cli.shared.consent import ask
    from robolearn.cli.shared.sitting import Sitting

    config = config_of(args.config, args.env, args.robot, args.suite)
    config = replace(config, task_text=args.task_text or config.task_text)
    if not config.robot:
        refuse_without_use(args.cell, OF_A_CELL, "of which cell? give --robot, too")

    def begin(agent: str, before: int) -> None:
        if before:
            ask(f"{args.out} has {before} episode(s)", "Append to it?", yes=args.yes)
        say(
            f"recording {args.options.episodes} episode(s) with agent '{agent}' in"
            f" {config.robot or config.world} into {args.out} ({before} there)",
            quiet=args.json,
        )

    sitting = Sitting(
        f"collect {args.out}",
        begin,
        plain=args.plain,
        yes=args.yes,
        to_stderr=args.json,
        store=str(args.out),
    )
    try:
        found = _collected(config, args, sitting.listener())
    finally:
        sitting.close()
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


def config_of(path: Path | None, env: str, robot: str, suite: str) -> CollectConfig:
    """The configuration, in which the place is the one that was named; ConfigError without one."""
    from robolearn.config import load_config
    from robolearn.operations.collect import CollectConfig

    if env and robot:
        raise ConfigError("either --env or --robot: leave one of them out")
    if path is None and not (env or robot):
        raise ConfigError(
            "say where: --config configs/collect/FILE.yaml or --env WORLD, or --robot CELL"
        )
    config = CollectConfig() if path is None else load_config(CollectConfig, path)
    if env:
        config = replace(config, world=env, robot="", suite="")
    if robot:
        config = replace(config, world="", robot=robot)
    return replace(config, suite=suite) if suite else config


def _collected(config: CollectConfig, args: Args, listener: CollectListener) -> Collected:
    if not config.robot:
        from robolearn.operations.collect import collect

        return collect(config, args.out, args.options, listener=listener)
    from robolearn.cli.deploy.terminal import TerminalOperator
    from robolearn.operations.cell.collect import collect_on_cell

    attendant = TerminalOperator(yes=args.yes, quiet=args.json)
    return collect_on_cell(config, args.out, args.cell, attendant, args.options, listener=listener)
