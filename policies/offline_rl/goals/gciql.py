"""Reaches goals by implicit Q-learning: GCIQL (Kostrikov et al. 2021; OGBench, Park et al. 2025).

    V:   E[ L_k( min_i Qbar_i(s, A, g) - V(s, g) ) ]
    Q:   E[ (Q_i(s, A, g) - (R_g + g^h m_g V(s', g)))^2 ]
    pi:  -E[ min_i Q_i(s, pi(s, g'), g') ] / mean |Q|  -  alpha E[ log pi(A | s, g') ]

R_g costs 1 per step until the goal's row; g is there already, later, or of any episode; g' is later
in the same one. Values are stitched over episodes: for a goal that no recording of this start
reached, V(s', g) is known from one that passed nearby. All of it is :mod:`policies.offline_rl.iql`
with goals; OGBench extracts by the critic's gradient, with alpha 1 for manipulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from policies.critics.hindsight import require_goals
from policies.offline_rl.iql import Iql, IqlConfig


@dataclass(frozen=True, slots=True)
class GciqlConfig(IqlConfig):
    """Goal-conditioned implicit Q-learning."""

    # Published: single actions.
    horizon: int = 1
    # Published: 3 layers of 512, batches of 1024.
    depth: int = 3
    # The gradient of the critic, or weights by advantages.
    extraction: Literal["weighted", "gradient"] = "gradient"
    # Weight of staying near behaviour. Published: 1 (cube, scene, puzzle), .3 (mazes).
    alpha: float = 1.0

    def __post_init__(self) -> None:
        IqlConfig.__post_init__(self)
        require_goals(self.goals, "gciql")

    def algorithm(self) -> type[Iql]:
        """What trains it."""
        return Gciql


class Gciql(Iql):
    """IQL, said by another name."""

    name = "gciql"
