"""Trains a one-step policy between a cloned flow and a critic: FQL (Park, Li, Levine 2025).

    Q:   E[ (Q_i(s, A) - (R + g^h m mean_i Qbar_i(s', mu(s', z'))))^2 ]                 equation 6
    v:   E[ |v(s, (1 - t) z + t A, t) - (A - z)|^2 ]           clones behaviour         equation 5
    mu:  alpha E[ |mu(s, z) - euler(v; s, z)|^2 ] - E[ mean_i Q_i(s, mu(s, z)) ]        equation 8

Nothing is differentiated through the flow's steps, and acting is one step. With ``horizon`` above 1
this is QC-FQL (Li, Zhou, Levine 2025). By default the critic's term is divided by the mean of |Q|,
so that ``alpha`` does not depend on the scale of rewards; the paper's table does not do so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from policies.chunks.base import randn
from policies.critics.actor_critic import (
    Actor,
    ActorCritic,
    ActorCriticConfig,
    GroupLosses,
    Transition,
)
from policies.critics.behaviour_flow import BehaviourFlow
from policies.nets.shapes import ChunkFeatures, Chunks, Context, Noise
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FqlConfig(ActorCriticConfig):
    """Flow Q-learning."""

    # Weight of staying near behaviour. Sweep .03, .1, .3, 1, 3, 10 on new data; without
    # normalize_q: 10 (antmaze) to 1000 (puzzle).
    alpha: float = 1.0
    # Whether the critic's term is divided by the mean of |Q|.
    normalize_q: bool = True
    # Euler steps of the flow in training.
    flow_steps: int = 10
    # What the members say of the next chunk: their mean, or the least.
    following: Literal["mean", "min"] = "mean"

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if not self.alpha >= 0 or self.flow_steps < 1:
            raise ConfigError(
                f"alpha must be at least 0 and flow_steps at least 1, got {self.alpha} and"
                f" {self.flow_steps}"
            )

    def algorithm(self) -> type[Fql]:
        """What trains it."""
        return Fql


class FqlActor(Actor):
    """The one-step policy ``mu(s, z)``, and the flow that it stays near."""

    def __init__(self, config: FqlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        size = self.observed.size
        self.flow = BehaviourFlow(size, self.chunk_size, config.width, config.depth)
        self.one_step = self.net(size + self.chunk_size)

    def chunk(self, noise: ChunkFeatures, context: Context) -> ChunkFeatures:
        """``mu(s, z)`` of flat noise, not yet held within the range of actions."""
        return self.one_step(torch.cat([context, noise], dim=-1))

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """One step from noise to a chunk."""
        flat = self.held(self.chunk(noise[:, 0].flatten(1), context))
        return flat.unflatten(1, (self.horizon, self.action_size))


class Fql(ActorCritic[FqlConfig, FqlActor]):
    """Trains critic, flow and one-step policy together."""

    name = "fql"
    actor_class = FqlActor

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error; the next chunk is the one-step policy's."""
        with torch.no_grad():
            chunk = self.actor.held(self.actor.chunk(randn(t.chunk, rng), t.next_seen))
            q = self.target(torch.cat([t.follow, chunk], dim=-1))
            following = q.mean(dim=0) if self.config.following == "mean" else q.amin(dim=0)
            target = self.td_target(t, following)
        return {"critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean()}

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Flow matching; and distillation with the critic's gradient."""
        actor, config = self.actor, self.config
        noise, context = randn(t.chunk, rng), t.seen.detach()
        with torch.no_grad():
            wanted = actor.held(actor.flow.sample(noise, context, config.flow_steps))
        chunk = actor.chunk(noise, context)
        distilled = ((chunk - wanted) ** 2).mean()
        q = self.critic.steering(t.now.detach(), actor.held(chunk)).mean(dim=0)
        scale = q.detach().abs().mean().clamp(min=1e-6) if config.normalize_q else 1.0
        policy = config.alpha * distilled - q.mean() / scale
        return {"flow": actor.flow.loss(t, rng, t.seen), "policy": policy}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """The encoder learns with the flow."""
        flow = (*self.actor.flow.parameters(), *self.actor.observed.parameters())
        return {"flow": flow, "policy": tuple(self.actor.one_step.parameters())}
