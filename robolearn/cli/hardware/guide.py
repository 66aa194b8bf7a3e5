"""``robolearn hardware guide``: move the arm by hand, under the supervisor."""

from __future__ import annotations

import math
import select
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.cli.shared.parse import parse, say

if TYPE_CHECKING:
    from hardware.cell.config import CellConfig
    from hardware.env.real_env import RealEnv
    from hardware.supervisor.follower import Follower


@dataclass(frozen=True)
class GuideArgs:
    """Guide the arm by hand until Enter; prints where it is and how far its limits are."""

    # A file of configs/hardware/ whose arm has a freedrive (docs/robots.md).
    config: Path
    # Start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # Do not ask before the arm gives way (for a virtual lab).
    yes: bool = False
    # End after this time [s] instead of waiting for Enter; 0: wait.
    seconds: float = 0.0


def guide(argv: list[str]) -> int:
    """Run the verb."""
    args = parse(GuideArgs, argv, "hardware guide", GuideArgs.__doc__ or "")
    from hardware.cell.load import load_cell
    from hardware.commissioning.no_task import NoScore
    from hardware.env.real_env import RealEnv
    from robolearn.cli.shared.consent import ask
    from robolearn.errors import ConfigError

    if args.seconds < 0.0:
        raise ConfigError(f"--seconds must be 0 or more, got {args.seconds}")
    cell = load_cell(args.config)
    with ExitStack() as stack:
        if args.start_lab:
            from hardware.emulators.lab.launch import LabProcess

            stack.enter_context(LabProcess(args.config, address=cell.address or "127.0.0.1"))
        ask("the arm gives way to your hand; hold it", yes=args.yes)
        env = RealEnv(cell, place=lambda _: "", scorer=NoScore())
        stack.callback(env.close)
        follower = cell.follower().build(float(cell.driver.get("rate_hz", 500.0)))
        env.guide()
        say("freedrive: guide the arm; Enter ends it")
        _watch(env, cell, follower, args.seconds)
        env.hold()
        say("the arm holds")
        say(_told(env, cell, follower))
        for event in env.interventions:
            say(f"  {event.text()}")
    return 0


def _watch(env: RealEnv, cell: CellConfig, follower: Follower, seconds: float) -> None:
    """Until Enter, or the time is over, or a limit has ended freedrive."""
    from hardware.supervisor.link import Mode

    deadline = time.monotonic() + (seconds or math.inf)
    told_s = 0.0
    while time.monotonic() < deadline and env.status().mode is Mode.FREEDRIVE:
        if time.monotonic() - told_s > 0.5:
            told_s = time.monotonic()
            say(_told(env, cell, follower))
        if seconds:
            time.sleep(0.05)
        elif select.select([sys.stdin], [], [], 0.05)[0]:
            sys.stdin.readline()
            return


def _told(env: RealEnv, cell: CellConfig, follower: Follower) -> str:
    """Joints, flange, distance to the limits."""
    import numpy as np

    from robolearn.arms.models import ARMS

    q = env.supervisor.state().joint_position
    text = f"joints {np.round(q, 3).tolist()} rad"
    if cell.arm in ARMS:
        text += f", flange {np.round(ARMS[cell.arm].fk(q)[:3, 3], 3).tolist()} m"
    left = follower.leeway(q)
    text += f"; limits: {left.joint_rad:.2f} rad"
    return text if math.isinf(left.tool_m) else f"{text}, {100.0 * left.tool_m:.1f} cm"
