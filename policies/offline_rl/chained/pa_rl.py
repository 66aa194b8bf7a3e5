"""Teaches a policy of any kind the better of its own chunks: PA-RL (Mark et al. 2024), offline.

    B_1..B_k: chunks of the parent at o; the best ``keep`` of them climb the critic:
        B <- clip( B + size dQ/dB ),  ``steps`` times, the best that was seen remains
    Q:   E[ sum_i ( Q_i(o, A) - clip( R + g^s m max_j min_i Qbar_i(o', B'_j) ) )^2 ]
         + penalty E[ log sum_j exp max(Q(o, B_j), G) - Q(o, A) ]     (with a penalty: Cal-QL's)
    pi:  its own imitation loss on B*, drawn by softmax(Q / temperature), or the best of all

G is the return that was recorded from there on (Nakamoto et al. 2023): values of what the parent
does are pushed down no further than that. The policy improves through its own loss alone, whatever
it is made of; nothing is differentiated through its sampler.

Of the paper's settings, 32 samples, keep 10 and lr 5e-5 were read in the authors' code; here fewer,
for a CPU. Their critics are distributional and ten, these are regressions. Chunks are the
parent's, drawn once before training (the paper does so for policies of billions of weights).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch

from policies.chunks.base import ChunkAlgorithm
from policies.chunks.student import student_of, with_weights
from policies.critics.chunk_critic import least
from policies.critics.editing.ascent import Ascent, AscentConfig
from policies.critics.over_parent import OverParent, OverParentConfig, Step
from policies.critics.parent import kept_parent, policy_for
from policies.critics.reranked import Exploration, RerankedPolicy, whole
from policies.nets.shapes import Chunks, MemberRows, Rows, Scalar
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import (
    Algorithm,
    Batch,
    BatchPart,
    Losses,
    Observed,
    ParamGroup,
    Weights,
)
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run, load_weights

CRITICS, STUDENT = "critics.", "policy."


@dataclass(frozen=True, slots=True)
class PaRlConfig(OverParentConfig):
    """Policy-agnostic RL."""

    chooses: ClassVar[bool] = False

    # How far chunks climb the critic.
    ascent: AscentConfig = field(default_factory=AscentConfig)
    # Whether the policy is taught the chunks that climbed; false: the parent stays as it is, which
    # may then be of any kind.
    retrain: bool = True
    # Learning rate of the policy.
    policy_lr: float = 5e-5
    # Which of the chunks is taught: the best, or one drawn by softmax(Q / temperature).
    taught: Literal["drawn", "best"] = "drawn"
    # Of that draw, in units of value.
    temperature: float = 0.01
    # Updates of the critics before the policy learns: before, they know nothing.
    critics_first: int = 1000
    # Whether chunks climb when acting, too; false: the policy alone, one call of it.
    improve: bool = True
    # Weight of Cal-QL's penalty. The paper: .005.
    penalty: float = 0.0

    def __post_init__(self) -> None:
        OverParentConfig.__post_init__(self)
        if not self.policy_lr > 0 or not self.temperature > 0:
            raise ConfigError("policy_lr and temperature must be positive")
        if self.penalty < 0 or self.critics_first < 0:
            raise ConfigError("penalty and critics_first must be at least 0")
        if not (self.retrain or self.improve):
            raise ConfigError("without retrain and improve nothing is left but the parent")

    def algorithm(self) -> type[PaRl]:
        """What trains it."""
        return PaRl

    def parts(self) -> tuple[BatchPart, ...]:
        """The parent's chunks here and there; returns for the penalty."""
        parts: tuple[BatchPart, ...] = ("transition", "candidates", "next_candidates")
        return (*parts, "returns") if self.penalty > 0 else parts

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """Untrained critics, and the policy of ``parent`` as it is."""
        built = OverParentConfig.build(self, space, stats, parent)
        if self.retrain and isinstance(built, PaRl) and parent is not None:
            built.student = student_of(parent, space, "pa_rl: set retrain to false, or")
        return built

    def load(self, run: Run) -> Policy:
        """The trained policy, and its critics."""
        return self._acting(run, None)

    def explorer(self, run: Run) -> Policy:
        """Who acts while practising: of what climbed, one is drawn as it is taught."""
        drawn = Exploration(temperature=self.temperature) if self.taught == "drawn" else None
        return self._acting(run, drawn)

    def _acting(self, run: Run, exploration: Exploration | None) -> Policy:
        parent = kept_parent(run)
        if self.retrain:
            parent = with_weights(parent, run.weights, STUDENT)
        policy = policy_for(parent, run.spec.task_space)
        critics = self.critic(run.spec, run.stats)
        judging = {
            k.removeprefix(CRITICS): v for k, v in run.weights.items() if k.startswith(CRITICS)
        }
        load_weights(critics, judging, str(run.path))
        if not self.improve:
            return policy
        ascent = Ascent(self.ascent)
        return RerankedPolicy(
            critics.eval(),
            policy,
            self.candidates,
            self.margin,
            ascent,
            exploration=exploration,
        )


class PaRl(OverParent[PaRlConfig]):
    """Trains the critics, and the policy by its own loss."""

    name = "pa_rl"

    def __init__(
        self, config: PaRlConfig, spec: PolicySpec, stats: DatasetStats, parent: Policy
    ) -> None:
        super().__init__(config, spec, stats, parent)
        self.ascent = Ascent(config.ascent)
        self.student: ChunkAlgorithm[Any, Any] | None = None

    def follow(self, batch: Batch, observations: Observed, rng: torch.Generator) -> Rows:  # noqa: ARG002
        """The best of what climbed from the parent's chunks."""
        flat, limits = self.judged(batch.next_candidates, observations)
        features = self.critics.observed(observations)
        options = self.ascent.edited(self.target, features, flat, limits)
        return least(self.target, features, options.flat).amax(dim=1)

    def beside(self, step: Step, rng: torch.Generator) -> Losses:
        """The policy's own loss on what climbed, and the penalty on what the parent does."""
        student, batch = self.student, step.batch
        if student is None or step.number < self.config.critics_first:
            return Losses({}, {})
        taught = self.improved(step, rng)
        mask = torch.ones_like(batch.action_mask)
        lesson = dataclasses.replace(batch, actions=taught, action_mask=mask)
        return student(lesson, step.number, rng)

    def improved(self, step: Step, rng: torch.Generator) -> Chunks:
        """One chunk per row that climbed, in SI units."""
        batch, now = step.batch, step.now.detach()
        flat, limits = self.judged(batch.candidates, batch.observations)
        with torch.no_grad():
            options = self.ascent.edited(self.critics.q, now, flat, limits)
            value = least(self.critics.q, now, options.flat)
            chosen = value.argmax(dim=1, keepdim=True)
            if self.config.taught == "drawn":
                shares = torch.softmax(value / self.config.temperature, dim=1)
                # On the CPU, where the generator is.
                drawn = torch.multinomial(shares.cpu(), 1, generator=rng)
                chosen = drawn.to(value.device)
            if batch.candidates is None:
                raise ConfigError("pa_rl is fed with the parent's chunks at every row")
            made = whole(options, batch.candidates, limits)
        rows = torch.arange(len(made), device=made.device)
        return made[rows, chosen.squeeze(1)]

    def critic_penalty(self, step: Step, q: MemberRows) -> Scalar | None:
        """Cal-QL's: what the parent does is worth no more than it must be."""
        batch = step.batch
        if batch.returns is None or not self.config.penalty:
            return None
        flat, _ = self.judged(batch.candidates, batch.observations)
        count = flat.shape[1]
        features = step.now.repeat_interleave(count, dim=0)
        other = self.critics.q_values(features, flat.flatten(0, 1)).unflatten(1, (-1, count))
        floored = torch.maximum(other, batch.returns[None, :, None])
        apart = torch.logsumexp(floored, dim=2) - q
        return self.config.penalty * apart.sum(dim=0).mean()

    def more_groups(self) -> Mapping[str, ParamGroup]:
        """Those of the policy, at its own pace."""
        if self.student is None:
            return {}
        c = self.config
        return {
            name: dataclasses.replace(group, lr=c.policy_lr, schedule=c.schedule)
            for name, group in self.student.groups().items()
        }

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """The target critics, and the policy's average once it learns."""
        super().after_update(step, updated)
        if self.student is not None and updated & {*self.student.groups()}:
            self.student.after_update(step, updated)

    def policy(self) -> Policy:
        """As it acts."""
        c, student = self.config, self.student
        acting = self.parent if student is None else student.policy()
        if not c.improve:
            return acting
        return RerankedPolicy(self.critics, acting, c.candidates, c.margin, self.ascent)

    def policy_weights(self) -> Weights:
        """Critics and policy; the parent is kept beside them as a run of its own."""
        kept = {f"{CRITICS}{k}": v for k, v in self.critics.state_dict().items()}
        if self.student is not None:
            weights = self.student.policy_weights()
            kept |= {f"{STUDENT}{k}": v for k, v in weights.items()}
        return kept
