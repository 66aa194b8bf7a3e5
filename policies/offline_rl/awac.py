"""Weighs behaviour by its advantage over the policy: AWAC (Nair et al. 2020).

    Q:   E[ (Q_i(s, A) - (R + g^h m min_i Qbar_i(s', a')))^2 ],   a' ~ pi(s')
    pi:  -E[ min( exp( (min_i Q_i(s, A) - min_i Q_i(s, a)) / l ), 100 ) log pi(A|s) ],   a ~ pi(s)

Equations 12 and 13. Where IQL's weights compare with the value of behaviour, these compare with
what the policy itself would do, and the critic asks it, not the recording, what comes next. The
policy is a Gaussian around a mean within the range of actions, whose deviation is one per number of
the chunk, learned, the same everywhere; its mean is executed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from policies.chunks.base import randn
from policies.critics.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    DeterministicActor,
    GroupLosses,
    Transition,
)
from policies.critics.diagnostics import Figures
from policies.critics.implicit import LARGEST_WEIGHT
from policies.nets.shapes import ChunkFeatures, Context, Rows
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError

LOG_DEVIATION = (-6.0, 0.0)
"""Within which the logarithm of the deviation is held, as in the authors' code [memory]."""


@dataclass(frozen=True, slots=True)
class AwacConfig(ActorCriticConfig):
    """Advantage-weighted actor critic."""

    # Temperature of the weights: small imitates the best alone. Published: .1 (antmaze) to 1.
    temperature: float = 0.3

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if not self.temperature > 0:
            raise ConfigError(f"temperature must be above 0, got {self.temperature}")

    def algorithm(self) -> type[Awac]:
        """What trains it."""
        return Awac


class AwacActor(DeterministicActor):
    """A mean that is executed, and a deviation to explore and to be judged with."""

    def __init__(self, config: AwacConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.log_deviation = nn.Parameter(torch.full((self.chunk_size,), -1.0))

    def draw(self, context: Context, rng: torch.Generator) -> ChunkFeatures:
        """A chunk ``[b, g]`` for every row."""
        mean = self.chunk(context)
        return self.held(mean + self.log_deviation.clamp(*LOG_DEVIATION).exp() * randn(mean, rng))

    def log_density(self, chunk: ChunkFeatures, context: Context) -> ChunkFeatures:
        """Of every number of a chunk ``[b, g]``."""
        log_deviation = self.log_deviation.clamp(*LOG_DEVIATION)
        off = (chunk - self.chunk(context)) / log_deviation.exp()
        return -0.5 * off**2 - log_deviation - 0.5 * math.log(2 * math.pi)


class Awac(ActorCritic[AwacConfig, AwacActor]):
    """Trains critic and actor together."""

    name = "awac"
    actor_class = AwacActor

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error; the next chunk is the policy's."""
        with torch.no_grad():
            chunk = self.actor.draw(t.next_seen, rng)
            q = self.target(torch.cat([t.follow, chunk], dim=-1)).amin(dim=0)
            target = self.td_target(t, q)
        return {"critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean()}

    def weight(self, t: Transition, rng: torch.Generator) -> Rows:
        """How much each recorded chunk is imitated ``[b]``."""
        with torch.no_grad():
            recorded = self.critic.q_values(t.now, t.chunk).amin(dim=0)
            own = self.critic.q_values(t.now, self.actor.draw(t.seen, rng)).amin(dim=0)
            return ((recorded - own) / self.config.temperature).exp().clamp(max=LARGEST_WEIGHT)

    def more_figures(self, t: Transition, rng: torch.Generator) -> Figures:
        """``weights_clipped``: the share of chunks whose weight is the largest there is."""
        return {"weights_clipped": (self.weight(t, rng) >= LARGEST_WEIGHT).float().mean()}

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Behaviour weighted by its advantage."""
        weight = self.weight(t, rng)
        likely = (self.actor.log_density(t.chunk, t.seen) * t.there).sum(dim=1)
        return {"policy": -(weight * likely).mean()}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"policy": tuple(self.actor.parameters())}
