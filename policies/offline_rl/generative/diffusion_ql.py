"""Learns a diffusion policy through all of its steps: diffusion Q-learning (Wang, Hunt, Zhou 2022).

    Q:   E[ (Q_i(s, A) - (R + g^h m min_i Qbar_i(s', A')))^2 ],   A': the slow policy's
    pi:  E[ |eps(s, x_k, k) - eps|^2 ] - eta E[ Q_i(s, A_0) ] / mean |Q_j|              equation 3

A_0 is drawn in all T steps with the gradient kept, so T is small (5). Which critic is the numerator
i is drawn anew in every update, another one is the denominator j. Acting draws ``candidates``
samples and takes one of them with a probability in proportion to exp(Q). The authors choose by
their slow critic; here it is the one that is trained, of which the policy keeps one set of weights.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from policies.chunks.base import move_towards
from policies.critics.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    GroupLosses,
    Transition,
)
from policies.critics.behaviour_diffusion import BehaviourDiffusion
from policies.critics.chunk_critic import ChunkCritic
from policies.critics.judged_actor import JudgedActor, per_sample, resampled
from policies.nets.shapes import ChunkFeatures, Chunks, Context, Features, Noise
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DiffusionQlConfig(ActorCriticConfig):
    """Diffusion Q-learning."""

    # Weight of the critic against behaviour. Published: 1 (locomotion), .5 to 4.5 (antmaze), .005
    # (kitchen).
    eta: float = 1.0
    # Denoising steps, all of which are learned through. Published: 5.
    diffusion_steps: int = 5
    # Samples that one is drawn of when acting. Published: 50.
    candidates: int = 50
    # Samples after a chunk, of which every critic's best counts; 1: what is drawn counts.
    # Published: 1, and 10 on antmaze.
    next_samples: int = 1
    # The slow policy moves by so much ...
    actor_tau: float = 0.005
    # ... every so many updates ...
    slow_every: int = 5
    # ... after so many.
    slow_after: int = 1000

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if not self.eta >= 0 or not 0.0 < self.actor_tau <= 1.0 or self.slow_after < 0:
            raise ConfigError("eta and slow_after must be at least 0, actor_tau in (0, 1]")
        counts = (self.diffusion_steps, self.candidates, self.next_samples, self.slow_every)
        if min(counts) < 1:
            raise ConfigError("steps, candidates, next_samples and slow_every must be at least 1")

    def algorithm(self) -> type[DiffusionQl]:
        """What trains it."""
        return DiffusionQl


class DiffusionQlActor(JudgedActor):
    """The diffusion, and the critic that its samples are drawn again by."""

    def __init__(self, config: DiffusionQlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.candidates = config.candidates
        # The last array of every sample decides whether it is taken.
        self.draws = config.candidates * (config.diffusion_steps + 1)
        c = config
        self.diffusion = BehaviourDiffusion(
            self.observed.size, self.chunk_size, c.width, c.depth, c.diffusion_steps, c.clip
        )
        self.critic = ChunkCritic(c.critic(), spec, stats, spec.horizon)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """One of the samples from ``noise [b, candidates * (steps + 1), h, a]``."""
        count = self.candidates
        flat = per_sample(noise, count)
        seen, judged = (v.repeat_interleave(count, dim=0) for v in self.split(context))
        chunks = self.held(self.diffusion.sample(flat[:, :-1], seen))
        scores = self.critic.q_values(judged, chunks).amin(dim=0).view(-1, count)
        best = resampled(scores, flat[:, -1, 0].view(-1, count))
        return self.chosen(chunks.unflatten(0, (-1, count)), best)


class DiffusionQl(ActorCritic[DiffusionQlConfig, DiffusionQlActor]):
    """Trains critic and diffusion together."""

    name = "diffusion_ql"
    actor_class = DiffusionQlActor

    def __init__(self, config: DiffusionQlConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        # The policy chooses by the critic that is trained: one set of weights.
        self.actor.critic = self.critic
        self.slow = copy.deepcopy(self.actor.diffusion).requires_grad_(requires_grad=False)

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error; the next chunk is the slow policy's."""
        count = self.config.next_samples
        with torch.no_grad():
            seen = self.actor.split(t.next_seen)[0].repeat_interleave(count, dim=0)
            chunk = self.drawn(self.slow, seen, rng)
            follow = t.follow.repeat_interleave(count, dim=0)
            q = self.target(torch.cat([follow, chunk], dim=-1)).unflatten(1, (-1, count))
            target = self.td_target(t, q.amax(dim=2).amin(dim=0))
        return {"critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean()}

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Denoising, and the critic's gradient through every step of a sample."""
        actor, members = self.actor, self.config.members
        seen = actor.split(t.seen)[0]
        cloned = actor.diffusion.loss(t, rng, seen)
        which = int(torch.randint(0, members, (1,), generator=rng))
        q = self.critic.q_values(t.now.detach(), self.drawn(actor.diffusion, seen, rng))
        scale = q[(which + 1) % members].detach().abs().mean().clamp(min=1e-6)
        return {"policy": cloned - self.config.eta * q[which].mean() / scale}

    def drawn(
        self, diffusion: BehaviourDiffusion, seen: Features, rng: torch.Generator
    ) -> ChunkFeatures:
        """One chunk per row of ``seen [b, f]``."""
        shape = (len(seen), self.config.diffusion_steps, self.actor.chunk_size)
        noise = torch.randn(shape, generator=rng).to(seen.device)
        return self.actor.held(diffusion.sample(noise, seen))

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """Move the target critic, and now and then the slow policy."""
        super().after_update(step, updated)
        if step >= self.config.slow_after and step % self.config.slow_every == 0:
            move_towards(self.slow, self.actor.diffusion, self.config.actor_tau)

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"policy": (*self.actor.diffusion.parameters(), *self.actor.observed.parameters())}
