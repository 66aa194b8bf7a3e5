"""Prepares what is learned from while it is still being collected.

What :class:`~robolearn.training.data.TrainingData` is for data that is there: windows of the
episodes taken in so far (:class:`~robolearn.data.reading.growing.GrowingEpisodes`), shown as the
network sees them, with the chunks that the algorithm proposes there, drawn once for every row.
"""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np

from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.consistency import require_possible_actions
from robolearn.data.reading.corruption import CorruptConfig
from robolearn.data.reading.costs import require_costs
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.growing import GrowingEpisodes
from robolearn.data.reading.proposed import GrowingProposed
from robolearn.data.reading.rewards import informative
from robolearn.data.reading.selection import DataConfig
from robolearn.data.reading.weighting import IdleConfig, QualityConfig
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Algorithm, BatchSpec, Proposing, Replaying
from robolearn.training.batch_loader import Batches
from robolearn.training.collected.replays import Behaved, Replays
from robolearn.training.data import PROPOSED_ROWS
from robolearn.training.seen import Seen

log = logging.getLogger(__name__)


REFUSED = {
    "stores": "practice learns from the one store that it writes; name another one by"
    " --demonstrations or --practised, its share by practice.demonstrations",
    "quality": "how good an episode is beside the others changes with every one that comes; train"
    " on the finished store (kinds: [online]) to weigh them",
    "idle": "what people do between motions is not in what a policy drives; leave it out",
    "corrupt": "it spoils a share of a data set that is whole; train on the finished store with it",
    "text": "a policy that reads text cannot practise yet: nobody says what it is told; train on"
    " the store of its trials instead",
    "held_out": "practice is judged by held-out starts (practice.test_starts), not by episodes that"
    " are kept apart; leave it out",
}
"""Why, and what to do instead."""


def require_growable(config: DataConfig) -> None:
    """:class:`ConfigError` for what cannot be said of data that is still being collected."""
    plain = DataConfig(config.observations)
    refused = {
        "stores": config.stores != plain.stores,
        "quality": config.quality != QualityConfig(),
        "idle": config.idle != IdleConfig(),
        "corrupt": config.corrupt != CorruptConfig(),
        "text": config.text,
        "held_out": bool(config.held_out),
    }
    told = [f"data.{name}: {REFUSED[name]}" for name, said in refused.items() if said]
    if told:
        raise ConfigError("; ".join(told))


class GrowingData:
    """The episodes of ``source`` as ``config`` says, fed to an algorithm by ``batches``.

    Raises :class:`DataError` and :class:`ConfigError` where they do not fit.
    """

    def __init__(
        self,
        config: DataConfig,
        batches: BatchSpec,
        seed: int,
        source: GrowingEpisodes,
        device: str = "cpu",
    ) -> None:
        require_growable(config)
        self._config, self._spec, self._source = config, batches, source
        flat = source.flat
        self.seen = Seen(config, flat.task_space, seed)
        self.dataset = EpisodeDataset(flat, batches, seed, growing=True)
        self._candidates: GrowingProposed | None = None
        # Windows whose rows have been proposed for.
        self._proposed = 0
        self._replays: Replays | None = None
        if batches.decisions is not None:
            self._replays = Replays(self.dataset, source, self.seen, batches.decisions, device)
        self._check(flat, 0)

    def extend(self) -> None:
        """What the source took in since the last call."""
        known = len(self.dataset.flat.ids)
        if len(self._source.ids) > known:
            flat = self._source.flat
            self._check(flat, known)
            self.dataset.extend(flat)

    def propose(self, algorithm: Algorithm, folder: Path) -> None:
        """Draw the chunks that ``algorithm`` learns to choose from at the rows that are new, if it
        does; they are kept under ``folder``.

        Episode by episode, and from the numbers of the rows: it does not matter how many episodes
        are taken in at a time. What a full disk interrupts goes on where it stopped.
        """
        if not (self._spec.proposed and isinstance(algorithm, Proposing)):
            return
        needed = self.dataset.proposed_rows(self._proposed)
        if self._candidates is not None:
            needed = needed[needed > self._candidates.last]
        edges = np.searchsorted(needed, self.dataset.flat.starts)
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            for first in range(begin, end, PROPOSED_ROWS):
                rows = needed[first : min(first + PROPOSED_ROWS, end)]
                chunks = self.seen.proposed(algorithm, self.dataset.histories(rows), rows)
                _, count, horizon, size = chunks.shape
                if self._candidates is None:
                    self._candidates = GrowingProposed((count, horizon, size), folder)
                self._candidates.append(rows, chunks)
        self._proposed = len(self.dataset)
        drawn = self._candidates
        self.dataset.candidates = None if drawn is None else drawn.proposed

    def replay(self, algorithm: Algorithm, behaved: Behaved) -> None:
        """Make decisions of the algorithm's own that are new again, if it learns from these."""
        if self._replays is not None and isinstance(algorithm, Replaying):
            self._replays.take(algorithm, behaved)
            self._replays.judge(algorithm, 0)

    def judge(self, algorithm: Algorithm, number: int) -> None:
        """Say anew what those decisions are worth, if batch ``number`` begins a pass over them."""
        if self._replays is not None and isinstance(algorithm, Replaying):
            self._replays.judge(algorithm, number)

    @property
    def decisions(self) -> int:
        """Rows that windows begin at; of an algorithm that learns from its own decisions, these."""
        return len(self.dataset) if self._replays is None else self._replays.count

    def count_on(self, decisions: int) -> None:
        """So many decisions of its own were learned from before, if it learns from these."""
        if self._replays is not None:
            self._replays.count = decisions

    def batches(self) -> Batches:
        """What is learned from, pictures varied, unless decisions are made again: as they were."""
        return self.seen.batches(self.dataset, varied=self._replays is None)

    def with_rewards(self, stats: DatasetStats) -> DatasetStats:
        """``stats`` of signals, with those of the rewards until now."""
        return dataclasses.replace(stats, reward=self.dataset.reward_stats())

    @property
    def informative(self) -> bool:
        """Whether rewards told anything until now."""
        flat = self.dataset.flat
        return not self._spec.learns_from_rewards or informative(flat.reward, flat.done)

    def _check(self, flat: FlatEpisodes, known: int) -> None:
        """The episodes behind the first ``known``."""
        further = np.arange(known, len(flat.ids), dtype=np.int64)
        require_possible_actions(flat, further, refuse=bool(self._spec.parts))
        if "cost" in self._spec.parts and self._config.cost is None:
            require_costs(flat.cost, None)
