"""Learns quickly from practice and demonstrations together: RLPD (Ball et al. 2023).

    Q:   E[ (Q_i(s, A) - y)^2 ],  i = 1..10,   y = R + g^h m min over Z of Qbar_i(s', a')
         Z: ``subset`` members, drawn anew in every update, none of them twice
    pi:  E[ t log pi(a|s) - mean_i Q_i(s, a) ],  once in ``actor_every`` updates of the critic

SAC with what keeps a critic sound that is updated often: layer norms, an ensemble of which a few at
random say what follows (Chen et al. 2021, REDQ), and batches half of which are demonstrations
(``practice.demonstrations: 0.5``), so that nothing has to be learned from them first. What follows
is worth no entropy where rewards are sparse. Often: twenty updates of the critic per step in the
paper; here a decision is a chunk, and ``practice.updates_per_decision`` says how many.

The subset is drawn without replacement, unlike in HIL-SERL's release, where one member may count
twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch

from policies.nets.shapes import CandidateRows, Features, FlatCandidates, MemberRows, Rows
from policies.online_rl.sac import SacConfig, SacTraining
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RlpdConfig(SacConfig):
    """RL with prior data."""

    # The paper: minus half of the numbers of an action [memory].
    entropy_per_number: ClassVar[float] = -0.5

    # The paper: 10.
    members: int = 10
    # Of them so many say what follows; the paper: 2, and 1 from pictures and on antmaze.
    subset: int = 2
    # The paper: off where rewards are sparse.
    entropy_backup: bool = False
    # The paper: one update of the actor per step, with 20 of the critic.
    actor_every: int = 20

    def __post_init__(self) -> None:
        SacConfig.__post_init__(self)
        if not 1 <= self.subset <= self.members:
            raise ConfigError(f"subset must be in 1..members={self.members}, got {self.subset}")

    def algorithm(self) -> type[RlpdTraining[Any]]:
        """What trains it."""
        return Rlpd

    def practice(self) -> Mapping[str, Any]:
        """The paper: half of a batch is demonstrated."""
        return {"demonstrations": 0.5}


RlpdT = TypeVar("RlpdT", bound=RlpdConfig)


class RlpdTraining(SacTraining[RlpdT]):
    """Trains ten critics, of which two say what follows."""

    def said_of_next(
        self, features: Features, chunks: FlatCandidates, rng: torch.Generator
    ) -> CandidateRows:
        """The least of a few members, drawn for the whole batch."""
        c = self.config
        asked = torch.randperm(c.members, generator=rng)[: c.subset].to(features.device)
        x = torch.cat(
            [features.repeat_interleave(chunks.shape[1], dim=0), chunks.flatten(0, 1)], dim=-1
        )
        return self.target(x, asked).amin(dim=0).view(-1, chunks.shape[1])

    def together(self, q: MemberRows) -> Rows:
        """The mean: the actor follows all of them."""
        return q.mean(dim=0)


class Rlpd(RlpdTraining[RlpdConfig]):
    """RL with prior data."""

    name = "rlpd"
