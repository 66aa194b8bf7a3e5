"""Shows what was recorded as a network sees it, and asks an algorithm what it would do there."""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from robolearn.contracts import PolicySpec
from robolearn.data.reading.proposed import Shown
from robolearn.data.reading.selection import DataConfig
from robolearn.learning import Batch, Observed, Proposing
from robolearn.representation import Representation
from robolearn.seeding import child_seed
from robolearn.shapes import Index
from robolearn.spec import TaskSpace
from robolearn.training.batch_loader import Batches, Represented, represented
from robolearn.training.pictures import Augmented


class Seen:
    """``space``: the signals in the world's own terms; ``representation``: as the network sees
    them, by ``config``.
    """

    def __init__(self, config: DataConfig, space: TaskSpace, seed: int) -> None:
        self._config, self._seed = config, seed
        self.space = space
        self.representation = Representation(config.representation, space)

    def batches(self, dataset: Batches, *, varied: bool) -> Batches:
        """The batches of ``dataset``; pictures ``varied`` for training, or as they are."""
        batches = dataset
        if varied and not self._config.pictures.plain:
            batches = Augmented(batches, self._config.pictures, self._seed)
        plain = self._config.representation.plain
        return batches if plain else Represented(batches, self.representation)

    def shown(self, batch: Batch) -> Batch:
        """``batch`` as the network sees it, pictures as they are."""
        plain = self._config.representation.plain
        return batch if plain else represented(batch, self.representation)

    def proposed(self, algorithm: Proposing, histories: Observed, rows: Index) -> Shown:
        """Chunks ``[b, k, horizon, action]`` at ``histories [b, n_obs, *shape]``, which are those
        of ``rows [b]``: each is drawn by the number of its row.
        """
        if not self._config.representation.plain:
            arrays: Mapping[str, Any] = {k: v.numpy() for k, v in histories.items()}
            shown = self.representation.observe(arrays)
            histories = {k: torch.from_numpy(v) for k, v in shown.items()}
        seeds = np.array([child_seed(self._seed, "propose", int(row)) for row in rows])
        return np.asarray(algorithm.propose(histories, seeds).cpu(), dtype=np.float32)

    def observed_by(self, spec: PolicySpec, parent: PolicySpec | None = None) -> PolicySpec:
        """A policy's spec in the world's own signals: of those the data has, what it observes.

        The data may have signals that the policy learns from without observing them. ``parent``:
        what the policy that it builds on observes; without a picture in the data it sees through
        that one's, which tell it what is recorded.
        """
        kept = {s.name for s in spec.task_space.observations}
        observed = tuple(s for s in self.space.observations if s.name in kept)
        theirs = () if parent is None else parent.task_space.observations
        pictures = any(s.is_image for s in self.space.observations)
        if not pictures and any(s.is_image for s in theirs):
            observed = theirs
        space = dataclasses.replace(self.space, observations=observed)
        return dataclasses.replace(spec, task_space=space)
