"""Gives algorithms that judge no action but the recorded ones what they share: V beside Q.

    V:   E[ L( judged(s, A) - V(s) ) ],   judged: what the target critics say together
    Q:   E[ l( Q_i(s, A) - (R + g^h m V(s')) ) ]
    pi:  weighted: -E[ w( judged(s, A) - V(s) ) log pi(A|s) ]
         gradient: -E[ judged_i Q_i(s, pi(s)) ] / mean |Q| - alpha E[ log pi(A|s) ]

A file adds what V regresses to (``value_loss``); by default the least of the critics counts, TD
errors are squared, and w is an exponential. The actor is a Gaussian of standard deviation 1 in
normalised actions, whose mean is executed, as in the OGBench family: -log pi is half of the squared
error. Extraction by the gradient (DDPG+BC) is Park et al. 2024's advice where data are broad.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import nn

from policies.critics.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    DeterministicActor,
    GroupLosses,
    Transition,
)
from policies.critics.diagnostics import Figures
from policies.nets.shapes import Features, MemberRows, Rows
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError

LARGEST_WEIGHT = 100.0
"""Of a chunk in the weighted extraction, as in the code of IQL's authors."""


@dataclass(frozen=True, slots=True)
class ImplicitConfig(ActorCriticConfig):
    """What algorithms with an implicit backup are configured by."""

    # How the actor is made of the critics.
    extraction: Literal["weighted", "gradient"] = "weighted"
    # Inverse temperature of the weights. Published: 3 (locomotion), .3 to 10 (OGBench).
    beta: float = 3.0
    # Weight of staying near behaviour when following the gradient.
    alpha: float = 1.0

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if not self.beta >= 0 or not self.alpha >= 0:
            raise ConfigError("beta and alpha must be at least 0")


ImplicitT = TypeVar("ImplicitT", bound=ImplicitConfig)


class ImplicitCritic(ActorCritic[ImplicitT, DeterministicActor]):
    """Trains V, Q and the actor together."""

    actor_class = DeterministicActor
    values = True

    def __init__(self, config: ImplicitT, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        if self.critic.v is None:
            raise ConfigError(f"{self.name} learns values of observations")
        self._v = [self.critic.v]  # In a list: it is registered as the critic's part already.
        self._advantage: tuple[Transition, Rows] | None = None

    @abstractmethod
    def value_loss(self, advantage: Rows) -> Rows:
        """What V is moved by, of ``judged - V(s)``, elementwise."""

    def together(self, q: MemberRows) -> Rows:
        """What the members say together: the least."""
        return q.amin(dim=0)

    def td_loss(self, error: MemberRows) -> MemberRows:
        """What Q is moved by, of ``Q_i - target``, elementwise: the square."""
        return error**2

    def weight(self, advantage: Rows) -> Rows:
        """How much a recorded chunk is imitated: ``min(exp(beta A), 100)``."""
        return (self.config.beta * advantage).exp().clamp(max=LARGEST_WEIGHT)

    def value(self, features: Features) -> Rows:
        """``V`` of features ``[b, f]``: ``[b]``."""
        return self._v[0](features).squeeze(0)

    def judged(self, t: Transition) -> Rows:
        """What the target critics say of the recorded chunks ``[b]``."""
        with torch.no_grad():
            return self.together(self.target(torch.cat([t.now, t.chunk], dim=-1)))

    def advantage(self, t: Transition) -> Rows:
        """``judged(s, A) - V(s)`` of ``t``, computed once for all losses of an update."""
        if self._advantage is None or self._advantage[0] is not t:
            self._advantage = t, self.judged(t) - self.value(t.now.detach())
        return self._advantage[1]

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:  # noqa: ARG002
        """Regression of V to what recorded chunks are worth, TD error of Q."""
        advantage = self.advantage(t)
        with torch.no_grad():
            target = self.td_target(t, self.value(t.follow))
        q = self.critic.q_values(t.now, t.chunk)
        return {
            "value": self.value_loss(advantage).mean(),
            "critic": self.td_loss(q - target).mean(),
        }

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:  # noqa: ARG002
        """Behaviour weighted by its advantage, or the critic's gradient near behaviour."""
        chunk = self.actor.chunk(t.seen)
        unlikely = 0.5 * ((chunk - t.chunk) ** 2 * t.there).sum(dim=1)
        if self.config.extraction == "gradient":
            q = self.together(self.critic.steering(t.now.detach(), chunk))
            scale = q.detach().abs().mean().clamp(min=1e-6)
            return {"policy": self.config.alpha * unlikely.mean() - q.mean() / scale}
        weight = self.weight(self.advantage(t).detach())
        return {"policy": (weight * unlikely).mean()}

    def more_figures(self, t: Transition, rng: torch.Generator) -> Figures:  # noqa: ARG002
        """``weights_clipped``: the share of chunks whose weight is the largest there is."""
        if self.config.extraction == "gradient":
            return {}
        with torch.no_grad():
            weight = self.weight(self.judged(t) - self.value(t.now))
        return {"weights_clipped": (weight >= LARGEST_WEIGHT).float().mean()}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"policy": tuple(self.actor.parameters())}
