"""Adds cloning to TD3's actor, and nothing else: TD3+BC (Fujimoto, Gu 2021).

    Q:   E[ (Q_i(s, A) - (R + g^h m min_i Qbar_i(s', A')))^2 ],   A': TD3's, smoothed
    pi:  -l E[ Q_1(s, pi(s)) ] + E[ |pi(s) - A|^2 ],   l = alpha / mean |Q_1|      equations 3 and 5

Observations are standardised, actions lie in [-1, 1], errors of actions are means over their
numbers, all as in the authors' code. Our critics have layer norms, theirs have none (ReBRAC found
that they help); chunks of several steps are ours, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from policies.critics.actor_critic import GroupLosses, Transition
from policies.critics.delayed import DelayedActorCritic, DelayedConfig
from robolearn.contracts import Normalization
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Td3BcConfig(DelayedConfig):
    """TD3 with behaviour cloning."""

    # Weight of the critic's term, which is divided by the mean of |Q|; 0: cloning. Published: 2.5.
    alpha: float = 2.5
    # Scaling of observations.
    observation_scaling: Normalization | None = "meanstd"

    def __post_init__(self) -> None:
        DelayedConfig.__post_init__(self)
        if not self.alpha >= 0:
            raise ConfigError(f"alpha must be at least 0, got {self.alpha}")

    def algorithm(self) -> type[Td3Bc]:
        """What trains it."""
        return Td3Bc


class Td3Bc(DelayedActorCritic[Td3BcConfig]):
    """Trains critic and actor, the actor less often."""

    name = "td3_bc"

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error of clipped double Q-learning."""
        target = self.double_target(t, rng)
        return {"critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean()}

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:  # noqa: ARG002
        """The first critic's gradient, and the distance to what was done; every other update."""
        if not self.acts(t):
            return {}
        chunk = self.actor.chunk(t.seen)
        q = self.critic.steering(t.now.detach(), chunk)[0]
        scale = self.config.alpha / q.detach().abs().mean().clamp(min=1e-6)
        return {"policy": t.mean((chunk - t.chunk) ** 2) - scale * q.mean()}
