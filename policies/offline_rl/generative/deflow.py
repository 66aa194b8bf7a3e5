"""Adds a small residual to a flow that clones behaviour, as far as a trust region goes: DeFlow
(arXiv 2601.10471), with the metric of the Fisher Decorator (arXiv 2604.17919) if asked for.

    v:      E[ |v(s, (1 - t) z + t A, t) - (A - z)|^2 ]         clones behaviour, and nothing else
    delta:  -E[ Q(s, A) ] / mean |Q| + lambda E[ D(delta) ],     A = sg[B] + delta(s, sg[B]),
            B = euler(v; s, z)
    lambda: rises while E[ D ] is above ``divergence``, and falls while it is below

``euclidean``: D = |delta|^2 / g, of g numbers of a chunk. ``fisher``: D = delta^T F delta / g, with
F the mean of w w^T over scores w of the noised flow at t = .95, scaled to the trace of a unit
matrix and damped, so that ``divergence`` keeps its meaning: a residual is cheap along what
behaviour does, dear across it. The score is (t v - x) / (1 - t), that of x_t = (1 - t) z + t A
(Tweedie); v / (1 - t), which circulates, is not.

The limit is in normalised actions: from what data vary by, not from the scale of rewards.
"""

from __future__ import annotations

import dataclasses
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
from policies.nets.shapes import ChunkFeatures, Chunks, Context, Noise, Rows
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import ParamGroup

NOISED_AT, SCORES, DAMPING = 0.95, 4, 1e-3
"""Time at which scores are taken, how many of them, and what is added to their matrix."""


@dataclass(frozen=True, slots=True)
class DeflowConfig(ActorCriticConfig):
    """A residual within a trust region of a cloned flow."""

    # What the mean square of a residual's numbers comes to, normalised actions. Published: .001
    # (manipulation), .005 (puzzles), .01 (mazes).
    divergence: float = 0.001
    # How a residual is measured.
    metric: Literal["euclidean", "fisher"] = "euclidean"
    # Learning rate of the multiplier.
    multiplier_lr: float = 3e-3
    # Euler steps of the flow.
    flow_steps: int = 10
    # What the members say of the next chunk: their mean, or the least.
    following: Literal["mean", "min"] = "mean"

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if not self.divergence > 0 or not self.multiplier_lr > 0 or self.flow_steps < 1:
            raise ConfigError(
                "divergence and multiplier_lr must be above 0, flow_steps at least 1, got"
                f" {self.divergence}, {self.multiplier_lr} and {self.flow_steps}"
            )

    def algorithm(self) -> type[Deflow]:
        """What trains it."""
        return Deflow


class DeflowActor(Actor):
    """The flow, and the residual on what it draws."""

    def __init__(self, config: DeflowConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        size = self.observed.size
        self.steps = config.flow_steps
        self.flow = BehaviourFlow(size, self.chunk_size, config.width, config.depth)
        self.residual = self.net(size + self.chunk_size)
        # Behaviour is where it starts from.
        for parameter in self.residual[-1].parameters():
            nn.init.zeros_(parameter)

    def base(self, noise: ChunkFeatures, context: Context) -> ChunkFeatures:
        """What behaviour does, without gradient."""
        with torch.no_grad():
            return self.held(self.flow.sample(noise, context, self.steps))

    def delta(self, base: ChunkFeatures, context: Context) -> ChunkFeatures:
        """The residual."""
        return self.residual(torch.cat([context, base], dim=-1))

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """What behaviour does and the residual, within the range of actions."""
        base = self.base(noise[:, 0].flatten(1), context)
        flat = self.held(base + self.delta(base, context))
        return flat.unflatten(1, (self.horizon, self.action_size))


def score(velocity: ChunkFeatures, x: ChunkFeatures, time: float) -> ChunkFeatures:
    """Gradient of the log density of ``x = (1 - t) z + t A`` where the flow's velocity is known.

    E[z | x] = x - t v, and the score is -E[z | x] / (1 - t).
    """
    return (time * velocity - x) / (1.0 - time)


class Deflow(ActorCritic[DeflowConfig, DeflowActor]):
    """Trains critic, flow, residual and multiplier together."""

    name = "deflow"
    actor_class = DeflowActor

    def __init__(self, config: DeflowConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.log_multiplier = nn.Parameter(torch.zeros(()))

    def groups(self) -> Mapping[str, ParamGroup]:
        """As everywhere, and the multiplier at a rate of its own."""
        found = dict(super().groups())
        price = found["multiplier"]
        found["multiplier"] = dataclasses.replace(
            price, lr=self.config.multiplier_lr, weight_decay=0.0
        )
        return found

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error; the next chunk is that of flow and residual."""
        actor = self.actor
        with torch.no_grad():
            base = actor.base(randn(t.chunk, rng), t.next_seen)
            chunk = actor.held(base + actor.delta(base, t.next_seen))
            q = self.target(torch.cat([t.follow, chunk], dim=-1))
            following = q.mean(dim=0) if self.config.following == "mean" else q.amin(dim=0)
            target = self.td_target(t, following)
        return {"critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean()}

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Flow matching; the critic's gradient within the trust region; the region's price."""
        actor, context = self.actor, t.seen.detach()
        base = actor.base(randn(t.chunk, rng), context)
        delta = actor.delta(base, context)
        apart = self.divergence(delta, context, rng).mean()
        q = self.critic.steering(t.now.detach(), actor.held(base + delta)).mean(dim=0)
        scale = q.detach().abs().mean().clamp(min=1e-6)
        price = self.log_multiplier.exp()
        # In shares of the limit, so that one rate fits every limit.
        over = apart / self.config.divergence - 1.0
        return {
            "flow": actor.flow.loss(t, rng, t.seen),
            "policy": price.detach() * over - q.mean() / scale,
            "multiplier": -self.log_multiplier * over.detach(),
        }

    def divergence(self, delta: ChunkFeatures, context: Context, rng: torch.Generator) -> Rows:
        """How far the residual ``[b, g]`` leaves behaviour, by the metric."""
        plain = delta.square().mean(dim=1)
        if self.config.metric == "euclidean":
            return plain
        flow, at = self.actor.flow, NOISED_AT
        across, trace = torch.zeros_like(plain), torch.zeros_like(plain)
        for _ in range(SCORES):
            with torch.no_grad():
                x = (1 - at) * randn(delta, rng) + at * self.actor.base(randn(delta, rng), context)
                time = torch.full_like(x[:, :1], at)
                w = score(flow.velocity(x, time, context), x, at)
            across = across + (w * delta).sum(dim=1).square()
            trace = trace + w.square().sum(dim=1)
        return across / trace.clamp(min=1e-6) + DAMPING * plain

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """The encoder learns with the flow."""
        return {
            "flow": (*self.actor.flow.parameters(), *self.actor.observed.parameters()),
            "policy": tuple(self.actor.residual.parameters()),
            "multiplier": (self.log_multiplier,),
        }
