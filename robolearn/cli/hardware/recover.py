"""``robolearn hardware recover``: bring a device back after a stop, step by step."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from robolearn.cli.shared.parse import parse, say

# A protective stop, the power and the brakes: whoever needs more should be at the pendant.
_MOST_STEPS = 6


@dataclass(frozen=True)
class RecoverArgs:
    """Tell how the device is; unlock, power on, release brakes, each when you agree."""

    # A file of configs/hardware/ whose driver can do this (docs/robots.md).
    config: Path
    # Do not ask before each step (for a virtual lab).
    yes: bool = False


def recover(argv: list[str]) -> int:
    """Run the verb."""
    args = parse(RecoverArgs, argv, "hardware recover", RecoverArgs.__doc__ or "")
    from hardware.cell.load import load_cell
    from robolearn.cli.shared.consent import ask
    from robolearn.errors import RobotError

    cell = load_cell(args.config)
    with closing(cell.recovery()) as recovery:
        say(f"{cell.name}: {recovery.told()}")
        for _ in range(_MOST_STEPS):
            step = recovery.next_step()
            if not step:
                say("ready: programs may connect again")
                return 0
            ask(step, yes=args.yes)
            recovery.take()
            say(f"  done: {step}")
            say(f"{cell.name}: {recovery.told()}")
        raise RobotError(
            f"{cell.name} is not ready after {_MOST_STEPS} steps ({recovery.told()}); look at its"
            " own panel"
        )
