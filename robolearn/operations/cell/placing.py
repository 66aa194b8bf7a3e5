"""Places objects where an episode on a cell begins: a lab's hand, or a person who is asked."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.spec import cell_spec
from hardware.cell.start import objects_of
from hardware.devices.tracker import object_of
from hardware.emulators.lab.admin import LabClient
from robolearn.errors import ConfigError, RobotError
from robolearn.geometry import quat_heading
from robolearn.operations.deploy.operator import Attendant
from robolearn.types import Condition

# Places that are remembered.
_KNOWN = 4
# How long an arm is waited for, how often it is looked at, and how often at rest [s].
_WAIT_S, _AGAIN_S, _QUIET = 5.0, 0.05, 4


@dataclass(frozen=True, slots=True)
class LabPlacement:
    """Places the objects through the lab's side door, as a person's hand would.

    ``objects``: what the lab calls those whose signal has another name, by signal.
    """

    lab: LabClient
    objects: Mapping[str, str]
    # Where it has put things, the newest last.
    _put: deque[Condition] = field(default_factory=lambda: deque[Condition](maxlen=_KNOWN))

    def __call__(self, condition: Condition) -> str:
        """Put everything where the condition wants it."""
        self._put.append(condition)
        return self._lay(condition)

    def make_way(self) -> None:
        """Take everything away from an arm that presses on it: back to where it was put last, the
        next time (it is there that the arm presses) to where it was put before, and so on in turn.
        The arm then springs to where it was sent, and is at rest afterwards.
        """
        if self._put:
            self._lay(self._put[-1])
            self._put.rotate(1)
            self._wait_at_rest()

    def _wait_at_rest(self) -> None:
        deadline, quiet = time.monotonic() + _WAIT_S, 0
        # It takes a moment to begin.
        while quiet < _QUIET:
            quiet = 0 if self.lab.log(time.monotonic_ns()).moving else quiet + 1
            if time.monotonic() > deadline:
                raise RobotError(f"the lab's arm did not come to rest within {_WAIT_S:g} s")
            time.sleep(_AGAIN_S)

    def _lay(self, condition: Condition) -> str:
        placed = objects_of(condition)
        for signal, pose in placed.items():
            self._place(self.objects.get(signal, object_of(signal)), pose)
        return "placed by the lab" if placed else "nothing to place"

    def _place(self, name: str, pose: tuple[float, ...]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                self.lab.place(name, pose)
            except RobotError:
                # The lab refuses a hand in the cell until the arm has come to rest.
                if time.monotonic() > deadline:
                    raise
                time.sleep(_AGAIN_S)
            else:
                return


@dataclass(frozen=True, slots=True)
class PromptPlacement:
    """Asks the operator to place the objects."""

    operator: Attendant

    def __call__(self, condition: Condition) -> str:
        """Wait for the operator, if there is anything to place."""
        placed = objects_of(condition)
        if not placed:
            return "nothing to place"
        if not self.operator.places:
            return "taken as it lies, nobody is asked"
        text = "; ".join(
            f"place the {object_of(signal)} at {_spoken(pose)}" for signal, pose in placed.items()
        )
        self.operator.place(f"{text}, step back")
        return "placed by the operator"


def _spoken(pose: tuple[float, ...]) -> str:
    """Where a person should put an object."""
    x, y, *rest = pose
    text = f"x {x:.3f} m, y {y:.3f} m"
    if len(pose) == 3:
        return f"{text}, {np.degrees(rest[0]):.0f} deg"
    heading = quat_heading(np.array([pose[3:]])).item()
    return f"{text}, z {pose[2]:.3f} m, {np.degrees(heading):.0f} deg"


def require_starts(conditions: Sequence[Condition], cell: CellConfig, suite: Path) -> None:
    """Raise ConfigError unless the cell can tell everything that the suite's starts name."""
    sizes = {s.name: math.prod(s.shape) for s in cell_spec(cell).signals}
    signals = set(sizes)
    for condition in conditions:
        unknown = sorted(set(condition.poses) - signals)
        if unknown:
            raise ConfigError(
                f"{suite}: condition '{condition.id}' names {unknown}, which cell '{cell.name}'"
                f" does not have (its signals: {sorted(signals)}); give a suite of this cell's task"
            )
        for name, value in condition.poses.items():
            if len(value) != sizes[name]:
                raise ConfigError(
                    f"{suite}: condition '{condition.id}' gives {len(value)} values for '{name}',"
                    f" of which cell '{cell.name}' tells {sizes[name]}; give a suite of this cell's"
                    " task"
                )
        for goal in cell.goals:
            if goal.name not in condition.poses:
                raise ConfigError(
                    f"{suite}: condition '{condition.id}' names no '{goal.name}', which cell"
                    f" '{cell.name}' has as a goal; give a suite that does"
                )
            goal.value(condition)
