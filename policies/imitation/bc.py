"""Clones behaviour by regression: a residual MLP from observations to one chunk.

    loss = |net(o) - a|^2   or   |net(o) - a|

The baseline: where demonstrations do several things at one observation, it does their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from policies.chunks.base import (
    ChunkAlgorithm,
    ChunkConfig,
    ChunkModel,
    EncodedBatch,
)
from policies.nets.residual_mlp import ResidualMLP
from policies.nets.shapes import Chunks, Context, Noise
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.learning import Losses


@dataclass(frozen=True, slots=True)
class BcConfig(ChunkConfig):
    """Behaviour cloning."""

    # squared: the mean of the demonstrations; absolute: their median.
    loss: Literal["squared", "absolute"] = "squared"

    def algorithm(self) -> type[BcAlgorithm]:
        """What trains it."""
        return BcAlgorithm


class BcModel(ChunkModel):
    """Observations to a chunk."""

    def __init__(self, config: BcConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        outputs = self.horizon * self.action_size
        self.net = ResidualMLP(
            self.flat_size, config.width, outputs, config.width, config.blocks, config.expansion
        )

    def chunk(self, context: Context) -> Chunks:
        """Normalised chunks ``[b, h, a]``."""
        flat, hidden = self.split_context(context)
        return self.net(flat, hidden).view(-1, self.horizon, self.action_size)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """The same chunk whatever the noise."""
        del noise
        return self.chunk(context)


class BcAlgorithm(ChunkAlgorithm[BcConfig, BcModel]):
    """Trains the regression."""

    name = "bc"
    model_class = BcModel

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """The error of the chunk."""
        error = self.model.chunk(encoded.context) - encoded.actions
        values = error**2 if self.config.loss == "squared" else error.abs()
        return Losses({"bc": encoded.mean(values)}, {})
