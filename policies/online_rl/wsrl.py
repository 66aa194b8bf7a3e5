"""Begins with what offline RL has learned, and keeps none of its data: WSRL (Zhou et al. 2024).

    1. actor, critics and targets are those of an offline run (cql, cal-ql, rebrac, iql, ...)
    2. the parent, frozen, acts for the warm-up: what it meets is where critics have to be right
    3. RLPD's updates, on own episodes alone

Warm-up data keep values from collapsing at the switch, which is what retained offline data had been
needed for. The parent's run says how long a chunk is and how large the networks are; keys that
differ are named. An actor that answers by one chunk becomes the mean of a Gaussian.

Cal-QL's own way to go on is ``policy: cql, calibrated: true`` on a run of its kind, with
``practice.demonstrations: 0.5``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from policies.online_rl.rlpd import RlpdConfig, RlpdTraining


@dataclass(frozen=True, slots=True)
class WsrlConfig(RlpdConfig):
    """Warm-start RL."""

    # The point of it; from scratch it is RLPD on own episodes alone.
    start: Literal["scratch", "parent"] = "parent"
    # As in runs of offline RL.
    depth: int = 4
    # The paper: 10, as in its offline runs; here as theirs are.
    members: int = 2
    # The paper: 0.
    entropy: float | None = 0.0
    # The paper: 4 updates of the critic per update of the actor.
    actor_every: int = 4
    # The paper: 1e-4, a third of the critic's.
    actor_lr: float | None = 1e-4

    def algorithm(self) -> type[Wsrl]:
        """What trains it."""
        return Wsrl

    def practice(self) -> Mapping[str, Any]:
        """The paper: nothing is retained."""
        return {}


class Wsrl(RlpdTraining[WsrlConfig]):
    """Warm-start RL."""

    name = "wsrl"
