"""Draws chunks from a Gaussian that tanh squashes into the range that actions are held in.

    u ~ N(mean(s), deviation(s)^2),   A = c tanh(u)
    log pi(A|s) = sum_j [ log N(u_j) - log c - log(1 - tanh(u_j)^2) ]

Haarnoja et al. 2018, appendix C. The mean is executed: c tanh(mean).
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from policies.chunks.base import randn
from policies.critics.actor_critic import Actor, ActorCriticConfig, mlp
from policies.nets.shapes import ChunkFeatures, Chunks, Context, Noise, Rows
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats

LOG_DEVIATION = (-5.0, 2.0)
"""Within which the logarithm of the deviation is held; -20 to 2 in SAC's own code [memory]."""


class SquashedActor(Actor):
    """A mean and a deviation for every number of a chunk."""

    def __init__(self, config: ActorCriticConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        size = self.observed.size
        self.policy = mlp(size, 2 * self.chunk_size, config.width, config.depth)

    def draw(self, context: Context, rng: torch.Generator) -> tuple[ChunkFeatures, Rows]:
        """A chunk ``[b, g]`` for every row, and its log density ``[b]``; differentiable."""
        mean, log_deviation = self.policy(context).chunk(2, dim=-1)
        log_deviation = log_deviation.clamp(*LOG_DEVIATION)
        noise = randn(mean, rng)
        u = mean + log_deviation.exp() * noise
        gaussian = -0.5 * noise**2 - log_deviation - 0.5 * math.log(2 * math.pi)
        # log(1 - tanh(u)^2), without a difference of nearly equal numbers.
        squash = 2.0 * (math.log(2.0) - u - functional.softplus(-2.0 * u))
        clip = self.config.clip
        return clip * torch.tanh(u), (gaussian - squash - math.log(clip)).sum(dim=-1)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """The mean, whatever the noise."""
        del noise
        mean = self.policy(context).chunk(2, dim=-1)[0]
        chunk = self.config.clip * torch.tanh(mean)
        return chunk.unflatten(1, (self.horizon, self.action_size))
