"""``robolearn hardware recover`` brings a device back after a stop, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from robolearn.cli.shared.consent import ask
from robolearn.cli.shared.parse import parse, say


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
    from robolearn.operations.cell.operator import CellOperator
    from robolearn.operations.cell.recover import RecoverListener, recover_cell

    listener = RecoverListener(
        on_state=lambda cell, state: say(f"{cell}: {state}"),
        on_step=lambda step: say(f"  done: {step}"),
    )
    recover_cell(args.config, CellOperator(partial(ask, yes=args.yes)), listener)
    say("ready: programs may connect again")
    return 0
