"""Ends the row of a trial whose process died: from its episode, if that was saved, else voided."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

from eval.blinded.plan import BLIND, LockedPlan
from eval.blinded.unblinded import UNBLINDED
from eval.trials.closing import read_closing
from eval.trials.table import UNKNOWN, TrialStore, has_trials, read_trials
from robolearn.data.episode import EpisodeMeta
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, StoreCorruptError
from robolearn.operations.trial.episodes import STORE, TrialOf, episode_of
from robolearn.operations.trial.rating import Rater, rate, rubric_figures
from robolearn.types import SAFETY_STOP, TrialRecord

log = logging.getLogger(__name__)


def recover(folder: Path, locked: LockedPlan) -> None:
    """End what a process left when it died, as the next session would, where nobody is there to be
    asked. Whoever calls it holds the lock of the trials.

    :class:`ConfigError` where somebody has to say how far the trial came;
    :class:`StoreCorruptError` for a store that is not that of the trials.
    """
    blind = folder / BLIND
    rows = read_trials(blind) if has_trials(blind) else ()
    told = (folder / UNBLINDED).is_file() or read_closing(blind, rows) is not None
    if told or not rows or not (folder / STORE).is_dir():
        return
    store = EpisodeStore.open(folder / STORE)
    require_rows(store, rows)
    TrialStore(blind, Successor(locked, store, _Nobody())).close()


class _Nobody:
    """Beside a command that runs no trials."""

    def told(self, what: str, text: str) -> None:
        """Log it."""
        log.warning("%s: %s", what, text)

    def choose(self, question: str, answers: Sequence[str]) -> int:
        """Refuse: see :func:`recover`."""
        del answers
        raise ConfigError(
            "a trial had ended when its process died, and nobody said yet what a session asks then"
            f" ({question}): go on with the trials first"
        )


def require_rows(store: EpisodeStore, rows: Sequence[TrialRecord]) -> None:
    """:class:`StoreCorruptError` where store and table are not of the same trials: the newest
    episode is of none of ``rows``, or the store lacks the episode of the last one that names one.
    """
    ids = store.ids()
    said = episode_of(store, ids[-1]) if ids else None
    if said is not None and said.row > len(rows):
        raise StoreCorruptError(
            f"the newest episode is of trial {said.row}, the table has {len(rows)}: it is an"
            " older copy; restore the newest one"
        )
    row = None if said is None else rows[said.row - 1]
    if ids and (said is None or row is None or said != TrialOf(row.plan, row.slot, said.row)):
        raise StoreCorruptError(
            f"the newest episode, {ids[-1]}, is not of these trials: the store is that of another"
            " plan, or something else was recorded into it; restore its own one"
        )
    last = next((r.episode for r in reversed(rows) if r.episode), "")
    if last and last not in ids:
        raise StoreCorruptError(
            f"the last trial with an episode names {last}, which is not in the store: it is an"
            " older copy, or that of another plan; restore the newest one"
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Successor:
    """Ends the row that a process left started when it died."""

    locked: LockedPlan
    store: EpisodeStore
    rater: Rater

    def __call__(self, row: int, record: TrialRecord) -> TrialRecord:
        """The row as it ends: from its episode, if that was committed; else voided. So is one that
        a stop ended, as nobody knows any more whether that was the policy's doing.
        """
        ids, episode = self.store.ids(), ""
        if ids:
            meta = self.store.meta(ids[-1])
            wanted = TrialOf(self.locked.hash, record.slot, row)
            if episode_of(self.store, ids[-1]) == wanted:
                if meta.outcome.reason != SAFETY_STOP:
                    return self._from_episode(ids[-1], meta, record)
                episode = ids[-1]
        return dataclasses.replace(
            record,
            status="voided",
            reason=UNKNOWN,
            episode=episode,
            note="the process that ran it ended without a word; tried again",
        )

    def _from_episode(self, episode: str, meta: EpisodeMeta, record: TrialRecord) -> TrialRecord:
        found = self.store.read(episode, signals=())
        self.rater.told(
            "recovered", f"slot {record.slot}: the trial had ended when its process died"
        )
        rating = rate(self.locked.plan, self.rater)
        achieved = {n: v for n, v in meta.achieved.items() if n in meta.condition.poses}
        ended = dataclasses.replace(
            record,
            status="finished",
            success=meta.outcome.success,
            score=min(1.0, max(0.0, found.score)),
            final_progress=min(1.0, max(0.0, meta.outcome.progress)),
            return_=float(found.reward.sum()),
            steps=found.steps,
            duration_s=found.duration_s,
            reason=meta.outcome.reason,
            episode=episode,
            note=meta.reset_note,
            achieved=achieved,
            standard_errors={n: e for n, e in record.standard_errors.items() if n in achieved},
            metrics={"recovered": 1.0, **rubric_figures(rating)},
        )
        if self.locked.plan.score != "rubric" or rating is None:
            return ended
        return dataclasses.replace(
            ended, success=rating == 1.0, score=rating, final_progress=rating, reason="rubric"
        )
