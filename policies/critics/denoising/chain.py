r"""Makes of a sampler a chain of Gaussians, so that what it drew has a density.

    x_0 ~ N(0, 1)
    x_{k+1} = mean_k(x_k, o) + deviation_k(x_k, o) e_k,    k = 0 .. K-1,    chunk: x_K

A request's seed gives ``x_0`` and every ``e_k``: whoever has the seed and the weights goes through
the same chain again. The means are the network's own steps, so what is learned is the parent's
network; without the noise it is a policy of the parent's kind.
"""

from __future__ import annotations

import math
from abc import abstractmethod

import torch

from policies.chunks.base import ChunkModel
from policies.chunks.policy import ChunkSampler
from policies.nets.shapes import ChainDensities, Chains, Chunks, Context, Noise
from robolearn.learning import Observed


class Chain(ChunkSampler):
    """``model``, step by step; an algorithm's file says what its steps are."""

    def __init__(self, model: ChunkModel, steps: int) -> None:
        super().__init__()
        self.model, self.steps, self.draws = model, steps, steps + 1
        self.horizon, self.action_size = model.horizon, model.action_size
        # Not as a module of its own: the model keeps it, once.
        self.__dict__["codec"] = model.codec

    @abstractmethod
    def step(self, x: Chunks, number: int, context: Context) -> tuple[Chunks, Chunks]:
        """Mean and deviation of what follows ``x [b, h, a]`` in step ``number``."""

    def context(self, observations: Observed, rng: torch.Generator | None = None) -> Context:
        """The model's; never with noise or crops, which would make other chains."""
        del rng
        return self.model.context(observations)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """The end of the chain."""
        return self.run(noise, context)[:, -1]

    def run(self, noise: Noise, context: Context) -> Chains:
        """All of it ``[b, K + 1, h, a]`` from ``noise [b, K + 1, h, a]``."""
        states = [noise[:, 0]]
        for number in range(self.steps):
            mean, deviation = self.step(states[-1], number, context)
            states.append(mean + deviation * noise[:, number + 1])
        return torch.stack(states, dim=1)

    def density(self, chain: Chains, context: Context) -> tuple[ChainDensities, ChainDensities]:
        """Logarithm of the density of every number that a chain drew, and of its deviation
        ``[b, K, h, a]``.
        """
        found, spread = [], []
        for number in range(self.steps):
            mean, deviation = self.step(chain[:, number], number, context)
            scale = deviation.log()
            drawn = (chain[:, number + 1] - mean) / deviation
            found.append(-0.5 * drawn**2 - scale - 0.5 * math.log(2 * math.pi))
            spread.append(scale)
        return torch.stack(found, dim=1), torch.stack(spread, dim=1)
