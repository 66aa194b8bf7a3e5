"""Runs planned trials one after the other, so that they may be killed at any moment and go on.

    row begins -> start, trial -> episode committed, it names its row -> asked -> row ends

What comes next is never kept: it follows from the rows (``eval/blinded/queue.py``). A process that
dies before the commit leaves a row that its successor voids, and the slot is tried again in its
place; one that dies after it leaves an episode, from which the successor ends the row.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from eval.blinded.interim import interim
from eval.blinded.plan import LockedPlan, TrialPlan
from eval.blinded.queue import Standing, standing
from eval.blinded.schedule import Slot
from eval.blinded.votes import TIE, Vote, add_vote, current, planned_votes
from eval.trials.rollouts import utc_now
from eval.trials.table import TrialStore
from robolearn.contracts import Subscriber
from robolearn.errors import (
    ClockError,
    DataError,
    InferenceError,
    LinkStopError,
    RemoteError,
    RobolearnError,
    SafetyStopError,
    StartError,
)
from robolearn.operations.deploy.trials import TrialWriter
from robolearn.operations.trial.episodes import KEY
from robolearn.operations.trial.operator import TrialOperator
from robolearn.operations.trial.planned import OpenedTrials
from robolearn.operations.trial.rating import rate, rated_result, rubric_figures
from robolearn.runtime import EpisodeResult
from robolearn.types import Condition, TrialRecord

# How often a start that is too far off may be placed again.
_PLACINGS = 3
# What the policy itself may have done, so that a trial that it cut short counts.
_ITS_DOING = (SafetyStopError, InferenceError, DataError)
# All that is said of a server that failed.
_SERVER_FAILED = (
    "the server of a policy failed; its own words are not shown while the trials are blinded, look"
    " at what it prints"
)


@runtime_checkable
class Stage(Protocol):
    """A cell with all policies, by alias."""

    def blank(self, alias: str) -> TrialRecord:
        """What is the same in all trials of one policy here."""
        ...

    def attempt(
        self,
        alias: str,
        condition: Condition,
        watchers: Sequence[Subscriber],
        provenance: Mapping[str, Any],
    ) -> EpisodeResult:
        """Run one episode and leave its recording undecided."""
        ...

    def show(self, condition: Condition) -> None:
        """Show the operator where things belong, if somebody asked for that."""
        ...

    def keep(self) -> str:
        """Commit the recording; returns its id."""
        ...

    def keep_stopped(self) -> str:
        """Commit the recording of an attempt that was cut short, where there is one; its id."""
        ...

    def figures(self, result: EpisodeResult | None) -> Mapping[str, float]:
        """What was counted, of a trial that ended (else None) more than of one that did not."""
        ...

    def goes_on(self, error: SafetyStopError) -> bool:
        """Whether a stop was cleared, so that the next trial may begin."""
        ...


class TrialSession:
    """The trials of one session on one cell."""

    def __init__(
        self,
        trials: OpenedTrials,
        stage: Stage,
        table: TrialStore,
        operator: TrialOperator,
        name: str,
    ) -> None:
        self._trials, self._stage, self._table = trials, stage, table
        self._operator, self._name = operator, name
        self._plan, self._cell = trials.locked.plan, trials.cell.name

    def run(self, at_most: int | None = None) -> Standing:
        """Run what waits on this cell, at most so many trials; returns where it stands then.

        Errors of devices and of the policies, redacted, after their row is written.
        """
        left = at_most
        while True:
            rows = self._table.all()
            now = standing(self._trials.locked, rows)
            self._ask_votes(now, rows)
            if self._decided(now, rows):
                return now
            due = now.waiting[self._cell]
            if not due or left == 0:
                return now
            self._try(due[0], rows, len(self._plan.slots) - now.left + 1)
            left = None if left is None else left - 1

    # -- one trial -------------------------------------------------------------------------------

    def _try(self, slot: Slot, rows: Sequence[TrialRecord], number: int) -> None:
        condition = self._trials.conditions[slot.condition]
        self._operator.told("trial", f"{number} of {len(self._plan.slots)} (slot {slot.number})")
        for placing in range(1, _PLACINGS + 1):
            _require_clock(rows)
            writer = TrialWriter(self._table, self._blank(slot), _excused)
            self._stage.show(condition)
            row = writer.begin(condition)
            said = {KEY: {"plan": self._trials.locked.hash, "slot": slot.number, "row": row}}
            try:
                result = self._stage.attempt(slot.alias, condition, [writer], said)
                # What follows is no reason to lose the trial.
                figures = self._stage.figures(result)
                episode = self._stage.keep()
            except BaseException as error:
                shown = redacted(self._trials, error)
                writer.abort(shown, self._stage.figures(None), self._stage.keep_stopped())
                if isinstance(error, SafetyStopError) and self._stage.goes_on(error):
                    self._operator.told("stopped", str(shown))
                    return
                again = isinstance(error, StartError) and self._operator.places
                if not again or placing == _PLACINGS:
                    raise
                self._operator.told("start", str(shown))
                rows = self._table.all()
                continue
            rating = rate(self._plan, self._operator)
            if self._plan.score == "rubric" and rating is not None:
                result = rated_result(result, rating)
            record = writer.finish(result, episode, "", {**figures, **rubric_figures(rating)})
            self._operator.told("", _words(record))
            self._operator.ended(record)
            return

    def _blank(self, slot: Slot) -> TrialRecord:
        return dataclasses.replace(
            self._stage.blank(slot.alias),
            policy=slot.alias,
            policy_hash=self._trials.key.sealed_hash(slot.alias),
            alias=slot.alias,
            slot=slot.number,
            plan=self._trials.locked.hash,
            suite=self._plan.suite,
            operator=self._name,
            status="started",
        )

    # -- between trials --------------------------------------------------------------------------

    def _decided(self, now: Standing, rows: Sequence[TrialRecord]) -> bool:
        """Tell the decisions, where the plan says that they are shown; True: all are made."""
        found = interim(self._plan, now, rows)
        if found is None:
            return False
        for line in found.lines:
            self._operator.told("so far", line)
        return found.decided

    def _ask_votes(self, now: Standing, rows: Sequence[TrialRecord]) -> None:
        """Ask about every pair that is there and that nobody has compared."""
        if not self._plan.pairs:
            return
        votes = planned_votes(self._trials.folder, self._trials.locked, rows)
        for first, second in done_pairs(self._plan, now, self._cell):
            pair = (now.done[first.number], now.done[second.number])
            if current(votes, pair) is None:
                self._ask_vote(first, second, pair)

    def _ask_vote(self, first: Slot, second: Slot, rows: tuple[int, int]) -> None:
        question = f"slots {first.number} and {second.number}: which of the two trials was better?"
        answer = self._operator.choose(question, ("the first", "the second", "neither"))
        vote = Vote(
            plan=self._trials.locked.hash,
            block=first.block,
            first=first.alias,
            second=second.alias,
            rows=rows,
            better=(first.alias, second.alias, TIE)[answer],
            comment=self._operator.remark("why (or nothing)"),
            operator=self._name,
            at=utc_now(),
        )
        add_vote(self._trials.folder, vote)


def done_pairs(plan: TrialPlan, now: Standing, cell: str | None = None) -> list[tuple[Slot, Slot]]:
    """Pairs of which both trials are there, in the plan's order; on one cell, or on all."""
    blocks: dict[int, list[Slot]] = {}
    for slot in plan.slots:
        if slot.number in now.done and cell in (None, slot.cell):
            blocks.setdefault(slot.block, []).append(slot)
    return [(b[0], b[1]) for b in blocks.values() if len(b) == 2]


def uncompared(
    folder: Path, locked: LockedPlan, rows: Sequence[TrialRecord], now: Standing
) -> dict[str, int]:
    """How many pairs are there that nobody compared, by cell; cells without any are left out."""
    if not locked.plan.pairs:
        return {}
    votes = planned_votes(folder, locked, rows)
    found = Counter(
        a.cell
        for a, b in done_pairs(locked.plan, now)
        if current(votes, (now.done[a.number], now.done[b.number])) is None
    )
    return dict(found)


def redacted(trials: OpenedTrials, error: BaseException) -> BaseException:
    """The error without names and aliases of policies, and without a server's own words: what
    these give away nobody here knows.
    """
    text = _SERVER_FAILED if isinstance(error, RemoteError) else trials.redact(str(error))
    if text == str(error) or not isinstance(error, Exception):
        return error
    if isinstance(error, RobolearnError):
        return type(error)(text)
    # Of other errors nobody knows how they are made.
    return RuntimeError(f"{type(error).__name__}: {text}")


def _excused(error: BaseException) -> bool:
    return isinstance(error, LinkStopError) or not isinstance(error, _ITS_DOING)


def _require_clock(rows: Sequence[TrialRecord]) -> None:
    now = utc_now()
    last = max((r.started for r in rows if r.status != "voided"), default="")
    if last and datetime.fromisoformat(now) < datetime.fromisoformat(last):
        raise ClockError(
            f"this computer's clock says {now}, but the last trial began at {last}: set the clock,"
            " or void that trial if the clock was ahead then (the order of trials is kept by their"
            " times)"
        )


def _words(record: TrialRecord) -> str:
    return f"score {record.score:.3f}, success {record.success}, {record.steps} steps"
