"""Moves a cell without a task: nothing is scored, the table is clear."""

from __future__ import annotations

from collections.abc import Callable

from hardware.cell.config import CellConfig
from hardware.emulators.lab.launch import LabProcess
from robolearn.pusht import TOOL
from robolearn.types import Condition, Outcome, Signals


class NoScore:
    """A scorer for motions without a task."""

    def reset(self) -> None:
        """Nothing."""

    def judge(self, values: Signals) -> Outcome:
        """Nothing is achieved."""
        del values
        return Outcome(success=False, progress=0.0, reward=0.0)


def middle(cell: CellConfig) -> Condition:
    """Where a motion without a task starts: the middle of the workspace, or home."""
    if cell.table is None:
        return Condition("middle", 0, {})
    low, high = cell.limits.workspace_low, cell.limits.workspace_high
    xy = tuple(0.5 * (a + b) for a, b in zip(low, high, strict=True))
    return Condition("middle", 0, {TOOL: xy})


def clear_table(
    cell: CellConfig, lab: LabProcess | None, ask: Callable[[str], None] | None
) -> Callable[[Condition], str]:
    """A reset that takes the block out of the way: by the lab, or by the operator, whom ``ask``
    tells so and waits for (None: it has been seen to).
    """

    def place(condition: Condition) -> str:
        del condition
        if lab is not None and cell.table is None:
            return "nothing to clear"
        if lab is not None:
            with lab.where.connect() as door:
                door.place("block", (0.1, 0.1, 0.0))
            return "block put aside by the lab"
        if ask is not None:
            ask("clear the table")
        return "table cleared by the operator"

    return place
