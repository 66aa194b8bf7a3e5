"""Brings a cell's device back after a stop, step by step, each when the operator agrees."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hardware.cell.load import load_cell
from robolearn.errors import RobotError
from robolearn.operations.cell.operator import CellOperator

# A protective stop, the power and the brakes: whoever needs more should be at the pendant.
_MOST_STEPS = 6


@dataclass(frozen=True, slots=True)
class RecoverListener:
    """Who is told how the device is."""

    # The cell's name, and how its device is in its own words: at first and after each step.
    on_state: Callable[[str, str], None] | None = None
    # A step that was taken.
    on_step: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class Recovered:
    """A device that programs may connect to again: the steps that were taken, and how it is now in
    its own words.
    """

    cell: str
    steps: tuple[str, ...]
    state: str


def recover_cell(
    config: Path, operator: CellOperator, listener: RecoverListener = RecoverListener()
) -> Recovered:
    """Unlock, power on, release the brakes: what the device of a file of ``configs/hardware/``
    needs.

    Errors: :class:`ConfigError` when the operator does not agree, and for a driver that cannot do
    this; :class:`RobotError` for a device that refuses, or needs a person beside it.
    """
    cell = load_cell(config)
    steps: list[str] = []
    with closing(cell.recovery()) as recovery:
        while True:
            state = recovery.told()
            if listener.on_state is not None:
                listener.on_state(cell.name, state)
            step = recovery.next_step()
            if not step:
                return Recovered(cell.name, tuple(steps), state)
            if len(steps) == _MOST_STEPS:
                raise RobotError(
                    f"{cell.name} is not ready after {_MOST_STEPS} steps ({state}); look at its own"
                    " panel"
                )
            operator.consent(step)
            recovery.take()
            steps.append(step)
            if listener.on_step is not None:
                listener.on_step(step)
