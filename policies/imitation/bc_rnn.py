"""Clones behaviour by a recurrent network with a mixture of Gaussians (Mandlekar et al. 2021).

    h = LSTM(o_{t-n+1} .. o_t),   p(a | h) = sum_k w_k(h) N(a; m_k(h), s_k(h)),   loss = -log p(a)

The LSTM runs over the observed history of each request, so that the policy has no hidden state of
its own; one component of the mixture is one whole chunk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from policies.chunks.base import (
    ChunkAlgorithm,
    ChunkConfig,
    ChunkModel,
    EncodedBatch,
)
from policies.nets.shapes import (
    ChunkMask,
    Chunks,
    ComponentChunks,
    ComponentRows,
    Context,
    Noise,
    Rows,
)
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses


@dataclass(frozen=True, slots=True)
class BcRnnConfig(ChunkConfig):
    """Behaviour cloning, LSTM with a mixture head."""

    # Observations at the control rate that the LSTM reads, newest last.
    n_obs: int = 10
    # LSTM layers.
    blocks: int = 2
    # Components of the mixture.
    components: int = 5
    # Smallest standard deviation of normalised actions in training.
    min_std: float = 0.01
    # Share of the learned deviation that samples have; 0: means of a component that is drawn.
    spread: float = 0.0

    def __post_init__(self) -> None:
        ChunkConfig.__post_init__(self)
        if self.components < 1 or not self.min_std > 0 or not self.spread >= 0:
            raise ConfigError("components must be at least 1, min_std positive, spread >= 0")

    def algorithm(self) -> type[BcRnnAlgorithm]:
        """What trains it."""
        return BcRnnAlgorithm


@dataclass(frozen=True, slots=True)
class Mixture:
    """``log_weight [b, k]``, ``mean`` and ``std`` ``[b, k, h, a]``."""

    log_weight: ComponentRows
    mean: ComponentChunks
    std: ComponentChunks

    def log_density(self, actions: Chunks, weight: ChunkMask) -> Rows:
        """Log density ``[b]`` of the actions ``[b, h, a]`` that count ``[b, h, 1]``."""
        z = (actions[:, None] - self.mean) / self.std
        each = -0.5 * z**2 - self.std.log() - 0.5 * math.log(2 * math.pi)
        joint = (each * weight[:, None]).sum(dim=(2, 3))
        return torch.logsumexp(self.log_weight + joint, dim=1)


class BcRnnModel(ChunkModel):
    """History to a mixture over chunks."""

    # One array for the actions, one whose first number chooses the component.
    draws = 2

    def __init__(self, config: BcRnnConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.components, self.min_std = config.components, config.min_std
        self.spread = config.spread
        self.lstm = nn.LSTM(
            self.flat_size // spec.n_obs, config.width, config.blocks, batch_first=True
        )
        chunk = self.horizon * self.action_size
        self.head = nn.Linear(config.width, config.components * (1 + 2 * chunk))

    def mixture(self, context: Context) -> Mixture:
        """What may be done after the observed history."""
        flat, seen = self.split_context(context)
        hidden = self.lstm(self.sequence(flat))[0][:, -1] + seen
        parts = self.head(hidden).view(flat.shape[0], self.components, -1)
        shape = (flat.shape[0], self.components, self.horizon, self.action_size)
        mean, spread = parts[..., 1:].chunk(2, dim=-1)
        return Mixture(
            parts[..., 0].log_softmax(dim=-1),
            torch.tanh(mean).view(shape) * 1.5,
            functional.softplus(spread).view(shape) + self.min_std,
        )

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """Draw a component, then actions around its mean."""
        found = self.mixture(context)
        # The normal distribution function, written so that it can be exported.
        chance = 0.5 * (1 + torch.erf(noise[:, 1, 0, :1] * math.sqrt(0.5)))
        below = found.log_weight.exp().cumsum(dim=1) < chance
        chosen = below.sum(dim=1).clamp_max(self.components - 1)
        rows = torch.arange(chosen.shape[0], device=chosen.device)
        mean, std = found.mean[rows, chosen], found.std[rows, chosen]
        return mean + self.spread * std * noise[:, 0]


class BcRnnAlgorithm(ChunkAlgorithm[BcRnnConfig, BcRnnModel]):
    """Trains the mixture by maximum likelihood."""

    name = "bc_rnn"
    model_class = BcRnnModel

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Negative log likelihood per number that counts."""
        density = self.model.mixture(encoded.context).log_density(encoded.actions, encoded.weight)
        count = encoded.weight.expand_as(encoded.actions).sum()
        return Losses({"bc_rnn": -density.sum() / count}, {})
