"""``robolearn hardware guide`` moves the arm by hand, under the supervisor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.cli.shared.consent import ask, entered
from robolearn.cli.shared.parse import parse, say

if TYPE_CHECKING:
    from robolearn.operations.cell.guide import ArmPlace


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
    from robolearn.operations.cell.guide import GuideListener, guide_arm
    from robolearn.operations.cell.operator import CellOperator

    operator = CellOperator(partial(ask, yes=args.yes), done=None if args.seconds else _enter)
    listener = GuideListener(
        on_free=lambda: say("freedrive: guide the arm; Enter ends it"),
        on_place=lambda place: say(_text(place)),
        on_hold=lambda: say("the arm holds"),
    )
    guided = guide_arm(
        args.config, operator, seconds=args.seconds, start_lab=args.start_lab, listener=listener
    )
    say(_text(guided.place))
    for event in guided.interventions:
        say(f"  {event.text()}")
    return 0


def _enter(wait_s: float) -> bool:
    """Also at the end of the input: nobody is there to press it any more."""
    return entered(wait_s) is not None


def _text(place: ArmPlace) -> str:
    """Joints, flange, distance to the limits."""
    import numpy as np

    text = f"joints {np.round(place.joint_position, 3).tolist()} rad"
    if place.flange_m is not None:
        text += f", flange {np.round(place.flange_m, 3).tolist()} m"
    text += f"; limits: {place.leeway.joint_rad:.2f} rad"
    tool_m = place.leeway.tool_m
    return text if math.isinf(tool_m) else f"{text}, {100.0 * tool_m:.1f} cm"
