"""Gives algorithms that learn an actor and a critic from rewarded data what they share.

    observations --critic's encoder--> features --+--> Q_i(o, A), target: a slow copy
    chunk A [b, h, a] --codec--> normalised ------+
    observations --actor's encoder--> context ------> the actor (each file its own) --> chunk

An algorithm file adds its configuration, its actor, ``critic_loss`` and ``actor_losses``. Action
space is the whole chunk (Q-chunking, Li, Zhou, Levine 2025); with ``horizon`` 1 a single action.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from policies.chunks.base import move_towards
from policies.chunks.mirror import Mirror, MirrorConfig
from policies.chunks.policy import ChunkPolicy, ChunkSampler
from policies.critics.bounds import EVERY, largest_value, require_bounded_rewards, require_possible
from policies.critics.candidates import draw_chunks
from policies.critics.chunk_critic import ChunkCritic, CriticConfig
from policies.critics.continued import continue_from
from policies.critics.diagnostics import (
    Figures,
    network_figures,
    return_figures,
    value_figures,
)
from policies.critics.hindsight import REWARD, VALUES, HindsightConfig
from policies.critics.observed import ObservedFeatures
from policies.nets.bisimulation import BisimulationConfig, bisimulation_loss
from policies.nets.encoder import ActionCodec, FocusConfig
from policies.nets.mlp import Mlp
from policies.nets.pictures import PictureConfig
from policies.nets.shapes import (
    ChunkFeatures,
    Chunks,
    Context,
    Features,
    Noise,
    Rows,
    Scalar,
)
from robolearn.contracts import Normalization, Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats, SignalStats
from robolearn.errors import ConfigError
from robolearn.learning import (
    Algorithm,
    Batch,
    BatchPart,
    BatchSpec,
    FutureSpec,
    Losses,
    Observed,
    ParamGroup,
    Schedule,
    Weights,
    with_goals,
)
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run, load_weights

# One scalar per parameter group.
GroupLosses = Mapping[str, Scalar]

ConfigT = TypeVar("ConfigT", bound="ActorCriticConfig")
ActorT = TypeVar("ActorT", bound=ChunkSampler)


@dataclass(frozen=True, slots=True)
class ActorCriticConfig:
    """What every algorithm with an actor and a critic is configured by."""

    # Observations at the control rate that actor and critic see, newest last.
    n_obs: int = 1
    # Actions per chunk, all of which are executed; 1: single actions.
    horizon: int = 5
    # Scaling of observations and actions.
    normalization: Normalization = "minmax"
    # Scaling of observations alone; null: as ``normalization`` says.
    observation_scaling: Normalization | None = None
    # Discount per control step.
    discount: float = 0.99
    # Targets are held in between; null: they are not.
    bounds: tuple[float, float] | None = None
    # Networks of the critic.
    members: int = 2
    # Hidden units of every network's layers. The OGBench family uses 512: 2.8 times the work.
    width: int = 256
    # Hidden layers of every network.
    depth: int = 4
    # Normalised actions are held within plus and minus this (minmax scaling: 1 is what was seen).
    clip: float = 1.0
    # Samples per update.
    batch_size: int = 256
    # Learning rate of AdamW, all groups.
    lr: float = 3e-4
    # How it goes down after the warm-up; null: as fit.schedule says.
    schedule: Schedule | None = "constant"
    # Decoupled weight decay.
    weight_decay: float = 0.0
    # Polyak rate of the target critic.
    tau: float = 0.005
    # Pairs (position, pose), see the flow policy.
    relative: tuple[tuple[str, str], ...] = ()
    # A place where one observation is resolved finely, see the flow policy.
    focus: FocusConfig | None = None
    # The encoder of cameras, where the task space has some.
    picture: PictureConfig = field(default_factory=PictureConfig)
    # Gain on actions relative to the tool, see the flow policy.
    anchor: float = 0.0
    # Reflection symmetry of the task, if it has one.
    mirror: MirrorConfig | None = None
    # Goals that the policy is told, with rewards of theirs; null: the recordings' own rewards.
    goals: HindsightConfig | None = None
    # A learned encoder by which histories are apart as their rewards are; null: none.
    bisimulation: BisimulationConfig | None = None

    def __post_init__(self) -> None:
        if min(self.n_obs, self.horizon, self.members, self.width, self.depth) < 1:
            raise ConfigError("n_obs, horizon, members, width and depth must be at least 1")
        if not 0.0 < self.discount <= 1.0 or not 0.0 < self.tau <= 1.0:
            raise ConfigError("discount and tau must be in (0, 1]")
        if not self.lr > 0 or not self.clip > 0 or self.batch_size < 1:
            raise ConfigError("lr and clip must be positive, batch_size at least 1")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ConfigError(f"bounds must rise, got {self.bounds}")

    @abstractmethod
    def algorithm(self) -> type[ActorTraining[Any, Any]]:
        """What trains it, and names its actor."""

    def parts(self) -> tuple[BatchPart, ...]:
        """What batches hold besides windows."""
        return ("transition",)

    def batches(self) -> BatchSpec:
        """Chunked transitions, and goals if there are any."""
        steps = self.horizon
        spec = BatchSpec(self.n_obs, steps, self.batch_size, self.parts(), self.discount, steps)
        return spec if self.goals is None else self.goals.asked(spec, self.value_goals())

    def value_goals(self) -> FutureSpec:
        """Rows whose observations values are learned for, unless ``goals`` says others."""
        return VALUES

    def rewards(self, stats: DatasetStats) -> SignalStats | None:
        """Those that are learned from; None: not known."""
        return stats.reward if self.goals is None else REWARD

    def policy_spec(self, space: TaskSpace) -> PolicySpec:
        """What the trained policy reads and writes."""
        return PolicySpec(space, self.n_obs, self.horizon, self.horizon, self.normalization)

    def critic(self) -> CriticConfig:
        """Size of the critic, and what it sees."""
        return CriticConfig(
            self.members,
            self.width,
            self.depth,
            self.relative,
            self.focus,
            self.picture,
            self.anchor,
            self.observation_scaling,
            self.bisimulation,
        )

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """An untrained algorithm, whose initial weights come from torch's global generator; with
        ``parent`` it goes on from the networks of that run.
        """
        kind = self.algorithm()
        if self.bounds is not None:
            require_bounded_rewards(self.rewards(stats), self.discount, self.bounds)
        built = kind(self, self.policy_spec(space), stats)
        if parent is not None:
            continue_from(built, self, parent, space, stats)
        return built

    def load(self, run: Run) -> Policy:
        """The trained policy of a run directory."""
        actor = self.algorithm().actor_class(self, run.spec, run.stats)
        load_weights(actor, run.weights, str(run.path))
        return ChunkPolicy(actor.eval(), run.spec)


def mlp(inputs: int, outputs: int, width: int, depth: int) -> Mlp:
    """Hidden layers with GELU and without norms: actors of the OGBench family have none."""
    return Mlp(inputs, outputs, width, depth)


class Actor(ChunkSampler):
    """Encoder and action codec; a file adds the way from noise and context to a chunk."""

    def __init__(self, config: ActorCriticConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        self.config = config
        self.observed = ObservedFeatures(
            spec,
            stats,
            relative=config.relative,
            focus=config.focus,
            picture=config.picture,
            scaling=config.observation_scaling,
            bisimulation=config.bisimulation,
        )
        self.codec = ActionCodec(spec, stats, config.anchor)
        self.horizon, self.action_size = spec.horizon, spec.task_space.action_size
        self.chunk_size = self.horizon * self.action_size

    def context(self, observations: Observed, rng: torch.Generator | None = None) -> Context:
        """Features of what is seen."""
        return self.observed(observations, rng)

    def net(self, inputs: int) -> Mlp:
        """A network from ``inputs`` numbers to a flat chunk."""
        return mlp(inputs, self.chunk_size, self.config.width, self.config.depth)

    def held(self, chunk: ChunkFeatures) -> ChunkFeatures:
        """Within the range that actions are held in."""
        return chunk.clamp(-self.config.clip, self.config.clip)


class DeterministicActor(Actor):
    """One chunk per observation."""

    def __init__(self, config: ActorCriticConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.policy = self.net(self.observed.size)

    def chunk(self, context: Context) -> ChunkFeatures:
        """``pi(s)``, within the range that actions are held in."""
        return self.config.clip * torch.tanh(self.policy(context) / self.config.clip)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """The same chunk whatever the noise."""
        del noise
        return self.chunk(context).unflatten(1, (self.horizon, self.action_size))


@dataclass(frozen=True, slots=True)
class Transition:
    """A batch in network units: features of the critic ``now`` and ``follow``, contexts of the
    actor ``seen`` and ``next_seen``, the normalised flat ``chunk [b, g]`` and which of its numbers
    were really done, ``there [b, g]``; ``reward [b]`` and ``bootstrap [b]``.
    """

    batch: Batch
    now: Features
    follow: Features
    seen: Context
    next_seen: Context
    chunk: ChunkFeatures
    there: ChunkFeatures
    reward: Rows
    bootstrap: Rows
    # Number of the update.
    step: int

    def mean(self, values: ChunkFeatures) -> Scalar:
        """Mean of ``values [b, g]`` over the actions that were done."""
        return (values * self.there).sum() / self.there.sum().clamp(min=1.0)


class ActorTraining(Algorithm, Generic[ConfigT, ActorT]):
    """Trains an actor, which is the policy, beside what judges it."""

    name: ClassVar[str]
    actor_class: ClassVar[type[ChunkSampler]]
    actor: ActorT

    def __init__(self, config: ConfigT, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        self.config, self.spec, self.batch_spec = config, spec, config.batches()
        self.mirror = None if config.mirror is None else Mirror(config.mirror, spec.task_space)
        self._largest = largest_value(config.rewards(stats), config.discount)

    @abstractmethod
    def losses(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Of every group that learns in this update."""

    def largest(self) -> float | None:
        """What no value is beyond; None: not known."""
        return self._largest

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """:meth:`losses`, of a batch that may be reflected in part."""
        if self.mirror is not None:
            batch = self.mirror.draw(batch, rng)
        return self.losses(batch, step, rng)

    def grouped(
        self, parameters: Mapping[str, tuple[nn.Parameter, ...]]
    ) -> Mapping[str, ParamGroup]:
        """Groups that learn as the configuration says."""
        c = self.config
        return {
            name: ParamGroup(p, c.lr, c.weight_decay, betas=(0.9, 0.999), schedule=c.schedule)
            for name, p in parameters.items()
        }

    def policy(self) -> Policy:
        """The actor as it is."""
        return ChunkPolicy(self.actor, self.spec)

    def policy_weights(self) -> Weights:
        """The actor's."""
        return self.actor.state_dict()


class ActorCritic(ActorTraining[ConfigT, ActorT]):
    """Trains an actor and a critic side by side."""

    # Whether V(o) is learned besides Q(o, A).
    values: ClassVar[bool] = False

    def __init__(self, config: ConfigT, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.critic = self.untrained(spec, stats)
        actor: Any = self.actor_class(config, spec, stats)
        self.actor: ActorT = actor
        self.target = copy.deepcopy(self.critic.q).requires_grad_(requires_grad=False)

    def untrained(self, spec: PolicySpec, stats: DatasetStats) -> ChunkCritic:
        """The critic."""
        c = self.config
        return ChunkCritic(c.critic(), spec, stats, c.horizon, values=self.values)

    @abstractmethod
    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Losses of the critic's groups."""

    @abstractmethod
    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Losses of the actor's groups; with goals of the actor's own, whose rewards are not those
        of ``t``.
        """

    @abstractmethod
    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """Parameters of the actor by group."""

    def groups(self) -> Mapping[str, ParamGroup]:
        """``critic``, ``value`` where V is learned, and those of the actor."""
        critic, found = self.critic, dict(self.actor_groups())
        found = {"critic": (*critic.q.parameters(), *critic.observed.parameters()), **found}
        if critic.v is not None:
            found = {"value": tuple(critic.v.parameters()), **found}
        return self.grouped(found)

    def losses(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Encode the batch once, and ask for all losses."""
        t = self.encoded(batch, step, rng)
        pursued = t
        if batch.actor_goals is not None:
            pursued = self.encoded(with_goals(batch, batch.actor_goals), step, rng)
        losses = {**self.critic_loss(t, rng), **self.actor_losses(pursued, rng)}
        losses = self.with_bisimulation(losses, t)
        if step % EVERY:
            return Losses(losses, {})
        # Now and then: two more passes, and somebody waits for the device.
        with torch.no_grad():
            q = self.target(torch.cat([t.now, t.chunk], dim=-1))
        require_possible(float(q.abs().max()), self.largest(), step)
        return Losses(losses, {"q_mean": q.mean(), "q_spread": q.std()})

    def with_bisimulation(self, losses: GroupLosses, t: Transition) -> GroupLosses:
        """The same, where histories are encoded with what makes their encoders tell states."""
        c = self.config.bisimulation
        if c is None or not c.weight:
            return losses
        # What an actor knows besides its own features comes behind them.
        seen, next_seen = (x[:, : c.size] for x in (t.seen, t.next_seen))
        encoded = {"critic": (t.now, t.follow), self._seeing: (seen, next_seen)}
        apart = {
            group: losses[group] + c.weight * bisimulation_loss(*pair, t.reward, t.bootstrap)
            for group, pair in encoded.items()
            if group in losses
        }
        return {**losses, **apart}

    @cached_property
    def _seeing(self) -> str:
        """The group that the actor's encoder learns in; who has none sees as the critic does."""
        named = self.actor.named_parameters()
        own = {id(p) for name, p in named if name.startswith("observed.")}
        groups = self.actor_groups().items()
        return next((name for name, found in groups if own & {id(p) for p in found}), "critic")

    def diagnose(self, batch: Batch, rng: torch.Generator) -> Figures:
        """Figures of ``policies/critics/diagnostics.py``."""
        t = self.encoded(batch, 0, rng)
        td_loss, more = self.mean_td_loss(t, rng).detach(), self.more_figures(t, rng)
        with torch.no_grad():
            seeds = np.arange(len(batch.actions))
            own = draw_chunks(self.policy(), batch.observations, seeds, 1)[:, 0]
            chunk = self.critic.chunk(own.to(t.chunk.device), batch.observations)
            of_data = self.critic.q_values(t.now, t.chunk)
            of_policy = self.critic.q_values(t.now, chunk)
            apart = t.mean((chunk - t.chunk) ** 2).sqrt()
        return {
            **value_figures(of_data, of_policy, self.largest()),
            **return_figures(of_data, batch),
            "td_error": td_loss.clamp(min=0.0).sqrt(),
            "distance": apart,
            **network_figures(self.critic.q, torch.cat([t.now, t.chunk], dim=-1)),
            **more,
        }

    def mean_td_loss(self, t: Transition, rng: torch.Generator) -> Scalar:
        """Mean squared TD error: what the critic's group learns from. A file whose loss has other
        terms leaves them out here.
        """
        return self.critic_loss(t, rng)["critic"]

    def more_figures(self, t: Transition, rng: torch.Generator) -> Figures:  # noqa: ARG002
        """What a file has to add for the diagnosis."""
        return {}

    def encoded(self, batch: Batch, step: int, rng: torch.Generator) -> Transition:
        """See :class:`Transition`."""
        follow = batch.next_observations
        if batch.reward is None or follow is None or batch.bootstrap is None:
            raise ConfigError(f"{self.name} is fed with chunked transitions")
        critic, actor = self.critic, self.actor
        size = batch.actions.shape[-1]
        there = batch.action_mask.repeat_interleave(size, dim=1).float()
        now = critic.observed(batch.observations, rng)
        with torch.no_grad():
            after, next_seen = critic.observed(follow), actor.context(follow)
        return Transition(
            batch=batch,
            now=now,
            follow=after,
            seen=actor.context(batch.observations, rng),
            next_seen=next_seen,
            chunk=critic.chunk(batch.actions, batch.observations),
            there=there,
            reward=batch.reward,
            bootstrap=batch.bootstrap,
            step=step,
        )

    def td_target(self, t: Transition, following: Rows) -> Rows:
        """``R + g^h m following``, within the bounds."""
        target = t.reward + t.bootstrap * following
        return target if self.config.bounds is None else target.clamp(*self.config.bounds)

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Move the target critic."""
        move_towards(self.target, self.critic.q, self.config.tau)
