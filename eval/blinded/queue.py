"""Says where blinded trials stand: which slots are done, which one is next. Nothing else keeps it.

Rows of the table are replayed in their order against the plan: every row must be of the slot whose
turn it was on its cell, with that slot's alias and condition. What does not fit was not done by the
plan, or was edited, and is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from eval.blinded.plan import LockedPlan, TrialPlan
from eval.blinded.schedule import Slot
from eval.trials.table import SCORED, UNKNOWN
from robolearn.errors import DataError
from robolearn.types import TrialRecord

_VOIDED = re.compile(r"voided at (\S+): ")


@dataclass(frozen=True, slots=True)
class Standing:
    """What is done (slot -> row, from 1) and what waits, by cell, in order."""

    done: Mapping[int, int]
    waiting: Mapping[str, tuple[Slot, ...]]

    @property
    def left(self) -> int:
        """How many slots wait."""
        return sum(map(len, self.waiting.values()))


def void_note(at: str, reason: str) -> str:
    """The note of a trial that an operator takes out after it ended; ``at``: UTC, ISO 8601."""
    return f"voided at {at}: {reason}"


def voided_at(record: TrialRecord) -> str:
    """When an operator took the trial out; "": nobody did."""
    found = _VOIDED.match(record.note) if record.status == "voided" else None
    return "" if found is None else found[1]


def came_to_an_end(record: TrialRecord) -> bool:
    """Whether the trial's outcome is known, also of one that was voided afterwards."""
    if record.status == "aborted":
        return record.reason != UNKNOWN
    return record.status == "finished" or voided_at(record) != ""


def standing(locked: LockedPlan, rows: Sequence[TrialRecord]) -> Standing:
    """Replay all rows; :class:`DataError` for one that the plan does not explain."""
    plan = locked.plan
    slots = plan.by_number
    waiting = {cell: [s for s in plan.slots if s.cell == cell] for cell in plan.cells}
    done: dict[int, int] = {}
    voids = sorted((at, n) for n, r in enumerate(rows, 1) if (at := voided_at(r)))
    last: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        slot = _slot(locked, row, number)
        due = waiting[slot.cell]
        before = [v for v in voids if v[1] < number and _moment(v[0]) <= _moment(row.started)]
        if own := voided_at(row):
            # It may have begun under a clock that went ahead, but before it was voided.
            before = [v for v in before if _moment(v[0]) < _moment(own)]
        elif row.status == "voided" and due and due[0] == slot:
            # So may one whose process died. It changes nothing, so that what was voided before it
            # may as well be after it.
            before = []
        for void in before:
            voids.remove(void)
            _again(plan, slots[rows[void[1] - 1].slot or 0], void[1], waiting, done)
        due = waiting[slot.cell]
        if not due or due[0] != slot:
            wanted = f"it was the turn of slot {due[0].number}" if due else "all slots were done"
            raise DataError(
                f"trial {number} is of slot {slot.number}, but {wanted}: not as planned"
            )
        # What does not count keeps nobody from going on after a clock that went ahead.
        counts = row.status != "voided"
        if counts and row.env in last and _moment(row.started) < _moment(last[row.env]):
            raise DataError(
                f"trial {number} (slot {slot.number}) began at {row.started}, before the trial"
                f" that came before it ({last[row.env]}): the clock was set back"
            )
        if counts:
            last[row.env] = row.started
        if came_to_an_end(row):
            due.pop(0)
            done[slot.number] = number
    for _, number in voids:
        _again(plan, slots[rows[number - 1].slot or 0], number, waiting, done)
    return Standing(done, {cell: tuple(due) for cell, due in waiting.items()})


def counted(standing: Standing, rows: Sequence[TrialRecord]) -> tuple[TrialRecord, ...]:
    """The trials that count: one for each slot that is done."""
    return tuple(r for n in sorted(standing.done.values()) if (r := rows[n - 1]).status in SCORED)


def _again(
    plan: TrialPlan, slot: Slot, number: int, waiting: dict[str, list[Slot]], done: dict[int, int]
) -> None:
    """The slot whose trial was row ``number`` goes to the end, with what belongs to it."""
    if done.get(slot.number) != number:
        return
    unit = plan.unit(slot)
    due = [s for s in waiting[slot.cell] if s not in unit]
    waiting[slot.cell] = [*due, *unit]
    for member in unit:
        done.pop(member.number, None)


def _slot(locked: LockedPlan, row: TrialRecord, number: int) -> Slot:
    slot = locked.plan.by_number.get(row.slot or 0)
    wrong = ""
    if row.plan != locked.hash:
        wrong = f"it was run under plan {row.plan or '(none)'}, not {locked.hash}"
    elif slot is None:
        wrong = f"the plan has no slot {row.slot}"
    elif (row.alias, row.policy) != (slot.alias, slot.alias):
        wrong = f"slot {slot.number} is planned for '{slot.alias}', not '{row.alias or row.policy}'"
    elif (row.condition, row.env, row.suite) != (slot.condition, slot.cell, locked.plan.suite):
        wrong = (
            f"slot {slot.number} is planned for {slot.condition} of {locked.plan.suite} on"
            f" '{slot.cell}', not {row.condition} of {row.suite} on '{row.env}'"
        )
    if wrong or slot is None:
        raise DataError(f"trial {number} is not as planned: {wrong}")
    return slot


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise DataError(f"a trial does not say when it began: {text!r}") from error
