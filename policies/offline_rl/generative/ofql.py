"""Learns a one-step policy of average velocities by a critic: OFQL (Nguyen, Yoo 2026).

    Q:   E[ (Q_i(s, A) - (R + g^h m min_i Qbar_i(s', A')))^2 ],   A': the slow policy's
    u:   E[ |u(s, x_t, t, r) - sg[ v + (r - t) (v . grad_x u + d u / d t) ]|^2 ]
         - eta E[ Q_i(s, A) ] / E |Q_j|,    A = z + u(s, z, 0, 1)

with time from 0, noise z, to 1, data; arXiv 2508.13904 writes it the other way round, a = e - u(e,
0, 1). What diffusion Q-learning does in several steps, whose gradient has to pass through all of
them, is one step here: the same network clones behaviour (mean flow, Geng et al. 2025) and is
improved. The critic's term is divided by the mean of |Q| as the paper's alpha is.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from policies.chunks.base import move_towards, randn
from policies.critics.actor_critic import (
    Actor,
    ActorCritic,
    ActorCriticConfig,
    GroupLosses,
    Transition,
)
from policies.nets.shapes import Chunks, Context, Noise
from policies.offline_rl.generative.average_flow import AverageFlow
from policies.offline_rl.generative.following import pull
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class OfqlConfig(ActorCriticConfig):
    """One-step flow Q-learning."""

    # Weight of the critic against behaviour. Published: .001 to .5.
    eta: float = 0.1
    # Share of a batch with r = t, which learns the velocity itself. Published: .5; 0 and 1 are
    # worse.
    still: float = 0.5
    # Mean and deviation of the normal whose sigmoid gives both times (the paper's -0.4 and 1, seen
    # from the data's side).
    time_parameters: tuple[float, float] = (0.4, 1.0)

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if not self.eta >= 0 or not 0.0 <= self.still <= 1.0 or not self.time_parameters[1] > 0:
            raise ConfigError(
                "eta must be at least 0, still in [0, 1], the deviation of time_parameters positive"
            )

    def algorithm(self) -> type[Ofql]:
        """What trains it."""
        return Ofql


class OfqlActor(Actor):
    """The average velocities, of which one is a chunk."""

    def __init__(self, config: OfqlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.flow = AverageFlow(self.observed.size, self.chunk_size, config.width, config.depth)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """One step from noise to a chunk."""
        flat = self.held(self.flow.sample(noise[:, 0].flatten(1), context))
        return flat.unflatten(1, (self.horizon, self.action_size))


class Ofql(ActorCritic[OfqlConfig, OfqlActor]):
    """Trains critic and flow together."""

    name = "ofql"
    actor_class = OfqlActor

    def __init__(self, config: OfqlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.slow = copy.deepcopy(self.actor.flow).requires_grad_(requires_grad=False)

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error; the next chunk is the slow policy's."""
        with torch.no_grad():
            chunk = self.actor.held(self.slow.sample(randn(t.chunk, rng), t.next_seen))
            following = self.target(torch.cat([t.follow, chunk], dim=-1)).amin(dim=0)
            target = self.td_target(t, following)
        return {"critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean()}

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """The identity of average velocities, and the critic's gradient through the one step."""
        config, flow = self.config, self.actor.flow
        cloned = flow.loss(t, rng, t.seen, config.still, config.time_parameters)
        chunk = self.actor.held(flow.sample(randn(t.chunk, rng), t.seen))
        which = int(torch.randint(0, config.members, (1,), generator=rng))
        q = self.critic.steering(t.now.detach(), chunk)
        return {"policy": cloned - pull(q, which, config.eta)}

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """Move the target critic and the slow policy."""
        super().after_update(step, updated)
        move_towards(self.slow, self.actor.flow, self.config.tau)

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"policy": (*self.actor.flow.parameters(), *self.actor.observed.parameters())}
