"""Goes everywhere by directions of one map: HILP (Park, Kreiman, Levine 2024).

    map:     V_i(s, g) = -|phi_i(s) - phi_i(g)|, by IVL, expectile .95 (goal_values.py)
    skill:   r(s, A, s', z) = <phi_1(s') - phi_1(s), z>,  z uniform on the unit sphere
             Q, V, pi(A | s, z) by IQL, expectile .9, weights exp(10 A) (policies/offline_rl/iql.py)

    executed for a goal:  A = pi(s, z),  z = (phi_1(g) - phi_1(s)) / |phi_1(g) - phi_1(s)|

The map keeps times: how far apart two places lie is how long the way takes, discounted. A skill
goes as fast as it can along one direction, and a goal lies in one. phi sees what goals are about
(the newest of the observed signals that goals.signals names). Goals, shares of them and settings
are those of the authors' code for goals.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from policies.chunks.base import move_towards, randn
from policies.critics.actor_critic import ActorCriticConfig, DeterministicActor
from policies.critics.chunk_critic import ChunkCritic
from policies.critics.diagnostics import Figures
from policies.critics.ensemble import Ensemble
from policies.critics.goal_values import GoalFeatures, implicit_value_loss, without_goals
from policies.critics.hindsight import require_goals
from policies.nets.shapes import Context, Features, MemberNumbers, MemberRows
from policies.offline_rl.iql import Iql, IqlConfig
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats, SignalStats
from robolearn.errors import ConfigError
from robolearn.learning import AnyTensor, Batch, FutureSpec, Losses, Observed, ParamGroup
from robolearn.spec import SignalSpec

SKILL = "skill/direction"
"""What the policy of skills is told instead of a goal."""
SHORTEST = 1e-6
"""Of squared distances: where they are 0, a root has no slope. As in the authors' code."""


@dataclass(frozen=True, slots=True)
class HilpConfig(IqlConfig):
    """Skills of a Hilbert representation."""

    # Published: single actions.
    horizon: int = 1
    # Published: 3 layers of 512, batches of 1024.
    depth: int = 3
    # Inverse temperature of the weights. Published: 10.
    beta: float = 10.0
    # Expectile of the map's values. Published: .95.
    map_expectile: float = 0.95
    # Numbers of a place on the map. Published: 32.
    skills: int = 32

    def __post_init__(self) -> None:
        IqlConfig.__post_init__(self)
        if self.skills < 1 or not 0.0 < self.map_expectile < 1.0:
            raise ConfigError("skills must be at least 1, map_expectile in (0, 1)")
        if self.bisimulation is not None:
            raise ConfigError("bisimulation: rewards of hilp's skills are drawn, not of a task")
        require_goals(self.goals, "hilp")

    def value_goals(self) -> FutureSpec:
        """Never the row itself."""
        return FutureSpec(geometric=0.625, random=0.375, discount=self.discount)

    def algorithm(self) -> type[Hilp]:
        """What trains it."""
        return Hilp


class HilbertMap(nn.Module):
    """``phi_i``, and the values that its distances are."""

    def __init__(self, config: HilpConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        self.about, c = GoalFeatures(config, spec, stats), config
        self.phi = Ensemble(c.members, self.about.size, c.width, c.depth, c.skills)

    def now(self, observations: Observed, rng: torch.Generator | None = None) -> MemberNumbers:
        """Where one is."""
        return self.phi.several(self.about.now(observations, rng))

    def goal(self, observations: Observed, rng: torch.Generator | None = None) -> MemberNumbers:
        """Where the goal is."""
        return self.phi.several(self.about.goal(observations, rng))

    def forward(self, observations: Observed, rng: torch.Generator | None = None) -> MemberRows:
        """``V_i``."""
        apart = self.goal(observations, rng) - self.now(observations, rng)
        return -(apart**2).sum(dim=-1).clamp(min=SHORTEST).sqrt()

    @torch.no_grad()
    def towards(self, observations: Observed) -> Features:
        """The direction of the goal, of length 1 ``[b, skills]``."""
        apart = self.goal(observations)[0] - self.now(observations)[0]
        return functional.normalize(apart, dim=-1)


def told_skills(
    config: ActorCriticConfig, spec: PolicySpec, stats: DatasetStats, size: int
) -> tuple[PolicySpec, DatasetStats]:
    """``spec`` with a skill of ``size`` numbers where goals were, which is taken as it is."""
    plain = without_goals(config, spec)
    skill = SignalSpec(SKILL, (size,), rate_hz=spec.task_space.rate_hz)
    seen = (*plain.task_space.observations, skill)
    space = dataclasses.replace(plain.task_space, observations=seen)
    ones = (1.0,) * size
    known = SignalStats(1, tuple(-v for v in ones), ones, (0.0,) * size, ones)
    return dataclasses.replace(plain, task_space=space), dataclasses.replace(
        stats,
        observations={**stats.observations, SKILL: known},
        scaling={**stats.scaling, SKILL: "none"},
    )


class HilpActor(DeterministicActor):
    """``pi(s, z)``, and the map that says which way a goal lies."""

    def __init__(self, config: HilpConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, *told_skills(config, spec, stats, config.skills))
        self.map = HilbertMap(config, spec, stats)

    def context(self, observations: Observed, rng: torch.Generator | None = None) -> Context:
        """Features of what is seen and of the skill; without one, of the one towards the goal."""
        if SKILL not in observations:
            z = self.map.towards(observations)
            observations = with_skill(observations, z, self.config.n_obs)
        return super().context(observations, rng)


def with_skill(observations: Observed, z: Features, n_obs: int) -> dict[str, AnyTensor]:
    """``observations`` with the skill ``z [b, skills]`` at all of their times."""
    return {**observations, SKILL: z[:, None].expand(-1, n_obs, -1)}


class Hilp(Iql):
    """Trains the map, and skills on it by IQL."""

    name = "hilp"
    actor_class = HilpActor
    config: HilpConfig

    def __init__(self, config: HilpConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.slow_map = copy.deepcopy(self.map).requires_grad_(requires_grad=False)

    @property
    def map(self) -> HilbertMap:
        """The actor's, with which it is kept."""
        actor: Any = self.actor
        return actor.map

    def untrained(self, spec: PolicySpec, stats: DatasetStats) -> ChunkCritic:
        """A critic of skills."""
        return super().untrained(*told_skills(self.config, spec, stats, self.config.skills))

    def groups(self) -> Mapping[str, ParamGroup]:
        """The map, and what IQL learns."""
        return {**self.grouped({"map": tuple(self.map.parameters())}), **super().groups()}

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """The policy of skills, which the map is no part of."""
        acting = nn.ModuleList([self.actor.observed, self.actor.policy])
        return {"policy": tuple(acting.parameters())}

    def losses(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Of the map for the batch's goals, and of IQL for skills instead of them."""
        k = self.config.map_expectile
        found = implicit_value_loss(self.map, self.slow_map, batch, k, rng)
        skills = super().losses(self.explored(batch, rng), step, rng)
        return Losses({"map": found, **skills.by_group}, skills.metrics)

    @torch.no_grad()
    def explored(self, batch: Batch, rng: torch.Generator) -> Batch:
        """The batch with a random skill for every row, and rewards of it; skills never end."""
        c, follow = self.config, batch.next_observations
        if follow is None:
            raise ConfigError("hilp is fed with chunked transitions")
        moved = self.map.now(follow)[0] - self.map.now(batch.observations)[0]
        z = functional.normalize(randn(moved, rng), dim=-1)
        reward = (moved * z).sum(dim=-1)
        return dataclasses.replace(
            batch,
            observations=with_skill(batch.observations, z, c.n_obs),
            next_observations=with_skill(follow, z, c.n_obs),
            reward=reward,
            bootstrap=torch.full_like(reward, c.discount**c.horizon),
            actor_goals=None,
        )

    def diagnose(self, batch: Batch, rng: torch.Generator) -> Figures:
        """Of skills."""
        return super().diagnose(self.explored(batch, rng), rng)

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """Move the targets."""
        super().after_update(step, updated)
        move_towards(self.slow_map, self.map, self.config.tau)
