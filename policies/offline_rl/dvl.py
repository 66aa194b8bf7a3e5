"""Learns V by the dual of a regularised policy search: f-DVL of Dual RL (Sikchi et al. 2024).

Which visits d(s, A) are worth most, near those of behaviour mu, is a linear programme with the flow
of probability as its constraint,

    max_d  E_d[r] - D_f(d || mu),   D_f(d || mu) = E_mu[ f(d / mu) ]

whose dual has one number per state, V, and in which the conjugate of f for visits that are not
negative, f*(y) = max_{x >= 0} (x y - f(x)), judges the advantage y = Q(s, A) - V(s):

    V:   E[ (1 - l) V(s) + l fbar*(y) ]                                    IQL's, of another loss
    Q:   E[ (Q_i(s, A) - (R + g^h m V(s')))^2 ]
    pi:  -E[ min( exp(beta y), 100 ) log pi(A|s) ]

    chi_square       f(x) = (x - 1)^2:      f*(y) = y + y^2 / 4 (y >= -2)
    total_variation  f(x) = |x - 1| / 2:    f*(y) = y           (|y| <= 1/2)

fbar*(y) = max(f*(y), 0), extended as it is beyond those bounds, is the authors' surrogate: only
actions that are better than V count, so that V goes to the best of the recorded ones as l goes to
1. With total_variation this is the l-quantile of Q. Against XQL's exponential (f of the KL
divergence, which f-DVL stands in for) both grow slowly. Checked against the authors' code, whose
chi_square rises again for y < -4, where f* is flat and ours stays 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policies.critics.implicit import ImplicitConfig, ImplicitCritic
from policies.nets.shapes import Rows
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DvlConfig(ImplicitConfig):
    """Dual V-learning."""

    # Which divergence visits are held near behaviour's by.
    divergence: Literal["chi_square", "total_variation"] = "chi_square"
    # Weight l of the conjugate: towards 1 V is that of the best recorded action. Published: .8
    # (total_variation, antmaze).
    balance: float = 0.7

    def __post_init__(self) -> None:
        ImplicitConfig.__post_init__(self)
        if not 0.0 < self.balance < 1.0:
            raise ConfigError(f"balance must be in (0, 1), got {self.balance}")

    def algorithm(self) -> type[Dvl]:
        """What trains it."""
        return Dvl


class Dvl(ImplicitCritic[DvlConfig]):
    """Trains V, Q and the actor together."""

    name = "dvl"

    def value_loss(self, advantage: Rows) -> Rows:
        """``l fbar*(y) - (1 - l) y``: as ``(1 - l) V``, but for what V does not change."""
        balance = self.config.balance
        return balance * self.conjugate(advantage) - (1.0 - balance) * advantage

    def conjugate(self, y: Rows) -> Rows:
        """``fbar*``, elementwise."""
        better = y.clamp(min=0.0)
        if self.config.divergence == "total_variation":
            return better
        return better + better**2 / 4
