"""Judges no action but the recorded ones: IQL (Kostrikov, Nair, Levine 2021).

    V:   E[ L_k( min_i Qbar_i(s, A) - V(s) ) ],   L_k(u) = |k - 1(u < 0)| u^2        equation 5
    Q:   E[ (Q_i(s, A) - (R + g^h m V(s')))^2 ]                                      equation 6
    pi:  weighted: -E[ min( exp(beta (min_i Qbar_i - V)), 100 ) log pi(A|s) ]        equation 7
         gradient: -E[ min_i Q_i(s, pi(s)) ] / mean |Q| - alpha E[ log pi(A|s) ]

The actor is a Gaussian of standard deviation 1 in normalised actions, whose mean is executed, as in
the OGBench family: -log pi is half of the squared error. Extraction by the gradient (DDPG+BC) is
Park et al. 2024's advice where data are broad.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from policies.critics.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    DeterministicActor,
    GroupLosses,
    Transition,
)
from policies.critics.chunk_critic import expectile_loss
from policies.nets.shapes import Features, Rows
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError

LARGEST_WEIGHT = 100.0
"""Of a chunk in the weighted extraction, as in the authors' code."""


@dataclass(frozen=True, slots=True)
class IqlConfig(ActorCriticConfig):
    """Implicit Q-learning."""

    # Expectile of V: 0.5 is the behaviour's mean, towards 1 its best. Published: .7 to .9.
    expectile: float = 0.9
    # How the actor is made of the critics.
    extraction: Literal["weighted", "gradient"] = "weighted"
    # Inverse temperature of the weights. Published: 3 (locomotion), .3 to 10 (OGBench).
    beta: float = 3.0
    # Weight of staying near behaviour when following the gradient.
    alpha: float = 1.0

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if not 0.0 < self.expectile < 1.0 or not self.beta >= 0 or not self.alpha >= 0:
            raise ConfigError("expectile must be in (0, 1), beta and alpha at least 0")

    def algorithm(self) -> type[Iql]:
        """What trains it."""
        return Iql


class Iql(ActorCritic[IqlConfig, DeterministicActor]):
    """Trains V, Q and the actor together."""

    name = "iql"
    actor_class = DeterministicActor
    values = True

    def __init__(self, config: IqlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        if self.critic.v is None:
            raise ConfigError("iql learns values of observations")
        self._v = [self.critic.v]  # In a list: it is registered as the critic's part already.

    def value(self, features: Features) -> Rows:
        """``V`` of features ``[b, f]``: ``[b]``."""
        return self._v[0](features).squeeze(0)

    def judged(self, t: Transition) -> Rows:
        """The least that the target critics say of the recorded chunks ``[b]``."""
        with torch.no_grad():
            return self.target(torch.cat([t.now, t.chunk], dim=-1)).amin(dim=0)

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:  # noqa: ARG002
        """Expectile regression of V, squared TD error of Q."""
        advantage = self.judged(t) - self.value(t.now.detach())
        with torch.no_grad():
            target = self.td_target(t, self.value(t.follow))
        q = self.critic.q_values(t.now, t.chunk)
        return {
            "value": expectile_loss(advantage, self.config.expectile).mean(),
            "critic": ((q - target) ** 2).mean(),
        }

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:  # noqa: ARG002
        """Behaviour weighted by its advantage, or the critic's gradient near behaviour."""
        chunk = self.actor.chunk(t.seen)
        unlikely = 0.5 * ((chunk - t.chunk) ** 2 * t.there).sum(dim=1)
        if self.config.extraction == "gradient":
            q = self.critic.q_values(t.now.detach(), chunk).amin(dim=0)
            scale = q.detach().abs().mean().clamp(min=1e-6)
            return {"policy": self.config.alpha * unlikely.mean() - q.mean() / scale}
        with torch.no_grad():
            advantage = self.judged(t) - self.value(t.now)
            weight = (self.config.beta * advantage).exp().clamp(max=LARGEST_WEIGHT)
        return {"policy": (weight * unlikely).mean()}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"policy": tuple(self.actor.parameters())}
