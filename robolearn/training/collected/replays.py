"""Makes the decisions of the last round again, for algorithms that learn from their own.

    new episodes --> driven by which version, from which seed (provenance)
                          |  weights of that version, observations as they are read back
                          v
    algorithm.replay --> what the sampler went through, and how dense that was then
    algorithm.values --> advantages, once in every pass over them          (data/decisions)

Episodes of the parent, of versions that are gone, and of other practices are passed over.
"""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from robolearn.data.decisions import (
    Decided,
    DecidedFlags,
    DecidedRows,
    DecidedValues,
    Driven,
    advantages,
)
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.growing import GrowingEpisodes
from robolearn.errors import DataError
from robolearn.learning import Batch, DecisionSpec, Replayed, Replaying, Weights
from robolearn.training.batch_loader import on_device
from robolearn.training.seen import Seen

BLOCK_ROWS = 512
"""Decisions that are made again, or judged, at a time."""
TOLERANCE = 1e-3
"""What a chunk that is made again may differ by, in normalised actions: rounding."""
Behaved = Callable[[Driven], Weights | None]
"""The weights that somebody drove by; None where they are nobody's of this practice."""


@dataclass(frozen=True, slots=True)
class _Round:
    """Decisions at ``rows``, which ascend, in blocks; ``goes_on``: the next one comes right behind
    it.
    """

    rows: DecidedRows
    blocks: tuple[Batch, ...]
    replayed: tuple[Replayed, ...]
    goes_on: DecidedFlags


class Replays:
    """The decisions that ``dataset`` learns from, of episodes that ``source`` takes in from now on.

    ``count``: how many there were until now.
    """

    def __init__(
        self,
        dataset: EpisodeDataset,
        source: GrowingEpisodes,
        seen: Seen,
        spec: DecisionSpec,
        device: str,
    ) -> None:
        self._dataset, self._source, self._seen = dataset, source, seen
        self._spec, self._device, self._looked = spec, device, len(dataset)
        self._round: _Round | None = None
        self._judged = -1
        self.count = 0

    def take(self, algorithm: Replaying, behaved: Behaved) -> None:
        """The decisions of the windows that are new, if some are the algorithm's own.

        Errors: :class:`DataError` where what comes out is not what was executed.
        """
        windows = self._dataset.windows[self._looked :]
        self._looked = len(self._dataset)
        starts = self._dataset.flat.starts
        episodes = np.searchsorted(starts, windows, side="right") - 1
        chosen: list[int] = np.unique(episodes).tolist()
        found: list[tuple[DecidedRows, Batch, Replayed]] = []
        self._dataset.decided = None
        for weights, theirs in self._own(chosen, behaved):
            rows = windows[np.isin(episodes, theirs)]
            for begin in range(0, len(rows), BLOCK_ROWS):
                block = rows[begin : begin + BLOCK_ROWS]
                found.append((block, *self._replayed(algorithm, weights, block)))
        if found:
            self._round = self._joined(found)
            self.count += len(self._round.rows)
        self._judged = -1

    def judge(self, algorithm: Replaying, number: int) -> None:
        """Say what the decisions are worth, by values as they are before batch ``number``; once in
        every pass over them.
        """
        last = self._round
        if last is None:
            return
        if self._judged >= 0 and self._dataset.passed(number) == self._judged:
            return
        values, following = (
            self._values(algorithm, last, follows=follows) for follows in (False, True)
        )
        reward, bootstrap = (
            np.concatenate([np.asarray(getattr(b, name)) for b in last.blocks])
            for name in ("reward", "bootstrap")
        )
        gained = advantages(values, following, reward, bootstrap, last.goes_on, self._spec.trace)
        self._dataset.decided = Decided(
            last.rows,
            np.asarray(torch.cat([r.chain for r in last.replayed]), dtype=np.float32),
            np.asarray(torch.cat([r.log_prob for r in last.replayed]), dtype=np.float32),
            gained,
            gained + values,
        )
        self._judged = self._dataset.passed(number)

    def _own(self, episodes: list[int], behaved: Behaved) -> list[tuple[Weights, list[int]]]:
        """Which of ``episodes`` were driven by which weights; the others are left out."""
        by: dict[tuple[int, str], tuple[Weights | None, list[int]]] = {}
        for episode in episodes:
            driven = self._source.driven[episode]
            if driven is None or driven.version is None:
                continue
            key = (driven.version, driven.policy_hash)
            if key not in by:
                by[key] = (behaved(driven), [])
            by[key][1].append(episode)
        return [(weights, theirs) for weights, theirs in by.values() if weights is not None]

    def _replayed(
        self, algorithm: Replaying, weights: Weights, rows: DecidedRows
    ) -> tuple[Batch, Replayed]:
        batch = self._seen.shown(self._dataset.gather(rows))
        made = algorithm.replay(weights, on_device(batch, self._device), self._seeds(rows))
        made = Replayed(*(getattr(made, f.name).cpu() for f in dataclasses.fields(made)))
        worst = float(made.deviation.median())
        if not worst <= TOLERANCE:
            raise DataError(
                f"decisions that are made again differ from what was executed by {worst:.3g} of a"
                f" normalised action (expected at most {TOLERANCE:g}): what was recorded is not"
                " what the policy saw or did. Leave out data.latency_s and whatever else shows or"
                " executes something else"
            )
        return batch, made

    def _seeds(self, rows: DecidedRows) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        starts = self._dataset.flat.starts
        episodes = np.searchsorted(starts, rows, side="right") - 1
        seeds = np.zeros(len(rows), dtype=np.int64)
        found: list[int] = np.unique(episodes).tolist()
        for episode in found:
            driven, here = self._source.driven[episode], episodes == episode
            if driven is not None:
                seeds[here] = driven.seeds(rows[here] - starts[episode])
        return seeds

    def _joined(self, found: list[tuple[DecidedRows, Batch, Replayed]]) -> _Round:
        """In the order of their rows."""
        found = sorted(found, key=lambda block: int(block[0][0]))
        rows = np.concatenate([block[0] for block in found])
        starts = self._dataset.flat.starts
        episodes = np.searchsorted(starts, rows, side="right") - 1
        goes_on = np.zeros(len(rows), dtype=np.bool_)
        goes_on[:-1] = (np.diff(rows) == self._dataset.spec.stride) & (np.diff(episodes) == 0)
        return _Round(rows, tuple(b[1] for b in found), tuple(b[2] for b in found), goes_on)

    def _values(self, algorithm: Replaying, last: _Round, *, follows: bool) -> DecidedValues:
        found: list[DecidedValues] = []
        for block in last.blocks:
            shown = block.next_observations if follows else block.observations
            with torch.no_grad():
                moved = {k: v.to(self._device) for k, v in (shown or {}).items()}
                found.append(np.asarray(algorithm.values(moved).cpu(), dtype=np.float32))
        return np.concatenate(found)
