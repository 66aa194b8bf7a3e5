"""Gives algorithms that learn to improve on the chunks of a trained policy what they share.

    Q:  E[ sum_i ( Q_i(o, A) - y )^2 ],   A: the first ``stride`` actions of a recorded chunk
    y = clip( R + g^s m W(o') ),          R: their discounted reward, o': what follows them

With ``backup_chunks`` n, R and o' are those of n chunks in a row, and s their steps: what was done
after the first of them counts as it was recorded (n-step returns), so that what an end is worth
gets n chunks back in one update.

A file says what follows a chunk is worth, ``W``, and what is learned beside the critics. The
parent is any policy with ``sample``, at any depth; its chunks are drawn once before training at
the rows that they are needed at, so that no update waits for it. Time limits bootstrap: m is 0 only
where the task is over.

With ``data.reward: {task: success, params: {discount: g}}`` a chunk costs 1 - g^s until success,
and every value lies in [-1, 0], where the targets are held.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import nn

from policies.chunks.base import move_towards, randn
from policies.chunks.mirror import Mirror, MirrorConfig
from policies.critics.bounds import EVERY, largest_value, require_bounded_rewards, require_possible
from policies.critics.candidates import draw_chunks
from policies.critics.chunk_critic import (
    ChunkCritic,
    CriticConfig,
    judged_part,
    least_of_members,
)
from policies.critics.diagnostics import (
    Figures,
    network_figures,
    return_figures,
    value_figures,
)
from policies.critics.parent import judged_policy, require_varied
from policies.critics.reranked import ChunkLimits, RerankedPolicy
from policies.nets.encoder import FocusConfig
from policies.nets.pictures import PictureConfig
from policies.nets.shapes import (
    Candidates,
    ChunkFeatures,
    Features,
    FlatCandidates,
    MemberRows,
    Rows,
    Scalar,
)
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats, SignalStats
from robolearn.errors import ConfigError
from robolearn.learning import (
    Algorithm,
    Batch,
    BatchPart,
    BatchSpec,
    Losses,
    Observed,
    ParamGroup,
    Schedule,
    Weights,
)
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run
from robolearn.types import RequestNumbers

ConfigT = TypeVar("ConfigT", bound="OverParentConfig")


@dataclass(frozen=True, slots=True)
class OverParentConfig:
    """What every algorithm that improves on a parent policy is configured by."""

    chooses: ClassVar[bool] = True
    """Whether what it does lies among the chunks that the parent's noise leads to; False: it makes
    others of them, so that a parent without noise will do."""

    # Observations that the critics see; must equal the parent's.
    n_obs: int = 2
    # Chunk length of the parent.
    horizon: int = 16
    # Steps of a chunk that the critics judge; normally what is executed of it.
    stride: int = 8
    # Chunks of the recording before a value is taken from the critics. More: rewards spread faster,
    # at the price of what others did meanwhile; three when a policy practises. Windows so close to
    # where a recording was cut off are left out.
    backup_chunks: int = 1
    # Steps between the rows that transitions begin at, from the start of an episode. A policy's own
    # episodes hold a decision every ``stride`` steps; 1: from every step, with as many chunks of
    # the parent to draw.
    every: int = 1
    # Discount per control step: .98 per chunk of eight.
    discount: float = 0.9975
    # Targets are held in between; null: they are not.
    bounds: tuple[float, float] | None = (-1.0, 0.0)
    # Networks of the critic; the least of what they say counts.
    members: int = 2
    # Hidden units of a layer.
    width: int = 256
    # Hidden layers.
    depth: int = 2
    # Samples per update.
    batch_size: int = 256
    # Learning rate of AdamW, all groups.
    lr: float = 3e-4
    # How it goes down; null: as fit.schedule says.
    schedule: Schedule | None = None
    # Decoupled weight decay.
    weight_decay: float = 1e-4
    # Polyak rate of the target critics.
    tau: float = 0.005
    # Noise added to normalised observations in training, standard deviation.
    observation_noise: float = 0.002
    # Pairs (position, pose), see the flow policy.
    relative: tuple[tuple[str, str], ...] = ()
    # A place where one observation is resolved finely, see the flow policy.
    focus: FocusConfig | None = None
    # The encoder of cameras, where the task space has some.
    picture: PictureConfig = field(default_factory=PictureConfig)
    # Gain on actions relative to the tool, see the flow policy.
    anchor: float = 0.0
    # Chunks of the parent to choose from when acting.
    candidates: int = 8
    # Chunks of the parent at every row, drawn once before training.
    next_candidates: int = 4
    # What another chunk's value must gain over the parent's own first one to be preferred. Below
    # the critics' error a difference means nothing, and the best of many picks their mistakes.
    margin: float = 0.0
    # Reflection symmetry of the task, if it has one.
    mirror: MirrorConfig | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.horizon:
            raise ConfigError(f"stride must be in 1..horizon={self.horizon}, got {self.stride}")
        if not 0.0 < self.discount <= 1.0:
            raise ConfigError(f"discount must be in (0, 1], got {self.discount}")
        if not self.lr > 0 or not 0.0 < self.tau <= 1.0:
            raise ConfigError(
                f"lr must be positive and tau in (0, 1], got {self.lr} and {self.tau}"
            )
        for name in ("weight_decay", "observation_noise", "anchor", "margin"):
            if not getattr(self, name) >= 0:
                raise ConfigError(f"{name} must be at least 0, got {getattr(self, name)}")
        counts = (self.n_obs, self.every, self.width, self.depth, self.batch_size, self.members)
        chunks = (self.backup_chunks, self.candidates, self.next_candidates)
        if min(*counts, *chunks) < 1:
            raise ConfigError(
                "counts (n_obs, every, width, members, backup_chunks, candidates ...) must be at"
                " least 1"
            )
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ConfigError(f"bounds must rise, got {self.bounds}")

    @abstractmethod
    def algorithm(self) -> type[OverParent[Any]]:
        """What trains it."""

    def parts(self) -> tuple[BatchPart, ...]:
        """What batches hold besides windows."""
        return ("transition", "next_candidates")

    def batches(self) -> BatchSpec:
        """Chunked transitions, and what the parent would do."""
        return BatchSpec(
            self.n_obs,
            self.horizon,
            self.batch_size,
            self.parts(),
            self.discount,
            self.stride * self.backup_chunks,
            self.every,
        )

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """Untrained critics over the policy of ``parent``."""
        kind = self.algorithm()
        policy = judged_policy(parent, kind.name, space, self.n_obs, self.horizon)
        if self.chooses:
            require_varied(policy, stats, kind.name, "parent" if parent is None else parent.path)
        if self.bounds is not None:
            require_bounded_rewards(self.rewards(stats), self.discount, self.bounds)
        return kind(self, policy.spec, stats, policy)

    def rewards(self, stats: DatasetStats) -> SignalStats | None:
        """Those that are learned from; None: not known."""
        return stats.reward

    def critic(self, spec: PolicySpec, stats: DatasetStats, *, values: bool = False) -> ChunkCritic:
        """Untrained critics."""
        size = CriticConfig(
            self.members,
            self.width,
            self.depth,
            self.relative,
            self.focus,
            self.picture,
            self.anchor,
        )
        return ChunkCritic(size, spec, stats, self.stride, values=values)


@dataclass(frozen=True, slots=True)
class Step:
    """An encoded batch: features ``now``, the recorded ``chunk [b, g]``, number of the update."""

    batch: Batch
    now: Features
    chunk: ChunkFeatures
    number: int


class OverParent(Algorithm, Generic[ConfigT]):
    """Trains critics; the parent policy stays as it is."""

    name: ClassVar[str]

    def __init__(
        self, config: ConfigT, spec: PolicySpec, stats: DatasetStats, parent: Policy
    ) -> None:
        super().__init__()
        self.config, self.spec, self.batch_spec = config, spec, config.batches()
        self.critics = self.untrained(spec, stats)
        self.target = copy.deepcopy(self.critics.q).requires_grad_(requires_grad=False)
        self.mirror = None if config.mirror is None else Mirror(config.mirror, spec.task_space)
        self.parent = parent
        self._largest = largest_value(config.rewards(stats), config.discount)

    def untrained(self, spec: PolicySpec, stats: DatasetStats) -> ChunkCritic:
        """The critics."""
        return self.config.critic(spec, stats)

    @abstractmethod
    def follow(self, batch: Batch, observations: Observed, rng: torch.Generator) -> Rows:
        """What follows a chunk is worth, at ``observations`` behind it."""

    def beside(self, step: Step, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """What is learned beside the critics."""
        return Losses({}, {})

    def critic_penalty(self, step: Step, q: MemberRows) -> Scalar | None:  # noqa: ARG002
        """What is added to the critics' loss, who say ``q`` of what was recorded."""
        return None

    def more_groups(self) -> Mapping[str, ParamGroup]:
        """Its parameters."""
        return {}

    def groups(self) -> Mapping[str, ParamGroup]:
        """``critic``, with what it sees by, and what is learned beside it."""
        critics = self.critics
        judging = (*critics.q.parameters(), *critics.observed.parameters())
        return {**self.more_groups(), "critic": self.group(judging)}

    def group(self, parameters: tuple[nn.Parameter, ...]) -> ParamGroup:
        """Parameters that learn as the critics do."""
        c = self.config
        return ParamGroup(parameters, c.lr, c.weight_decay, schedule=c.schedule)

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Squared TD error of every member, and the losses of what is learned beside them."""
        if self.mirror is not None:
            batch = self.mirror.draw(batch, rng)
        critics, config = self.critics, self.config
        now = critics.observed(batch.observations, rng)
        now = now + config.observation_noise * randn(now, rng)
        chunk = critics.chunk(batch.actions, batch.observations)
        target = self.td_target(batch, rng)
        q = critics.q_values(now, chunk)
        loss = ((q - target) ** 2).sum(dim=0).mean()
        encoded = Step(batch, now, chunk, step)
        penalty = self.critic_penalty(encoded, q)
        loss = loss if penalty is None else loss + penalty
        beside = self.beside(encoded, rng)
        if step % EVERY == 0:
            require_possible(float(q.detach().abs().max()), self._largest, step)
        metrics = {"q_mean": q.detach().mean(), "target_std": target.std()}
        return Losses({**beside.by_group, "critic": loss}, {**metrics, **beside.metrics})

    @torch.no_grad()
    def diagnose(self, batch: Batch, rng: torch.Generator) -> Figures:
        """Figures of ``policies/critics/diagnostics.py``. The parent's chunks are those that were
        drawn before training, at what follows; without them nothing is said of the policy.
        """
        critics, after = self.critics, batch.next_observations
        x = critics.observed(batch.observations)
        chunk = critics.chunk(batch.actions, batch.observations)
        of_data, of_policy = critics.q_values(x, chunk), None
        if batch.next_candidates is not None and after is not None:
            features = critics.observed(after)
            judged = least_of_members(critics.q, critics, features, batch.next_candidates, after)
            of_policy = judged.amax(dim=1).expand_as(of_data)
        return {
            **value_figures(of_data, of_policy, self._largest),
            **return_figures(of_data, batch),
            "td_error": ((of_data - self.td_target(batch, rng)) ** 2).mean().sqrt(),
            **network_figures(critics.q, torch.cat([x, chunk], dim=-1)),
        }

    @torch.no_grad()
    def td_target(self, batch: Batch, rng: torch.Generator) -> Rows:
        """What Q is drawn to, within the bounds."""
        if batch.reward is None or batch.next_observations is None or batch.bootstrap is None:
            raise ConfigError(f"{self.name} is fed with chunked transitions")
        following = self.follow(batch, batch.next_observations, rng)
        target = batch.reward + batch.bootstrap * following
        bounds = self.config.bounds
        return target if bounds is None else target.clamp(*bounds)

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Move the target critics."""
        move_towards(self.target, self.critics.q, self.config.tau)

    def policy(self) -> Policy:
        """The parent, re-ranked by the critics as they are."""
        c = self.config
        return RerankedPolicy(self.critics, self.parent, c.candidates, c.margin)

    def policy_weights(self) -> Weights:
        """The critics; the parent is kept beside them as a run of its own."""
        return self.critics.state_dict()

    def propose(self, observations: Observed, seeds: RequestNumbers) -> Candidates:
        """Chunks of the parent."""
        return draw_chunks(self.parent, observations, seeds, self.config.next_candidates)

    def judged(
        self, chunks: Candidates | None, observations: Observed
    ) -> tuple[FlatCandidates, ChunkLimits]:
        """What the critics judge of the parent's ``chunks`` at ``observations``, and the limits of
        actions there; :class:`ConfigError` where nothing was drawn.
        """
        if chunks is None:
            raise ConfigError(f"{self.name} is fed with the parent's chunks at every row")
        limits = ChunkLimits(self.critics, observations)
        return judged_part(self.critics, chunks, observations), limits
