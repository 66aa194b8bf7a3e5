"""``robolearn teleoperate`` lets a person drive a world or a cell; nothing is recorded."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from hardware.cell.limits import RunLimits
from robolearn.cli.shared.parse import parse
from robolearn.errors import ConfigError


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
    # Start the virtual lab of the cell and end it afterwards.
    start_lab: bool = False
    # Seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # On a cell: where starts and score come from (configs/eval/); objects lie as they lie without.
    suite: str = ""
    # Tighter limits for this run.
    limits: Annotated[RunLimits, tyro.conf.arg(name="")] = field(default_factory=RunLimits)
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
        # Idle threads of a numerics library would spin beside the control loop.
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
            os.environ.setdefault(name, "1")
    from robolearn.cli.collect import config_of
    from robolearn.cli.shared.sitting import Sitting

    config = config_of(args.config, args.env, args.robot, args.suite)
    if args.start_lab and not config.robot:
        raise ConfigError("--start-lab: of which cell? give --robot, too")
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
        from robolearn.operations.cell.collect import CellOptions, teleoperate_on_cell

        teleoperate_on_cell(
            config,
            CellOptions(start_lab=args.start_lab, lab_seed=args.lab_seed, limits=args.limits),
            TerminalOperator(yes=args.yes, quiet=False),
            agent=args.agent,
            port=args.port,
            host=args.host,
            listener=sitting.listener(),
        )
    finally:
        sitting.close()
    return 0
