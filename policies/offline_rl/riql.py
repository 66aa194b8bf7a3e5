"""Learns from corrupted data: robust IQL, RIQL (Yang et al. 2024).

    V:   E[ L_k( q_a(Qbar(s, A)) - V(s) ) ],   q_a: the a-quantile over the critics
    Q:   E[ l_d( Q_i(s, A) - (R + g^h m V(s')) ) ],
         l_d(u) = u^2 / (2 d) where |u| < d, |u| - d/2 elsewhere                       Huber's loss
    pi:  as IQL's, by the advantage q_a(Qbar(s, A)) - V(s)

Three changes of IQL, each against one way in which data go wrong: observations are standardised,
which weakens corrupted ones; Huber's loss keeps the heavy tails that corruption gives to targets
from moving Q (it counts an outlier by its sign, not by its size); and a quantile of several critics
stands in for their least one, which one misled critic decides. Loss, quantile and defaults follow
the authors' code, whose actor is deterministic as ours is; their targets are cut to [-100, 1000],
here by ``bounds``. Rewards are of any size: the Huber threshold is in the unit of values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from policies.critics.actor_critic import Transition
from policies.critics.chunk_critic import expectile_loss
from policies.critics.implicit import ImplicitConfig, ImplicitCritic
from policies.nets.shapes import MemberRows, Rows, Scalar
from robolearn.contracts import Normalization
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RiqlConfig(ImplicitConfig):
    """Robust implicit Q-learning."""

    # Expectile of V. Published: .7.
    expectile: float = 0.7
    # Networks of the critic. Published: 3 or 5.
    members: int = 5
    # Which quantile of them counts; 0: the least. Published: .1 to .5, mostly .25.
    quantile: float = 0.25
    # TD errors above it count by their size, not by their square [unit of values]. Published:
    # 1/sigma^2 with sigma 3 (rewards and dynamics of locomotion, values of hundreds) to .1
    # (observations, next to squared).
    huber: float = 1.0
    # Scaling of observations: what is corrupted stretches their ends more than their deviation.
    observation_scaling: Normalization | None = "meanstd"

    def __post_init__(self) -> None:
        ImplicitConfig.__post_init__(self)
        if not 0.0 < self.expectile < 1.0 or not 0.0 <= self.quantile <= 1.0:
            raise ConfigError(
                "expectile must be in (0, 1) and quantile in [0, 1], got"
                f" {self.expectile} and {self.quantile}"
            )
        if not self.huber > 0:
            raise ConfigError(f"huber must be above 0, got {self.huber}")

    def algorithm(self) -> type[Riql]:
        """What trains it."""
        return Riql


class Riql(ImplicitCritic[RiqlConfig]):
    """Trains V, Q and the actor together."""

    name = "riql"

    def value_loss(self, advantage: Rows) -> Rows:
        """The expectile's."""
        return expectile_loss(advantage, self.config.expectile)

    def together(self, q: MemberRows) -> Rows:
        """A quantile of the members, between two of them in proportion."""
        return torch.quantile(q, self.config.quantile, dim=0)

    def td_loss(self, error: MemberRows) -> MemberRows:
        """Huber's, divided by its threshold: the slope of an outlier is 1."""
        zero = torch.zeros_like(error)
        return functional.smooth_l1_loss(error, zero, reduction="none", beta=self.config.huber)

    def mean_td_loss(self, t: Transition, rng: torch.Generator) -> Scalar:
        """Huber's loss where it is the square of the error: outliers count by their size."""
        return 2.0 * self.config.huber * super().mean_td_loss(t, rng)
