"""Judges episodes one by one: those of a store, or the one that was recorded just now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hardware.supervisor.link import Cause
from robolearn.data.episode import Episode
from robolearn.data.insight.episode_measures import EpisodeMeasures
from robolearn.data.insight.verdict import USUAL, Thresholds, Verdict, judge_episode, measure_for
from robolearn.data.store.annotations import Annotation, default_author
from robolearn.data.store.storage import ObjectPath
from robolearn.data.store.store import EpisodeStore
from robolearn.data.view.cameras import read_without_pictures

CAUSES = {int(cause): cause.name.lower() for cause in Cause}
COMPARED = 100
"""Of the earlier episodes the newest so many: what is usual changes, and reading takes time."""


@dataclass(frozen=True, slots=True)
class StoreQuality:
    """One verdict for every episode that was asked for, in the order of the store."""

    store: str
    verdicts: tuple[Verdict, ...]

    @property
    def doubtful(self) -> tuple[str, ...]:
        """Ids of the episodes with which something is wrong."""
        return tuple(v.measures.id for v in self.verdicts if not v.sound)


class QualityWatch:
    """Judges the episodes of a session as they end, against those that the store had before.

    ``judge(recorder.waiting())`` while the person decides, ``keep(verdict)`` once it is saved.
    """

    def __init__(self, store: EpisodeStore, limits: Thresholds = USUAL) -> None:
        self._limits = limits
        ids = store.ids()[-COMPARED:]
        self._earlier = [measure_for(read_without_pictures(store, i), limits) for i in ids]

    def judge(self, episode: Episode) -> Verdict:
        """What is wrong with an episode that ended just now."""
        return judge_episode(
            measure_for(episode, self._limits), self._earlier, self._limits, CAUSES
        )

    def keep(self, verdict: Verdict) -> None:
        """It counts as an earlier one from now on."""
        self._earlier = [*self._earlier, verdict.measures][-COMPARED:]


def judge_quality(
    path: str | Path | ObjectPath,
    limits: Thresholds = USUAL,
    *,
    episodes: Sequence[str] = (),
    on_judged: Callable[[int, int], None] | None = None,
) -> StoreQuality:
    """Judge ``episodes`` (all: none named) of a store, each against those before it.

    ``on_judged``: told after every episode how many are judged, and of how many. Errors:
    :class:`DataError` for an id that the store does not have.
    """
    store = EpisodeStore.open(path)
    ids = store.ids()
    for name in episodes:
        store.info(name)
    wanted = set(episodes) or set(ids)
    earlier: list[EpisodeMeasures] = []
    found: list[Verdict] = []
    for k, name in enumerate(ids):
        if not any(later in wanted for later in ids[k : k + COMPARED + 1]):
            continue
        measured = measure_for(read_without_pictures(store, name), limits)
        if name in wanted:
            found.append(judge_episode(measured, earlier, limits, CAUSES))
            if on_judged is not None:
                on_judged(len(found), len(wanted))
        earlier = [*earlier, measured][-COMPARED:]
    return StoreQuality(str(store.path), tuple(found))


def label_doubtful(
    path: str | Path | ObjectPath, quality: StoreQuality, label: str
) -> tuple[str, ...]:
    """Give ``label`` to the doubtful episodes that lack it; returns them. ``data.without_labels``
    of a training, or ``data filter --without-label``, leaves them out.
    """
    store = EpisodeStore.open(path)
    new = tuple(i for i in quality.doubtful if label not in store.info(i).labels)
    if new:
        with store.writer() as writer:
            writer.annotate(Annotation(new, default_author(), add_labels=(label,)))
    return new
