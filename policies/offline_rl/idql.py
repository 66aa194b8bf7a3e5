"""Chooses among the chunks of a trained policy by critics: IDQL (Hansen-Estruch et al. 2023).

    Q:  E[ sum_i ( Q_i(o, A) - y )^2 ],      A: the first ``stride`` actions of a chunk
    y = clip( R + g^s m W(o') ),             R: their discounted reward, o': what follows them

    backup candidates:  W = max over k chunks B of the parent at o' of min_i Qbar_i(o', B)
    backup expectile:   W = V,  V: E[ L_k( min_i Qbar_i(o, A) - V(o) ) ],  L_k(u) = |k - 1(u<0)| u^2

Acting: of ``candidates`` chunks of the parent, the one with the highest min Q. Chunked as in
Q-chunking (Li, Zhou, Levine 2025, equation 5); the expectile is equation 4 of IQL (Kostrikov et al.
2021). The chunks at o' are drawn once for every row before training, so that no update waits for
the parent. Time limits bootstrap: m is 0 only where the task is over.

With ``data.reward: {task: success, params: {discount: g}}`` a chunk costs 1 - g^s until success,
and every value lies in [-1, 0], where the targets are held.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from policies.chunks.base import move_towards, randn
from policies.chunks.mirror import Mirror, MirrorConfig
from policies.critics.bounds import EVERY, largest_value, require_bounded_rewards, require_possible
from policies.critics.candidates import draw_chunks
from policies.critics.chunk_critic import (
    ChunkCritic,
    CriticConfig,
    expectile_loss,
    least_of_members,
)
from policies.critics.diagnostics import Figures, network_figures, value_figures
from policies.critics.ensemble import from_sequential, prefixed
from policies.critics.parent import inner_policy, judged_policy
from policies.critics.reranked import RerankedPolicy
from policies.nets.encoder import FocusConfig
from policies.nets.pictures import PictureConfig
from policies.nets.shapes import Candidates, Rows
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError
from robolearn.learning import (
    Algorithm,
    Batch,
    BatchSpec,
    Losses,
    Observed,
    ParamGroup,
    Schedule,
    Weights,
)
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import PARENT, Run, load_weights, nested_run
from robolearn.types import RequestNumbers


@dataclass(frozen=True, slots=True)
class IdqlConfig:
    """Critics over a parent policy."""

    # Observations that the critics see; must equal the parent's.
    n_obs: int = 2
    # Chunk length of the parent.
    horizon: int = 16
    # Steps of a chunk that the critics judge; normally what is executed of it.
    stride: int = 8
    # Steps between the rows that transitions begin at, from the start of an episode. A policy's own
    # episodes hold a decision every ``stride`` steps; 1: from every step, with as many chunks of
    # the parent to draw.
    every: int = 1
    # Discount per control step: .98 per chunk of eight.
    discount: float = 0.9975
    # What follows a chunk is worth: the best of the parent's chunks there, or what the critics make
    # of the behaviour that was recorded, an expectile of it.
    backup: Literal["candidates", "expectile"] = "candidates"
    # Chunks of the parent at every row, of which the best counts (backup candidates).
    next_candidates: int = 4
    # Expectile of V: 0.5 is the behaviour's mean, towards 1 its best (backup expectile).
    expectile: float = 0.9
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
    # What another chunk's value must gain over the parent's own first one to be preferred. Below
    # the critics' error a difference means nothing, and the best of many picks their mistakes.
    margin: float = 0.0
    # Reflection symmetry of the task, if it has one.
    mirror: MirrorConfig | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.horizon:
            raise ConfigError(f"stride must be in 1..horizon={self.horizon}, got {self.stride}")
        if not 0.0 < self.expectile < 1.0 or not 0.0 < self.discount <= 1.0:
            raise ConfigError("expectile must be in (0, 1), discount in (0, 1]")
        if not self.lr > 0:
            raise ConfigError(f"lr must be positive, got {self.lr}")
        counts = (
            self.n_obs,
            self.every,
            self.width,
            self.batch_size,
            self.candidates,
            self.members,
        )
        if min(*counts, self.next_candidates) < 1:
            raise ConfigError(
                "counts (n_obs, every, width, members, candidates ...) must be at least 1"
            )
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ConfigError(f"bounds must rise, got {self.bounds}")

    def batches(self) -> BatchSpec:
        """Chunked transitions, and what the parent would do after them."""
        proposed = self.backup == "candidates"
        return BatchSpec(
            self.n_obs,
            self.horizon,
            self.batch_size,
            ("transition", "next_candidates") if proposed else ("transition",),
            self.discount,
            self.stride,
            every=self.every,
        )

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Idql:
        """Untrained critics over the policy of ``parent``."""
        policy = judged_policy(parent, "idql", space, self.n_obs, self.horizon)
        if self.bounds is not None:
            require_bounded_rewards(stats.reward, self.discount, self.bounds)
        kind = ProposingIdql if self.backup == "candidates" else Idql
        return kind(self, policy.spec, stats, policy)

    def critic(self, spec: PolicySpec, stats: DatasetStats) -> ChunkCritic:
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
        expected = self.backup == "expectile"
        return ChunkCritic(size, spec, stats, self.stride, values=expected)

    def load(self, run: Run) -> RerankedPolicy:
        """The trained critics over the parent kept inside the run directory."""
        critics = self.critic(run.spec, run.stats)
        load_weights(critics, _with_names_of_now(run.weights), str(run.path))
        if not (run.path / PARENT).is_dir():
            raise CheckpointError(
                f"'{run.path}' lacks the folder 'parent' with the policy it re-ranks"
            )
        parent = inner_policy(nested_run(run, PARENT))
        return RerankedPolicy(critics.eval(), parent, self.candidates, self.margin)


class Idql(Algorithm):
    """Trains the critics; the parent policy stays as it is."""

    def __init__(
        self, config: IdqlConfig, spec: PolicySpec, stats: DatasetStats, parent: Policy
    ) -> None:
        super().__init__()
        self.config, self.spec, self.batch_spec = config, spec, config.batches()
        self.critics = config.critic(spec, stats)
        self.target = copy.deepcopy(self.critics.q).requires_grad_(requires_grad=False)
        self.mirror = None if config.mirror is None else Mirror(config.mirror, spec.task_space)
        self._parent, self._largest = parent, largest_value(stats.reward, config.discount)

    def groups(self) -> Mapping[str, ParamGroup]:
        """``critic``, with what it sees by; ``value`` for an expectile."""
        c, critics = self.config, self.critics
        seen = () if critics.observed.pictures is None else critics.observed.pictures.parameters()
        judging = (*critics.q.parameters(), *seen)
        groups = {"critic": ParamGroup(judging, c.lr, c.weight_decay, schedule=c.schedule)}
        if critics.v is None:
            return groups
        value = ParamGroup(tuple(critics.v.parameters()), c.lr, c.weight_decay, schedule=c.schedule)
        return {"value": value, **groups}

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Squared TD error of every member, and the expectile loss of V."""
        if self.mirror is not None:
            batch = self.mirror.draw(batch, rng)
        critics, config = self.critics, self.config
        now = critics.observed(batch.observations, rng)
        now = now + config.observation_noise * randn(now, rng)
        chunk = critics.chunk(batch.actions, batch.observations)
        target = self.td_target(batch)
        q = critics.q_values(now, chunk)
        losses = {"critic": ((q - target) ** 2).sum(dim=0).mean()}
        metrics = {"q_mean": q.detach().mean(), "target_std": target.std()}
        if critics.v is not None:
            judged = self.target(torch.cat([now, chunk], dim=-1).detach()).amin(dim=0)
            value = critics.v(now.detach()).squeeze(0)
            losses = {"value": expectile_loss(judged - value, config.expectile).mean(), **losses}
            metrics["v_mean"] = value.detach().mean()
        if step % EVERY == 0:
            require_possible(float(q.detach().abs().max()), self._largest, step)
        return Losses(losses, metrics)

    @torch.no_grad()
    def diagnose(self, batch: Batch, rng: torch.Generator) -> Figures:  # noqa: ARG002
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
            of_policy = judged.amax(dim=1)[None]
        return {
            **value_figures(of_data, of_policy, self._largest),
            "td_error": ((of_data - self.td_target(batch)) ** 2).mean().sqrt(),
            **network_figures(critics.q, torch.cat([x, chunk], dim=-1)),
        }

    @torch.no_grad()
    def td_target(self, batch: Batch) -> Rows:
        """What Q is drawn to, within the bounds."""
        if batch.reward is None or batch.next_observations is None or batch.bootstrap is None:
            raise ConfigError("idql is fed with chunked transitions")
        target = batch.reward + batch.bootstrap * self.follow(batch, batch.next_observations)
        bounds = self.config.bounds
        return target if bounds is None else target.clamp(*bounds)

    def follow(self, batch: Batch, observations: Observed) -> Rows:
        """What follows a chunk is worth."""
        critics = self.critics
        features = critics.observed(observations)
        if critics.v is not None:
            return critics.v(features).squeeze(0)
        chunks = batch.next_candidates
        if chunks is None:
            raise ConfigError("idql is fed with the parent's chunks after every transition")
        worth = least_of_members(self.target, critics, features, chunks, observations)
        return worth.amax(dim=1)

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Move the target critics."""
        move_towards(self.target, self.critics.q, self.config.tau)

    def policy(self) -> RerankedPolicy:
        """The parent, re-ranked by the critics as they are."""
        c = self.config
        return RerankedPolicy(self.critics, self._parent, c.candidates, c.margin)

    def policy_weights(self) -> Weights:
        """The critics; the parent is kept beside them as a run of its own."""
        return self.critics.state_dict()


class ProposingIdql(Idql):
    """Learns from what the parent would do next."""

    def propose(self, observations: Observed, seeds: RequestNumbers) -> Candidates:
        """Chunks of the parent."""
        return draw_chunks(self._parent, observations, seeds, self.config.next_candidates)


def _with_names_of_now(weights: Weights) -> Weights:
    """Weights of a run of an earlier version, which kept two critics one after the other."""
    if "q.0.0.weight" not in weights:
        return weights
    found: dict[str, Tensor] = {
        **prefixed(from_sequential(weights, "q.", ("0.", "1.")), "q."),
        **prefixed(from_sequential(weights, "v.", ("",)), "v."),
    }
    for name, value in weights.items():
        if name.startswith("encoder."):
            found[f"observed.{name}"] = value
        elif not name.startswith(("q.", "v.")):
            found[name] = value
    return found
