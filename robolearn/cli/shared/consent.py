"""What commands that move a robot share: asking first, and a cell without a task."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from robolearn.errors import ConfigError
from robolearn.pusht import TOOL
from robolearn.types import Condition, Outcome, Signals

if TYPE_CHECKING:
    from hardware.cell.config import CellConfig
    from hardware.emulators.lab.launch import LabProcess


def ask_to_move(what: str, *, yes: bool) -> None:
    """Go on only when the operator agrees; raises ConfigError otherwise."""
    if yes:
        return
    require_terminal(what)
    print(f"{what}. Cell clear? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("not confirmed: nothing of this was done")


def require_terminal(what: str) -> None:
    """Raise ConfigError unless somebody can be asked."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{what}, and there is no terminal to ask: pass --yes")


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
    cell: CellConfig, lab: LabProcess | None, *, ask: bool
) -> Callable[[Condition], str]:
    """A reset that takes the block out of the way: by the lab, or by the operator."""

    def place(condition: Condition) -> str:
        del condition
        if lab is not None and cell.table is None:
            return "nothing to clear"
        if lab is not None:
            with lab.where.connect() as door:
                door.place("block", (0.1, 0.1, 0.0))
            return "block put aside by the lab"
        if ask:
            print("clear the table, then press Enter: ", end="", file=sys.stderr, flush=True)
            sys.stdin.readline()
        return "table cleared by the operator"

    return place
