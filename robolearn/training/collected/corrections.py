r"""Draws what a person did while taking over from a policy, as part of what people showed.

    batch   own practice, whoever drove | corrections | demonstrations
                                          \--- the share of practice.demonstrations ---/

A step that a person drove is learned from twice: as part of practice, and as a demonstration (Luo
et al. 2024, HIL-SERL: both buffers). How much of the share is corrections follows from how many
there are beside the demonstrations; where nothing was shown and nobody has taken over yet it is
practice like the rest.
"""

# The stubs of numpy leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from torch import Tensor

from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.learning import Batch
from robolearn.seeding import child_seed
from robolearn.shapes import Index
from robolearn.training.batch_loader import Batches, joined


class Corrections:
    """Of ``size`` samples those that begin where a person had taken over, drawn among them and
    ``others`` windows of demonstrations alike. Batch ``step`` is a pure function of (seed,
    ``step``, what was taken in).
    """

    def __init__(self, dataset: EpisodeDataset, size: int, others: int, seed: int) -> None:
        self._dataset, self._size, self._others, self._seed = dataset, size, others, seed
        self._looked_at = -1
        self._corrected: Index = np.zeros(0, dtype=np.int64)

    @property
    def windows(self) -> Index:
        """Rows that a correction begins at; of all, where there is nothing else to draw from."""
        if self._looked_at != len(self._dataset):
            rows = self._dataset.windows
            self._corrected = rows[self._dataset.flat.intervention[rows]]
            self._looked_at = len(self._dataset)
        if not self._others and not self._corrected.size:
            return self._dataset.windows
        return self._corrected

    def count(self, step: int) -> int:
        """How many samples of batch ``step`` are corrections."""
        known = len(self.windows)
        rng = np.random.default_rng(child_seed(self._seed, "corrections", step))
        return int(rng.binomial(self._size, known / (known + self._others)))

    def batch(self, step: int) -> Batch:
        """These."""
        rng = np.random.default_rng(child_seed(self._seed, "corrected", step))
        rows = self.windows
        chosen = rows[rng.integers(0, len(rows), self.count(step))]
        return self._dataset.drawn(chosen, step)


class WithCorrections:
    """``own`` batches, and behind them those of ``drawn`` as they are ``seen``."""

    def __init__(self, own: Batches, drawn: Corrections, seen: Batches) -> None:
        self._own, self._drawn, self._seen = own, drawn, seen

    def batch(self, step: int) -> Batch:
        """One batch of each, as one."""
        own = self._own.batch(step)
        return joined(own, self._seen.batch(step)) if self._drawn.count(step) else own


class BesideCorrections:
    """Of ``demonstrated`` batches what ``drawn`` leaves of the share."""

    def __init__(self, demonstrated: Batches, drawn: Corrections, size: int) -> None:
        self._demonstrated, self._drawn, self._size = demonstrated, drawn, size

    def batch(self, step: int) -> Batch:
        """The first samples of one batch."""
        found = self._demonstrated.batch(step)
        return shortened(found, self._size - self._drawn.count(step))


def shortened(batch: Batch, count: int) -> Batch:
    """The first ``count`` samples."""

    def first(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value[:count]
        if isinstance(value, Mapping):
            signals = cast("Mapping[str, Tensor]", value)
            return {name: v[:count] for name, v in signals.items()}
        return value

    fields = {f.name: first(getattr(batch, f.name)) for f in dataclasses.fields(batch)}
    return dataclasses.replace(batch, **fields)
