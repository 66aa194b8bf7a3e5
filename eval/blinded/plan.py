"""Keeps the locked plan of blinded trials: what is tried, in which order, how it is scored.

It is written before the first trial and holds its own hash, which every trial names. Policies are
called by aliases; who they are stands in the sealed key, whose digest the plan holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from eval.blinded.schedule import Slot, starts_by_cell
from eval.hashed_file import DocumentKind, document_hash, read_hashed, write_hashed
from eval.rule import Rule
from robolearn.agents.execution import Execution, GuidanceName, Runtime
from robolearn.config import from_dict, to_dict
from robolearn.errors import ConfigError, DataError
from robolearn.types import TrialRecord

FILE_NAME = "plan.yaml"
# Where the table with aliases stands until the end.
BLIND = "blind"
KIND = DocumentKind("robolearn trial plan", 1, "robolearn trial")
Scoring = Literal["task", "operator", "rubric"]
REQUEUE = (
    "a trial that did not come to an end (interrupted, a device failed, a start beyond the"
    " tolerance) is tried again in its place; one that an operator voids afterwards is tried again"
    " after the last slot, in the order of voiding, in pairs both trials of the pair"
)


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """A cell by the hash of its configuration; ``lab_seed``: of its lab, None: it is real, or its
    lab was started by somebody else.
    """

    hash: str
    file: str
    lab_seed: int | None = None


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """What was fixed before the first trial."""

    # The suite, as trials name it: name@hash.
    suite: str
    # Cells by name.
    cells: dict[str, PlannedCell]
    # What the policies are called.
    aliases: tuple[str, ...]
    # Digest of the sealed key.
    key: str
    # When it was written: UTC, ISO 8601.
    written: str
    # Every trial, in order.
    slots: tuple[Slot, ...]
    # What the order was drawn from.
    seed: int
    # How pairs are decided; a sequential one is shown while trying.
    rule: Rule
    # Control steps of a trial.
    max_steps: int
    # Who says how a trial went: the task's predicate (keys count), the operator's keys alone, or
    # the operator by the rubric.
    score: Scoring = "task"
    # Steps towards the goal in words, asked after every trial; the last one is the goal.
    rubric: tuple[str, ...] = ()
    # Pairs from the same start, after which the operator prefers one.
    pairs: bool = False
    # How chunks become commands.
    execution: Execution = field(default_factory=Execution)
    # What computes the policies, and how a plan is continued.
    runtime: Runtime = "torch"
    guidance: GuidanceName = "auto"
    # What policies that read text are told.
    instruction: str = ""
    # What happens to trials that do not count.
    requeue: str = REQUEUE

    def __post_init__(self) -> None:
        if self.score == "rubric" and not self.rubric:
            raise ConfigError("score: rubric needs the steps of a rubric")
        if any(not step.strip() for step in self.rubric):
            raise ConfigError("a rubric's steps are words, one of them is empty")
        known = {s.alias for s in self.slots} <= set(self.aliases)
        numbered = [s.number for s in self.slots] == list(range(1, len(self.slots) + 1))
        if not (known and numbered and {s.cell for s in self.slots} <= set(self.cells)):
            raise ConfigError("the plan's slots name aliases or cells that it does not have")

    @property
    def by_number(self) -> Mapping[int, Slot]:
        """Slots by number."""
        return {s.number: s for s in self.slots}

    def unit(self, slot: Slot) -> tuple[Slot, ...]:
        """What is tried again together: a pair, else the slot alone."""
        return tuple(s for s in self.slots if s.block == slot.block) if self.pairs else (slot,)


@dataclass(frozen=True, slots=True)
class LockedPlan:
    """A plan and its hash, by which trials name it."""

    hash: str
    plan: TrialPlan


def require_unblinded(folder: Path, records: Sequence[TrialRecord]) -> None:
    """:class:`DataError` for blinded trials: nobody looks at what they came to before the end.

    ``records``: trials of the folder, if there are any.
    """
    if any(r.alias and r.alias == r.policy for r in records) or (
        not records and (folder / FILE_NAME).is_file()
    ):
        raise DataError(
            f"the trials in '{folder}' are blinded; 'robolearn trial report --unblind' tells the"
            " names once all are done, and writes what is compared"
        )


def as_locked(plan: TrialPlan) -> LockedPlan:
    """What the plan is called once it is locked; nothing is written."""
    return LockedPlan(document_hash(KIND, to_dict(plan)), plan)


def lock_plan(folder: Path, plan: TrialPlan) -> LockedPlan:
    """Write the plan; :class:`ConfigError` where there is one."""
    write_hashed(folder / FILE_NAME, KIND, to_dict(plan), rows=True)
    return as_locked(plan)


def read_locked(folder: Path) -> LockedPlan:
    """Read the plan of a folder; :class:`ConfigError` for one that was changed."""
    path = folder / FILE_NAME
    if not path.is_file():
        raise DataError(f"no blinded trials in '{folder}': expected the file {FILE_NAME} there")
    digest, values = read_hashed(path, KIND)
    plan = from_dict(TrialPlan, values, where=str(path))
    _require_starts_once(plan, path)
    _require_one_cell(plan, path)
    return LockedPlan(digest, plan)


def _require_starts_once(plan: TrialPlan, path: Path) -> None:
    """:class:`ConfigError` for a plan of an earlier version, which counted repetitions, and the
    conditions of all cells, as starts of each: what was planned would be misread.
    """
    starts, said = starts_by_cell(plan.slots), plan.rule.n_max
    if said is None or said == max(starts.values(), default=0):
        return
    here = ", ".join(f"{n} on '{cell}'" for cell, n in sorted(starts.items()))
    raise ConfigError(
        f"'{path}' says that each policy is compared over {said} starts, but it plans {here}: an"
        " earlier version of robolearn wrote it, which took repetitions and the conditions of"
        " several cells for further starts. Its trials cannot be compared as planned; plan them"
        " anew in another folder"
    )


def _require_one_cell(plan: TrialPlan, path: Path) -> None:
    """:class:`ConfigError` for a plan of an earlier version, which put repetitions on other cells
    than the first tries: they would not tell how far a trial predicts its own repetition.
    """
    cell_of: dict[str, str] = {}
    for slot in plan.slots:
        if cell_of.setdefault(slot.condition, slot.cell) != slot.cell:
            raise ConfigError(
                f"'{path}' plans {slot.condition} on the cells '{cell_of[slot.condition]}' and"
                f" '{slot.cell}': an earlier version of robolearn wrote it, which put repetitions"
                " on any cell, where they tell nothing of how far a trial predicts its own"
                " repetition. Plan these trials anew in another folder"
            )
