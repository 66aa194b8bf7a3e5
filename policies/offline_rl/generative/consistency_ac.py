"""Learns a consistency policy by a critic: Consistency-AC (Ding, Jin 2024, arXiv 2309.16984).

    f(s, x, sigma) = c_skip x + c_out net(s, c_in x, sigma),   f(s, x, eps) = x
    Q:   E[ (Q_i(s, A) - (R + g^h m min_i Qbar_i(s', A')))^2 ],   A': the slow policy's
    pi:  E[ |f(s, A + s_n+1 z, s_n+1) - fbar(s, A + s_n z, s_n)|^2 ] - eta E[ Q_i(s, A_0) ] / |Q_j|
    s_n = (eps^(1/r) + (n - 1) / (N - 1) (T^(1/r) - eps^(1/r)))^r,   r = 7, n = 1 .. N

f goes from any level of noise to the end of the path at once. Its two neighbours on a path, by the
boundaries s_n of Karras et al. 2022, have to agree about that end, and at eps it is where they are
(Song et al. 2023, algorithm 3); fbar is the slow policy, held fixed. N grows while training goes on
(Song et al. 2023, appendix C): few neighbours far apart first, which are quickly learned from.

    N(k) = ceil( sqrt( k / K ((N_1 + 1)^2 - N_0^2) + N_0^2 ) - 1 ) + 1, at most N_1

A sample is f at T, and in every further step f again after new noise brought it back to a lower
boundary: A <- f(s, A + sqrt(s_n^2 - eps^2) z, s_n); the critic is followed through all of them. The
critic's term, the slow policy and the choice among samples are those of ``following.py``.

Not checked against the authors' code: how often their slow policy moves and from when on [memory:
as in diffusion Q-learning], and how they weigh levels (``lambda`` of the paper); here all weigh
alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from policies.chunks.base import randn
from policies.critics.actor_critic import Transition, mlp
from policies.critics.judged_actor import Generator
from policies.nets.preconditioning import denoiser_scales
from policies.nets.residual_mlp import time_features
from policies.nets.shapes import (
    ChunkFeatures,
    Context,
    Features,
    Rows,
    SampleNoise,
    Scalar,
    StepTimes,
)
from policies.offline_rl.generative.following import (
    FollowingActor,
    FollowingConfig,
    FollowingCritic,
)
from robolearn.errors import ConfigError

CLOCK = 16
"""Numbers that tell the network the level of noise."""
FASTEST = 64.0
POWER = 7.0
"""r of the boundaries (Karras et al. 2022)."""


@dataclass(frozen=True, slots=True)
class ConsistencyAcConfig(FollowingConfig):
    """Consistency actor-critic. Published: ``eta`` .1 to 1 (locomotion), .01 (antmaze-umaze)."""

    # Calls per sample, all of which are learned through. Published: 2 to 5.
    sampler_steps: int = 2
    # Least and largest level of noise. Published: .002 and 80.
    sigma: tuple[float, float] = (0.002, 80.0)
    # Standard deviation of normalised actions that the scales assume. Published: .5.
    action_std: float = 0.5
    # Boundaries at first and in the end. Published: 2 and 150.
    boundaries: tuple[int, int] = (2, 150)
    # Updates until there are that many. Published: all of a training's.
    growth: int = 100_000
    # The slow policy, which says where paths end, too, moves with every update.
    slow_every: int = 1
    # It moves from the first update on: the end of a path is not learned from one that knows none.
    slow_after: int = 0

    def __post_init__(self) -> None:
        FollowingConfig.__post_init__(self)
        if min(self.sampler_steps, self.growth) < 1 or not self.action_std > 0:
            raise ConfigError("sampler_steps and growth must be at least 1, action_std positive")
        if not 0.0 < self.sigma[0] < self.sigma[1]:
            raise ConfigError(f"sigma must rise from above 0, got {self.sigma}")
        if not 2 <= self.boundaries[0] <= self.boundaries[1]:
            raise ConfigError(f"boundaries must grow from at least 2, got {self.boundaries}")

    def algorithm(self) -> type[ConsistencyAc]:
        """What trains it."""
        return ConsistencyAc


def boundary_count(step: int, boundaries: tuple[int, int], growth: int) -> int:
    """``N(k)``."""
    first, last = boundaries
    share = min(1.0, step / growth)
    grown = math.sqrt(share * ((last + 1) ** 2 - first**2) + first**2)
    return min(last, math.ceil(grown - 1.0) + 1)


class ConsistencyPaths(Generator):
    """Where the path through a noisy flat chunk ``[b, g]`` ends."""

    def __init__(self, context: int, chunk: int, config: ConsistencyAcConfig) -> None:
        super().__init__()
        self.steps, self.clip = config.sampler_steps, config.clip
        self.least, self.most, self.std = *config.sigma, config.action_std
        self.net = mlp(context + chunk + CLOCK, chunk, config.width, config.depth)

    def boundaries(self, count: int) -> StepTimes:
        """``count`` levels of noise, rising from the least to the largest."""
        low, high = self.least ** (1 / POWER), self.most ** (1 / POWER)
        device = next(self.parameters()).device
        return torch.linspace(low, high, count, device=device) ** POWER

    def end(self, x: ChunkFeatures, sigma: Rows, context: Context) -> ChunkFeatures:
        """``f`` at the levels ``sigma [b]``."""
        c_in, c_skip, c_out = denoiser_scales(sigma[:, None], self.std, self.least)
        share = (sigma / self.least).log() / math.log(self.most / self.least)
        clock = time_features(share, CLOCK, FASTEST)
        return c_skip * x + c_out * self.net(torch.cat([context, c_in * x, clock], dim=-1))

    def loss(
        self,
        t: Transition,
        rng: torch.Generator,
        context: Context,
        slow: ConsistencyPaths,
        count: int,
    ) -> Scalar:
        """How far neighbours of ``count`` boundaries are apart, ``slow`` at the lower of them; over
        the actions that were done.
        """
        sigma = self.boundaries(count)
        noise = randn(t.chunk, rng)
        lower = torch.randint(0, count - 1, (len(noise),), generator=rng).to(noise.device)
        low, high = sigma[lower], sigma[lower + 1]
        with torch.no_grad():
            wanted = slow.end(t.chunk + low[:, None] * noise, low, context)
        found = self.end(t.chunk + high[:, None] * noise, high, context)
        return t.mean((found - wanted) ** 2)

    def sample(self, noise: SampleNoise, context: Context) -> ChunkFeatures:
        """To the end from the largest level, and again from lower and lower ones."""
        levels = self.boundaries(self.steps + 1).flip(0)[:-1]
        x = noise.new_zeros(noise[:, 0].shape)
        for k, sigma in enumerate(levels):
            spread = sigma if k == 0 else (sigma**2 - self.least**2).sqrt()
            x = self.end(x + spread * noise[:, k], sigma.expand(len(x)), context)
            x = x.clamp(-self.clip, self.clip)
        return x


class ConsistencyAcActor(FollowingActor[ConsistencyPaths]):
    """Draws by a consistency function."""

    config: ConsistencyAcConfig

    def untrained(self) -> ConsistencyPaths:
        """The consistency function."""
        return ConsistencyPaths(self.observed.size, self.chunk_size, self.config)


class ConsistencyAc(FollowingCritic[ConsistencyAcConfig, ConsistencyAcActor]):
    """Trains critic and consistency function together."""

    name = "consistency_ac"
    actor_class = ConsistencyAcActor

    def cloned(self, t: Transition, rng: torch.Generator, seen: Features) -> Scalar:
        """Agreement of neighbours about the end of their path."""
        count = boundary_count(t.step, self.config.boundaries, self.config.growth)
        return self.actor.generator.loss(t, rng, seen, self.slow, count)
