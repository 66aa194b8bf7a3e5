"""Gives algorithms of TD3's kind what they share: a slow, smoothed actor says what follows.

    A' = clip( pibar(s') + clip(noise) ),   y = R + g^h m min_i Qbar_i(s', A')

The actor learns once in several updates of the critic, and its slow copy moves with it (Fujimoto et
al. 2018).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from policies.chunks.base import move_towards, randn
from policies.critics.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    DeterministicActor,
    Transition,
)
from policies.nets.shapes import ChunkFeatures, Rows
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Observed


@dataclass(frozen=True, slots=True)
class DelayedConfig(ActorCriticConfig):
    """What algorithms of TD3's kind are configured by."""

    # Standard deviation of the noise on the next chunk.
    noise: float = 0.2
    # Where that noise is cut.
    noise_clip: float = 0.5
    # Updates of the critic per update of the actor.
    actor_every: int = 2

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if min(self.noise, self.noise_clip) < 0:
            raise ConfigError("noise and noise_clip must be at least 0")
        if self.actor_every < 1:
            raise ConfigError(f"actor_every must be at least 1, got {self.actor_every}")


DelayedT = TypeVar("DelayedT", bound=DelayedConfig)


class DelayedActorCritic(ActorCritic[DelayedT, DeterministicActor]):
    """Trains critic and actor, the actor less often."""

    actor_class = DeterministicActor

    def __init__(self, config: DelayedT, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.slow_actor = copy.deepcopy(self.actor).requires_grad_(requires_grad=False)

    def smoothed(self, follow: Observed, rng: torch.Generator) -> ChunkFeatures:
        """``A'`` ``[b, g]``, within the range that actions are held in."""
        c, slow = self.config, self.slow_actor
        chunk = slow.chunk(slow.context(follow))
        smooth = (c.noise * randn(chunk, rng)).clamp(-c.noise_clip, c.noise_clip)
        return slow.held(chunk + smooth)

    def double_target(self, t: Transition, rng: torch.Generator) -> Rows:
        """``y`` ``[b]``: what the least of the target critics says of ``A'``."""
        follow = t.batch.next_observations
        if follow is None:
            raise ConfigError(f"{self.name} is fed with chunked transitions")
        with torch.no_grad():
            chunk = self.smoothed(follow, rng)
            return self.td_target(t, self.target(torch.cat([t.follow, chunk], dim=-1)).amin(dim=0))

    def acts(self, t: Transition) -> bool:
        """Whether the actor learns in this update."""
        return t.step % self.config.actor_every == 0

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """Move the target critic, and the target actor with the actor."""
        super().after_update(step, updated)
        if "policy" in updated:
            move_towards(self.slow_actor, self.actor, self.config.tau)

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"policy": tuple(self.actor.parameters())}
