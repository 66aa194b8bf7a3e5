"""Encodes observation histories so that they are apart by what they lead to (Hong et al. 2023).

    z = phi(o_t-n+1, ..., o_t)
    J(phi) = E[ ( |z - z'|_1 - |R - R'| - |g^h m sg(z_next) - g^h m' sg(z'_next)|_1 )^2 ]

Two histories are one state where the rewards are alike and so is what follows: what tells them
apart besides is noise that offline RL would have to see all combinations of. The loss is added to
those of the critic and of the actor, whose encoders learn from both.

From the abstract of arXiv 2310.20663 (a bisimulation loss for representations of histories in
offline RL). [memory], not checked: the squared form with the L1 distance, as of deep bisimulation
for control (Zhang et al. 2021), whose distance of what follows is that of a learned transition
model's distributions. Here the recorded next histories stand for them, as in MICo (Castro et al.
2021), and no gradient goes through them. Own choice: the end of a task is the origin.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from policies.nets.shapes import Features, Rows, Scalar
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class BisimulationConfig:
    """A learned encoder of the history, and its loss."""

    # Weight of the loss beside those of critic and actor; 0: a learned encoder without it.
    weight: float = 1.0
    # Numbers that a history is encoded in.
    size: int = 32
    # Hidden units of the encoder.
    width: int = 256

    def __post_init__(self) -> None:
        if not self.weight >= 0 or min(self.size, self.width) < 1:
            raise ConfigError("weight must be at least 0, size and width at least 1")


class HistoryEncoder(nn.Sequential):
    """``phi``: one hidden layer, from ``inputs`` features of a history to ``size``."""

    def __init__(self, inputs: int, config: BisimulationConfig) -> None:
        self.size = config.size
        super().__init__(
            nn.Linear(inputs, config.width), nn.GELU(), nn.Linear(config.width, config.size)
        )


def bisimulation_loss(now: Features, follow: Features, reward: Rows, bootstrap: Rows) -> Scalar:
    """``J`` of encodings ``now`` and ``follow [b, f]``, rewards ``[b]`` and what is left of the
    discount ``[b]`` (0 at the end of the task). Rows come in a random order: each is held against
    the one before it.
    """
    after = (bootstrap[:, None] * follow).detach()
    apart = (reward - reward.roll(1)).abs() + distance(after, after.roll(1, 0))
    return ((distance(now, now.roll(1, 0)) - apart) ** 2).mean()


def distance(one: Features, other: Features) -> Rows:
    """L1, row by row."""
    return (one - other).abs().sum(dim=-1)
