"""Learns a diffusion policy through all of its steps: diffusion Q-learning (Wang, Hunt, Zhou 2022).

    Q:   E[ (Q_i(s, A) - (R + g^h m min_i Qbar_i(s', A')))^2 ],   A': the slow policy's
    pi:  E[ |eps(s, x_k, k) - eps|^2 ] - eta E[ Q_i(s, A_0) ] / mean |Q_j|              equation 3

Everything but the generator and what clones behaviour is that of ``following.py``. The authors
choose among samples by their slow critic; here it is the one that is trained.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from policies.critics.actor_critic import Transition
from policies.critics.behaviour_diffusion import BehaviourDiffusion
from policies.nets.shapes import Features, Scalar
from policies.offline_rl.generative.following import (
    FollowingActor,
    FollowingConfig,
    FollowingCritic,
)
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DiffusionQlConfig(FollowingConfig):
    """Diffusion Q-learning. Published: ``eta`` 1 (locomotion), .5 to 4.5 (antmaze), .005 (kitchen);
    50 candidates.
    """

    # Denoising steps, all of which are learned through. Published: 5.
    diffusion_steps: int = 5

    def __post_init__(self) -> None:
        FollowingConfig.__post_init__(self)
        if self.diffusion_steps < 1:
            raise ConfigError(f"diffusion_steps must be at least 1, got {self.diffusion_steps}")

    def algorithm(self) -> type[DiffusionQl]:
        """What trains it."""
        return DiffusionQl


class DiffusionQlActor(FollowingActor[BehaviourDiffusion]):
    """Draws by diffusion."""

    config: DiffusionQlConfig

    def untrained(self) -> BehaviourDiffusion:
        """The diffusion."""
        c = self.config
        return BehaviourDiffusion(
            self.observed.size, self.chunk_size, c.width, c.depth, c.diffusion_steps, c.clip
        )


class DiffusionQl(FollowingCritic[DiffusionQlConfig, DiffusionQlActor]):
    """Trains critic and diffusion together."""

    name = "diffusion_ql"
    actor_class = DiffusionQlActor

    def cloned(self, t: Transition, rng: torch.Generator, seen: Features) -> Scalar:
        """Denoising."""
        return self.actor.generator.loss(t, rng, seen)
