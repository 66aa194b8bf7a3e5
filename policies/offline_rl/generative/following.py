"""Gives algorithms whose actor is a generator that follows a critic what they share.

    Q:   E[ (Q_i(s, A) - (R + g^h m min_i Qbar_i(s', A')))^2 ],   A': the slow generator's
    pi:  L_clone - eta E[ Q_i(s, A_0) ] / mean |Q_j|

A_0 is drawn in all of the generator's steps with the gradient kept, so there are few. Which critic
is the numerator i is drawn anew in every update, another one is the denominator j (Wang, Hunt, Zhou
2022). Acting draws ``candidates`` samples and takes one of them with a probability in proportion to
exp(Q); by the critic that is trained, of which the policy keeps one set of weights. A file adds the
generator and L_clone.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from policies.chunks.base import move_towards
from policies.critics.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    GroupLosses,
    Transition,
)
from policies.critics.chunk_critic import ChunkCritic
from policies.critics.judged_actor import Generator, JudgedActor, per_sample, resampled
from policies.nets.shapes import (
    ChunkFeatures,
    Chunks,
    Context,
    Features,
    MemberRows,
    Noise,
    Scalar,
)
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FollowingConfig(ActorCriticConfig):
    """What algorithms of this kind are configured by."""

    # Weight of the critic against behaviour.
    eta: float = 1.0
    # Samples that one is drawn of when acting.
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
        if min(self.candidates, self.next_samples, self.slow_every) < 1:
            raise ConfigError("candidates, next_samples and slow_every must be at least 1")


FollowingT = TypeVar("FollowingT", bound=FollowingConfig)
FollowingActorT = TypeVar("FollowingActorT", bound="FollowingActor[Any]")
GeneratorT = TypeVar("GeneratorT", bound=Generator)


class FollowingActor(JudgedActor, Generic[GeneratorT]):
    """The generator, and the critic that its samples are drawn again by."""

    generator: GeneratorT
    resamples = True

    def __init__(self, config: FollowingConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.generator = self.untrained()
        self.candidates = config.candidates
        # The last array of every sample decides whether it is taken.
        self.draws = config.candidates * (self.generator.steps + 1)
        self.critic = ChunkCritic(config.critic(), spec, stats, spec.horizon)

    @abstractmethod
    def untrained(self) -> GeneratorT:
        """The generator."""

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """One of the samples from ``noise [b, candidates * (steps + 1), h, a]``."""
        count = self.candidates
        flat = per_sample(noise, count)
        seen, judged = (v.repeat_interleave(count, dim=0) for v in self.split(context))
        chunks = self.held(self.generator.sample(flat[:, :-1], seen))
        scores = self.critic.q_values(judged, chunks).amin(dim=0).view(-1, count)
        best = resampled(scores, flat[:, -1, 0].view(-1, count))
        return self.chosen(chunks.unflatten(0, (-1, count)), best)


class FollowingCritic(ActorCritic[FollowingT, FollowingActorT]):
    """Trains critic and generator together."""

    def __init__(self, config: FollowingT, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        # The policy chooses by the critic that is trained: one set of weights.
        self.actor.critic = self.critic
        self.slow = copy.deepcopy(self.actor.generator).requires_grad_(requires_grad=False)

    @abstractmethod
    def cloned(self, t: Transition, rng: torch.Generator, seen: Features) -> Scalar:
        """What keeps the generator near behaviour; ``seen``: what the actor sees."""

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
        """Cloning, and the critic's gradient through every step of a sample."""
        seen = self.actor.split(t.seen)[0]
        cloned = self.cloned(t, rng, seen)
        which = int(torch.randint(0, self.config.members, (1,), generator=rng))
        q = self.critic.steering(t.now.detach(), self.drawn(self.actor.generator, seen, rng))
        return {"policy": cloned - pull(q, which, self.config.eta)}

    def drawn(self, generator: Generator, seen: Features, rng: torch.Generator) -> ChunkFeatures:
        """One chunk per row of ``seen [b, f]``."""
        shape = (len(seen), generator.steps, self.actor.chunk_size)
        noise = torch.randn(shape, generator=rng).to(seen.device)
        return self.actor.held(generator.sample(noise, seen))

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """Move the target critic, and now and then the slow policy."""
        super().after_update(step, updated)
        if step >= self.config.slow_after and step % self.config.slow_every == 0:
            move_towards(self.slow, self.actor.generator, self.config.actor_tau)

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """One group."""
        return {"policy": (*self.actor.generator.parameters(), *self.actor.observed.parameters())}


def pull(q: MemberRows, which: int, eta: float) -> Scalar:
    """``eta`` times the mean of what the member ``which`` says, in units of another one's |Q|."""
    scale = q[(which + 1) % len(q)].detach().abs().mean().clamp(min=1e-6)
    return eta * q[which].mean() / scale
