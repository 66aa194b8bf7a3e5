"""Says what places the objects of an episode on a cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from robolearn.types import Condition

ResetProcedure = Callable[[Condition], str]
"""Places the objects of a condition while the tool is lifted and at rest; returns a note."""


@runtime_checkable
class MakesWay(Protocol):
    """A hand that places objects and can also take them away from an arm that presses on them."""

    def make_way(self) -> None:
        """While the arm is stopped; RobotError where that cannot be done."""
        ...
