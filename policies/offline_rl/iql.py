"""Judges no action but the recorded ones: IQL (Kostrikov, Nair, Levine 2021).

    V:   E[ L_k( min_i Qbar_i(s, A) - V(s) ) ],   L_k(u) = |k - 1(u < 0)| u^2        equation 5
    Q:   E[ (Q_i(s, A) - (R + g^h m V(s')))^2 ]                                      equation 6
    pi:  weighted: -E[ min( exp(beta (min_i Qbar_i - V)), 100 ) log pi(A|s) ]        equation 7
         gradient: -E[ min_i Q_i(s, pi(s)) ] / mean |Q| - alpha E[ log pi(A|s) ]

What it shares with others of its kind is ``policies/critics/implicit.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.critics.chunk_critic import expectile_loss
from policies.critics.implicit import ImplicitConfig, ImplicitCritic
from policies.nets.shapes import Rows
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class IqlConfig(ImplicitConfig):
    """Implicit Q-learning."""

    # Expectile of V: 0.5 is the behaviour's mean, towards 1 its best. Published: .7 to .9.
    expectile: float = 0.9

    def __post_init__(self) -> None:
        ImplicitConfig.__post_init__(self)
        if not 0.0 < self.expectile < 1.0:
            raise ConfigError(f"expectile must be in (0, 1), got {self.expectile}")

    def algorithm(self) -> type[Iql]:
        """What trains it."""
        return Iql


class Iql(ImplicitCritic[IqlConfig]):
    """Trains V, Q and the actor together."""

    name = "iql"

    def value_loss(self, advantage: Rows) -> Rows:
        """The expectile's."""
        return expectile_loss(advantage, self.config.expectile)
