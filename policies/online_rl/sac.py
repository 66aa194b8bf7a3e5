"""Learns to act with as much entropy as it may: soft actor-critic (SAC, Haarnoja et al. 2018).

    Q:   E[ (Q_i(s, A) - y)^2 ],   y = R + g^h m ( min_i Qbar_i(s', a') - t log pi(a'|s') )
    pi:  E[ t log pi(a|s) - min_i Q_i(s, a) ],   a' ~ pi(s'),  a ~ pi(s)
    t:   E[ -t (log pi(a|s) + H) ]

Equations 5, 7 and 18 of arXiv 1812.05905, on chunks: R and h count the steps of one, and H is the
entropy of a whole one. While practising it acts by samples, deployed by the mean.

Beside a parent (``robolearn finetune``) it learns from scratch: the parent drives the warm-up and
its share of the lanes. ``start: parent`` goes on from the weights of an actor-critic's run instead
(``policies/critics/continued.py``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, cast

import torch
from torch import nn

from policies.critics.actor_critic import GroupLosses, Transition
from policies.critics.gaussian.soft import SoftActorCritic, SoftConfig
from policies.critics.gaussian.squashed import SampledPolicy, SquashedActor
from policies.nets.shapes import CandidateRows, Features, FlatCandidates, MemberRows, Scalar
from policies.online_rl.smooth import SmoothConfig, rough_actor, rough_critic
from robolearn.contracts import Policy
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Algorithm, ParamGroup
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run, load_weights

LARGEST_DENSITY = 6.0
"""Logarithm of the density of one number at most: of a deviation of e^-5, not much squashed."""


@dataclass(frozen=True, slots=True)
class SacConfig(SoftConfig):
    """Soft actor-critic."""

    # SAC: two hidden layers of 256.
    depth: int = 2
    # What the networks begin as: new, or those of the run that practises.
    start: Literal["scratch", "parent"] = "scratch"
    # t before the first update. SAC: 1, for rewards of several per step; here a task is worth 1.
    temperature: float = 0.01
    # Whether what follows is worth its entropy, too.
    entropy_backup: bool = True
    # Updates of the critic per update of the actor. SAC: 1.
    actor_every: int = 1
    # Learning rate of the actor; null: lr.
    actor_lr: float | None = None
    # Whether networks are kept alike where observations nearly are (RO2O); null: they are not.
    smooth: SmoothConfig | None = None

    def __post_init__(self) -> None:
        SoftConfig.__post_init__(self)
        if not self.temperature > 0:
            raise ConfigError(f"temperature must be above 0, got {self.temperature}")
        if self.actor_every < 1:
            raise ConfigError(f"actor_every must be at least 1, got {self.actor_every}")
        if self.actor_lr is not None and not self.actor_lr > 0:
            raise ConfigError(f"actor_lr must be positive, got {self.actor_lr}")

    @property
    def first_weight(self) -> float:
        """Of entropy."""
        return self.temperature

    def algorithm(self) -> type[SacTraining[Any]]:
        """What trains it."""
        return Sac

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """From scratch whoever practises beside it, unless ``start`` says otherwise."""
        if self.start == "scratch":
            return SoftConfig.build(self, space, stats, None)
        if parent is None:
            raise ConfigError("start: 'parent' needs a run to go on from: --parent RUN")
        return SoftConfig.build(self, space, stats, parent)

    def explorer(self, run: Run) -> Policy:
        """Who acts while practising: samples, not the mean."""
        kind = cast("type[SquashedActor]", self.algorithm().actor_class)
        actor = kind(self, run.spec, run.stats)
        load_weights(actor, run.weights, str(run.path))
        return SampledPolicy(actor.eval(), run.spec)


SacT = TypeVar("SacT", bound=SacConfig)


class SacTraining(SoftActorCritic[SacT]):
    """Trains critic, actor and the weight of its entropy."""

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Squared TD error, and how far values of nearly equal observations are apart."""
        q = self.critic.q_values(t.now, t.chunk)
        error, smooth = self.td_loss(t, q, rng), self.config.smooth
        if smooth is not None:
            rough = rough_critic(self.critic.q, t.now, t.chunk, q, smooth, rng)
            error = error + smooth.critic * rough
        return {"critic": error}

    def td_loss(self, t: Transition, q: MemberRows, rng: torch.Generator) -> Scalar:
        """Mean squared TD error of what the members say."""
        return self.td_errors(t, q, rng).mean()

    def td_errors(self, t: Transition, q: MemberRows, rng: torch.Generator) -> MemberRows:
        """Squared TD errors of what the members say."""
        with torch.no_grad():
            chunks, density = self.drawn(t.next_seen, self.config.following, rng)
            value = self.said_of_next(t.follow, chunks, rng)
            if self.config.entropy_backup:
                value = value - self.log_entropy_weight.exp() * density
            target = self.td_target(t, value.amax(dim=1))
        return (q - target) ** 2

    def said_of_next(
        self,
        features: Features,
        chunks: FlatCandidates,
        rng: torch.Generator,  # noqa: ARG002
    ) -> CandidateRows:
        """What the target critics say together of ``chunks [b, k, g]``: ``[b, k]``."""
        return self.judged(self.target, features, chunks).amin(dim=0)

    def mean_td_loss(self, t: Transition, rng: torch.Generator) -> Scalar:
        """Without what keeps values smooth."""
        return self.td_loss(t, self.critic.q_values(t.now, t.chunk), rng)

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Those of :class:`SoftActorCritic`, where the actor learns in this update."""
        if t.step % self.config.actor_every:
            return {}
        losses, smooth = super().actor_losses(t, rng), self.config.smooth
        if smooth is None:
            return losses
        rough = rough_actor(self.actor, t.seen, smooth, rng)
        return {**losses, "policy": losses["policy"] + smooth.actor * rough}

    def grouped(
        self, parameters: Mapping[str, tuple[nn.Parameter, ...]]
    ) -> Mapping[str, ParamGroup]:
        """The actor at its own pace."""
        groups, lr = dict(super().grouped(parameters)), self.config.actor_lr
        if lr is not None:
            groups["policy"] = dataclasses.replace(groups["policy"], lr=lr)
        return groups

    def largest(self) -> float | None:
        """With the entropy that follows, no return is larger than that."""
        plain = super().largest()
        if plain is None or not self.config.entropy_backup:
            return plain
        weight = math.exp(self.log_entropy_weight.item())
        dense = LARGEST_DENSITY * self.actor.chunk_size
        return plain + weight * dense / (1.0 - self.config.discount**self.config.horizon)


class Sac(SacTraining[SacConfig]):
    """Soft actor-critic."""

    name = "sac"
