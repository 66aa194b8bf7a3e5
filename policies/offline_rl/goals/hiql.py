"""Reaches far goals by near ones, both from one value: HIQL (Park, Ghosh, Eysenbach, Levine 2023).

    V:     IVL on V(s, phi(s, g)), expectile .7 (policies/critics/goal_values.py)
    high:  -E[ min(exp(b (V(w, g') - V(s, g'))), 100) log pi_h( phi(s, w) | s, g' ) ]
    low:   -E[ min(exp(b (V(s', w) - V(s, w))), 100) log pi_l( A | s, phi(s, w) ) ]

    executed:  A = pi_l(s, pi_h(s, g))

w is what is observed k steps ahead on the way to g' (g' itself where that is nearer, for both
levels; in the published code the low one always sees k steps ahead). The difference of values over
k steps stands out of their noise where that of one step does not. phi has 10 numbers and the length
sqrt(10); it is learned by V alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from policies.critics.actor_critic import Actor, GroupLosses, mlp
from policies.critics.goal_values import (
    GoalValueConfig,
    GoalValues,
    features_of,
    of_length,
    unlikely,
    without_goals,
)
from policies.critics.hindsight import require_goals
from policies.nets.shapes import ChunkFeatures, Chunks, Context, Features, Noise
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Batch, BatchSpec, Observed, with_goals


@dataclass(frozen=True, slots=True)
class HiqlConfig(GoalValueConfig):
    """Hierarchical implicit Q-learning."""

    # Published: .7.
    expectile: float = 0.7
    # Steps to what the high level asks the low one for. Published: 25; manipulation: 10.
    waypoint: int = 10
    # Numbers of a goal's representation.
    representation: int = 10
    # Inverse temperatures of the weights. Published: 3.
    high_beta: float = 3.0
    # The same, of the low one.
    low_beta: float = 3.0

    def __post_init__(self) -> None:
        GoalValueConfig.__post_init__(self)
        if min(self.waypoint, self.representation) < 1:
            raise ConfigError("waypoint and representation must be at least 1")
        if not min(self.high_beta, self.low_beta) >= 0:
            raise ConfigError("high_beta and low_beta must be at least 0")

    def batches(self) -> BatchSpec:
        """Chunked transitions, goals, and what lies on the way."""
        return dataclasses.replace(GoalValueConfig.batches(self), waypoint=self.waypoint)

    def algorithm(self) -> type[Hiql]:
        """What trains it."""
        return Hiql


class HiqlActor(Actor):
    """Two levels; the context is ``[what is seen | where to, as represented]``."""

    config: HiqlConfig

    def __init__(self, config: HiqlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.seen = features_of(config, without_goals(config, spec), stats)
        self.high = mlp(self.observed.size, config.representation, config.width, config.depth)
        self.low = self.net(self.seen.size + config.representation)

    def wanted(self, observations: Observed, rng: torch.Generator | None = None) -> Features:
        """What the high level asks for, ``[b, representation]``, of any length."""
        return self.high(self.observed(observations, rng))

    def told(
        self, observations: Observed, wanted: Features, rng: torch.Generator | None = None
    ) -> Context:
        """The context of the low level."""
        return torch.cat([self.seen(observations, rng), wanted], dim=-1)

    def context(self, observations: Observed, rng: torch.Generator | None = None) -> Context:
        """What is seen, and what the high level makes of the goal."""
        return self.told(observations, of_length(self.wanted(observations, rng)), rng)

    def chunk(self, context: Context) -> ChunkFeatures:
        """``pi_l``, within the range that actions are held in."""
        return self.config.clip * torch.tanh(self.low(context) / self.config.clip)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """The same chunk whatever the noise."""
        del noise
        return self.chunk(context).unflatten(1, (self.horizon, self.action_size))


class Hiql(GoalValues[HiqlConfig, HiqlActor]):
    """Trains V and both levels together."""

    name = "hiql"
    actor_class = HiqlActor

    def represents(self) -> int:
        """Goals come in by phi."""
        return self.config.representation

    def actor_losses(self, batch: Batch, rng: torch.Generator) -> GroupLosses:
        """Ways to a waypoint, and to the goal over one, are imitated by what they gain."""
        way, goals, c = batch.waypoints, batch.actor_goals, self.config
        if way is None or goals is None:
            raise ConfigError("hiql is fed with goals of the actor and what lies on the way")
        pairs = require_goals(c.goals, "hiql").signals
        near = with_goals(batch, {goal: way[source][:, -1] for goal, source in pairs})
        far = with_goals(batch, goals)
        now, then = near.observations, near.next_observations
        if then is None:
            raise ConfigError("hiql is fed with chunked transitions")
        with torch.no_grad():
            step = self.value.represented(now)
        # The far goal, as it is seen from the waypoint.
        from_there = {**way, **{goal: far.observations[goal] for goal, _ in pairs}}
        gain = self.imitated(far.observations, from_there, c.high_beta)
        asked = self.actor.wanted(far.observations, rng)
        missed = 0.5 * ((asked - step) ** 2).sum(dim=1)
        size = batch.actions.shape[-1]
        done = self.actor.codec.encode(batch.actions, now).flatten(1)
        there = batch.action_mask.repeat_interleave(size, dim=1).float()
        error = unlikely(self.actor.chunk(self.actor.told(now, step, rng)), done, there)
        return {
            "high": (gain * missed).mean(),
            "low": (self.imitated(now, then, c.low_beta) * error).mean(),
        }

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One of each level."""
        high = nn.ModuleList([self.actor.observed, self.actor.high])
        low = nn.ModuleList([self.actor.seen, self.actor.low])
        return {"high": tuple(high.parameters()), "low": tuple(low.parameters())}
