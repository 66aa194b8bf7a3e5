"""Gives algorithms with a squashed Gaussian actor what they share: its samples, and its entropy.

    pi:  E[ t log pi(a|s) - Q(s, a) ],   a ~ pi(s)      Q: what the members say together
    t:   moved so that the entropy of pi stays at its target: E[ -t (log pi(a|s) + H) ]

Equations 7 and 18 of Haarnoja et al. 2018 (SAC with a temperature that is learned).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import nn

from policies.critics.actor_critic import ActorCritic, ActorCriticConfig, GroupLosses, Transition
from policies.critics.gaussian.squashed import SquashedActor
from policies.nets.shapes import (
    CandidateRows,
    ChunkFeatures,
    Context,
    Features,
    FlatCandidates,
    MemberCandidates,
    MemberRows,
    Rows,
    Scalar,
)
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SoftConfig(ActorCriticConfig):
    """What algorithms with a squashed Gaussian actor are configured by."""

    # Of the entropy's target where none is given, for every number of a chunk.
    entropy_per_number: ClassVar[float] = -1.0

    # Actions of the policy at s', of which the best one follows; 1: SAC's.
    following: int = 1
    # Entropy that the policy is held at; null: minus the numbers of a chunk.
    entropy: float | None = None

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if self.following < 1:
            raise ConfigError(f"following must be at least 1, got {self.following}")

    @property
    def first_weight(self) -> float:
        """What entropy is weighed by before the first update."""
        return 1.0


SoftT = TypeVar("SoftT", bound=SoftConfig)


class SoftActorCritic(ActorCritic[SoftT, SquashedActor]):
    """An actor that is drawn from, and the weight of its entropy."""

    actor_class = SquashedActor

    def __init__(self, config: SoftT, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.log_entropy_weight = nn.Parameter(torch.tensor(math.log(config.first_weight)))
        each, wanted = config.entropy_per_number, config.entropy
        self.entropy = each * self.actor.chunk_size if wanted is None else wanted

    def together(self, q: MemberRows) -> Rows:
        """What the members say together of what the actor does: the least."""
        return q.amin(dim=0)

    def worth(self, t: Transition, chunk: ChunkFeatures) -> Rows:
        """What the actor seeks more of ``[b]``."""
        return self.together(self.critic.steering(t.now.detach(), chunk))

    def drawn(
        self, context: Context, count: int, rng: torch.Generator
    ) -> tuple[FlatCandidates, CandidateRows]:
        """``count`` chunks of the policy for every row ``[b, k, g]``, and their log densities."""
        chunks, density = self.actor.draw(context.repeat_interleave(count, dim=0), rng)
        return chunks.unflatten(0, (-1, count)), density.view(-1, count)

    def judged(
        self, critics: nn.Module, features: Features, chunks: FlatCandidates
    ) -> MemberCandidates:
        """What every member says of ``chunks [b, k, g]``: ``[members, b, k]``."""
        count = chunks.shape[1]
        x = torch.cat([features.repeat_interleave(count, dim=0), chunks.flatten(0, 1)], dim=-1)
        return critics(x).unflatten(1, (-1, count))

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """The critic's gradient and the entropy, whose weight follows."""
        chunk, density = self.actor.draw(t.seen, rng)
        q = self.worth(t, chunk)
        weight = self.log_entropy_weight.exp()
        low: Scalar = (density.detach() + self.entropy).mean()
        return {
            "policy": (weight.detach() * density - q).mean(),
            "entropy": -weight * low,
        }

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """The actor, and what weighs its entropy."""
        return {"policy": tuple(self.actor.parameters()), "entropy": (self.log_entropy_weight,)}
