"""Keeps what a deployment's trials came to in the table of trials, which only grows: a later
deployment into the same folder adds its trials to those that are there.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Mapping

from eval.trials.rollouts import achieved_start, start_errors, utc_now
from eval.trials.table import TrialStore
from hardware.cell.config import CellConfig
from robolearn.data.episode import take_overs, taken_over
from robolearn.data.provenance import git_revision
from robolearn.errors import LinkStopError, SafetyStopError
from robolearn.runtime import EpisodeResult
from robolearn.shapes import Flags
from robolearn.types import Condition, EpisodeHeader, Outcome, Tick, TrialRecord

# Why a trial ended that a person had to help in: it is not the policy's success.
CORRECTED = "corrected"
# The metric that tells how many steps that were.
PERSON_STEPS = "person_steps"


def blank_trial(cell: CellConfig, cell_hash: str, world: str) -> TrialRecord:
    """What the rows of all trials on a cell have in common; ``world``: that of its virtual lab, as
    far as it says ("": it does not).
    """
    engine = f"virtual lab, {world}" if world else "virtual lab"
    return TrialRecord(
        policy="",
        policy_hash="",
        env=cell.name,
        env_hash=cell_hash,
        engine=engine if cell.lab else "robot",
        kind="lab" if cell.lab else "robot",
        condition="",
        seed=0,
        success=False,
        score=0.0,
        final_progress=0.0,
        return_=0.0,
        steps=0,
        duration_s=0.0,
        reason="",
        commit=git_revision(),
        status="started",
        standard_errors=cell.standard_errors,
    )


class TrialWriter:
    """Writes the row of one trial at a time: started before the arm moves, ended after it.

    It is a subscriber of the episode, so that it knows whether the policy was in charge when a
    trial was cut short: then it counts, as a failure, unless ``excuses`` says that what cut it
    short is not the policy's doing; a trial that never began is voided.
    """

    def __init__(
        self,
        store: TrialStore,
        blank: TrialRecord,
        excuses: Callable[[BaseException], bool] = lambda _: False,
    ) -> None:
        self._store, self._blank, self._excuses = store, blank, excuses
        self._row, self._record = 0, blank
        self._sources: list[str] = []
        self._episode: EpisodeHeader | None = None
        self._begin_s = 0.0

    def begin(self, condition: Condition) -> int:
        """The arm is about to move to the start of ``condition``; returns the number of its row."""
        self._episode, self._begin_s = None, time.monotonic()
        self._sources = []
        self._record = dataclasses.replace(
            self._blank,
            condition=condition.id,
            seed=condition.seed,
            status="started",
            started=utc_now(),
        )
        self._row = self._store.begin(self._record)
        return self._row

    def on_start(self, episode: EpisodeHeader) -> None:
        """The start is reached: from now on the policy is in charge."""
        self._episode, self._begin_s = episode, time.monotonic()
        self._record = dataclasses.replace(
            self._record,
            note=episode.reset.note,
            achieved=achieved_start(episode.reset),
            standard_errors=start_errors(episode.reset),
        )

    def on_tick(self, tick: Tick) -> None:
        """Remember how far it came, for a trial that is cut short, or that a person goes on with:
        what is solved then is not the policy's.
        """
        self._sources.append(tick.command.source)
        if self.helped:
            self._record = dataclasses.replace(self._record, steps=tick.index + 1)
            return
        progress = min(1.0, max(0.0, tick.outcome.progress))
        self._record = dataclasses.replace(
            self._record,
            score=max(self._record.score, progress),
            final_progress=progress,
            return_=self._record.return_ + tick.outcome.reward,
            steps=tick.index + 1,
        )

    def on_end(self, outcome: Outcome) -> None:
        """Nothing: the result comes with :meth:`finish`."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing: the error comes with :meth:`abort`, also when no episode began."""

    @property
    def helped(self) -> bool:
        """Whether a person has driven in this trial."""
        return bool(self._by_person().any())

    def finish(
        self, result: EpisodeResult, episode: str, video: str, metrics: Mapping[str, float]
    ) -> TrialRecord:
        """Write how the trial ended; ``episode``: its recording, ``video``: the clip's name."""
        record = dataclasses.replace(
            self._record,
            status="finished",
            success=result.outcome.success,
            score=result.score,
            final_progress=result.outcome.progress,
            return_=result.return_,
            steps=result.steps,
            duration_s=result.duration_s,
            reason=result.outcome.reason,
            episode=episode,
            video=video,
            metrics=metrics,
        )
        if self.helped:
            # How far the policy came alone stands in the row already.
            own = self._record
            record = dataclasses.replace(
                record,
                success=False,
                reason=CORRECTED,
                score=own.score,
                final_progress=own.final_progress,
                return_=own.return_,
                metrics={
                    **metrics,
                    **self._help(),
                    "corrected_success": float(result.outcome.success),
                },
            )
        self._store.end(self._row, record)
        return record

    @property
    def _drove(self) -> list[str]:
        """Who drove. The policy is in charge from the start on: who takes over before it has
        answered for the first time has taken over, too.
        """
        return ["policy", *self._sources]

    def _by_person(self) -> Flags:
        return taken_over(self._drove)

    def _help(self) -> dict[str, float]:
        driven = float(self._by_person().sum())
        return {PERSON_STEPS: driven, "take_overs": float(take_overs(self._drove).sum())}

    def abort(
        self, error: BaseException, metrics: Mapping[str, float], episode: str = ""
    ) -> TrialRecord:
        """Write that the trial was cut short, by what, and what was counted until then;
        ``episode``: its recording, where there is one.
        """
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        record = dataclasses.replace(
            self._record,
            status="voided" if self._episode is None or self._excuses(error) else "aborted",
            reason=reason_of(error),
            episode=episode,
            duration_s=time.monotonic() - self._begin_s,
            metrics={**metrics, **(self._help() if self.helped else {})},
            note="; ".join(part for part in (reason, self._record.note) if part),
        )
        self._store.end(self._row, record)
        return record


def reason_of(error: BaseException) -> str:
    """One word for what cut a trial short: ``safety_stop`` for a SafetyStopError."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, LinkStopError):
        # The note says what stopped it; costs and reports know the one word for a stop.
        error = SafetyStopError()
    name = type(error).__name__.removesuffix("Error")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
