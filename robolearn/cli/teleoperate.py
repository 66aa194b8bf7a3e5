"""``robolearn teleoperate`` lets a person drive a world or a cell; nothing is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import tyro

from robolearn.cli.shared.parse import parse
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.machine.threads import one_thread
from robolearn.operations.stores.collect_options import CellOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """Drive by a device until you quit; nothing is recorded."""

    # A file of configs/collect/; not needed with --env or --robot.
    config: Path | None = None
    # A packaged scene, a scene folder or an adapter's name, instead of the file's world.
    env: str = ""
    # A cell instead: a file of configs/hardware/.
    robot: str = ""
    # The device: keyboard, spacemouse, gamepad, leader, browser (a page), or freedrive (the arm
    # itself, guided by hand); auto: as --config says, else keyboard.
    agent: str = "auto"
    # How the cell is opened.
    cell: tyro.conf.OmitArgPrefixes[CellOptions] = field(default_factory=CellOptions)
    # On a cell: where starts and score come from (configs/eval/); objects lie as they lie without.
    suite: str = ""
    # Do not ask before an arm moves.
    yes: bool = False
    # Lines instead of the whole screen.
    plain: bool = False
    # Port of the page (0: any free one).
    port: int = 0
    # Address of this computer under which a tablet in its network opens the page, with TLS; without
    # it nobody but this computer can.
    host: str = ""


def main(argv: list[str]) -> int:
    """Load, open, drive."""
    args = parse(Args, argv, "teleoperate", Args.__doc__ or "")
    if args.robot:
        one_thread()
    from robolearn.cli.collect import OF_A_CELL, config_of
    from robolearn.cli.shared.sitting import Sitting

    config = config_of(args.config, args.env, args.robot, args.suite)
    if not config.robot:
        refuse_without_use(args.cell, OF_A_CELL, "of which cell? give --robot, too")
    sitting = Sitting(f"teleoperate {config.robot or config.world}", plain=args.plain)
    try:
        if not config.robot:
            from robolearn.operations.collect import teleoperate

            teleoperate(
                config,
                agent=args.agent,
                port=args.port,
                host=args.host,
                listener=sitting.listener(),
            )
            return 0
        from robolearn.cli.deploy.terminal import TerminalOperator
        from robolearn.operations.cell.collect import teleoperate_on_cell

        teleoperate_on_cell(
            config,
            args.cell,
            TerminalOperator(yes=args.yes, quiet=False),
            agent=args.agent,
            port=args.port,
            host=args.host,
            listener=sitting.listener(),
        )
    finally:
        sitting.close()
    return 0
