"""Fits what one policy is worth to recordings of others, chunk by chunk.

    o, A[:s] --R, g^s m--> o'      recorded: s steps, as many as the policy executes of a chunk
    A'_1 .. A'_k ~ pi(o')          the policy's own, drawn once for every row before training
    value at a start = mean over A ~ pi(start) of what is fitted there, over all members

One evaluator with one set of settings judges all policies: what it says of them may be compared,
which critics that were trained with different settings may not (their discount, expectile or
pessimism shifts values). It has settings of its own, is only as good as the data cover what the
policy does, and in the worst case is no easier than trying (arXiv 2312.02355): a ranking is to be
checked against trials.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from policies.chunks.base import move_towards
from policies.critics.bounds import possible_values
from policies.critics.candidates import draw_chunks
from policies.critics.chunk_critic import ChunkCritic, CriticConfig
from policies.critics.ensemble import Ensemble
from policies.nets.encoder import FocusConfig
from policies.nets.shapes import Candidates, Features, ManyFeatures, MemberRows, Scalar
from robolearn.contracts import Normalization, Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Algorithm, Batch, BatchSpec, Losses, Observed, ParamGroup, Weights
from robolearn.types import RequestNumbers


@dataclass(frozen=True, slots=True)
class EvaluationConfig:
    """How policies are judged; the same for all that are compared."""

    # expected: the mean (fitted Q evaluation); distributional: the whole distribution of returns
    # (fitted likelihood estimation).
    method: Literal["expected", "distributional"] = "expected"
    # Discount per control step.
    discount: float = 0.99
    # Range of values; null: what the rewards and the discount allow.
    bounds: tuple[float, float] | None = None
    # Observations at the control rate that the evaluator sees at least.
    n_obs: int = 1
    # Chunks of the policy per transition, and per start.
    draws: int = 2
    # Networks; how far they disagree is told.
    members: int = 3
    # Hidden units of a layer.
    width: int = 128
    # Hidden layers.
    depth: int = 2
    # Places of the distribution over the range of values (distributional).
    atoms: int = 51
    # Scaling of observations and actions.
    normalization: Normalization = "minmax"
    # Samples per update.
    batch_size: int = 256
    # Learning rate of AdamW.
    lr: float = 1e-3
    # Decoupled weight decay.
    weight_decay: float = 1e-4
    # Polyak rate of the target networks.
    tau: float = 0.01
    # Pairs (position, pose), see the flow policy.
    relative: tuple[tuple[str, str], ...] = ()
    # A place where one observation is resolved finely, see the flow policy.
    focus: FocusConfig | None = None

    def __post_init__(self) -> None:
        counts = (self.n_obs, self.draws, self.members, self.width, self.depth, self.batch_size)
        if min(counts) < 1 or self.atoms < 2:
            raise ConfigError(
                "n_obs, draws, members, width, depth and batch_size must be at least 1, atoms 2"
            )
        if not 0.0 < self.discount < 1.0 or not 0.0 < self.tau <= 1.0 or not self.lr > 0:
            raise ConfigError("discount must be in (0, 1), tau in (0, 1], lr positive")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ConfigError(f"bounds must rise, got {self.bounds}")


class FittedEvaluation(Algorithm):
    """What :mod:`fqe` and :mod:`fle` share: data, networks, targets, values at starts."""

    # Numbers that a network says of a chunk.
    outputs: int

    def __init__(self, config: EvaluationConfig, policy: Policy, stats: DatasetStats) -> None:
        super().__init__()
        judged = policy.spec
        self.config, self._judged = config, policy
        self.stride, n_obs = judged.execute, max(config.n_obs, judged.n_obs)
        self.batch_spec = batches_for(config, judged)
        self.spec = PolicySpec(
            judged.task_space, n_obs, self.stride, self.stride, config.normalization
        )
        self.bounds = config.bounds or possible_values(stats.reward, config.discount)
        self.outputs = self.numbers()
        size = CriticConfig(
            config.members, config.width, config.depth, config.relative, config.focus
        )
        self.critic = ChunkCritic(size, self.spec, stats, self.stride, outputs=self.outputs)
        self.target = copy.deepcopy(self.critic.q).requires_grad_(requires_grad=False)

    @abstractmethod
    def numbers(self) -> int:
        """How many a network says of a chunk."""

    @abstractmethod
    def loss(self, now: Features, after: ManyFeatures, batch: Batch) -> Scalar:
        """Of recorded chunks, features ``now [b, f]``, and the policy's own that follow, ``after
        [b * draws, f]``.
        """

    @abstractmethod
    def means(self, q: Ensemble, x: Features) -> MemberRows:
        """Expected return of the chunks ``x [b, f]`` by every member."""

    def propose(self, observations: Observed, seeds: RequestNumbers) -> Candidates:
        """The policy's chunks, as far as it executes them."""
        n = self._judged.spec.n_obs
        seen = {name: value[:, -n:] for name, value in observations.items()}
        return draw_chunks(self._judged, seen, seeds, self.config.draws)[:, :, : self.stride]

    def groups(self) -> Mapping[str, ParamGroup]:
        """One."""
        c = self.config
        parameters = (*self.critic.q.parameters(), *self.critic.observed.parameters())
        return {"critic": ParamGroup(parameters, c.lr, c.weight_decay, (0.9, 0.999))}

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Its loss on recorded transitions."""
        follow, chunks = batch.next_observations, batch.next_candidates
        if batch.reward is None or batch.bootstrap is None or follow is None or chunks is None:
            raise ConfigError("an evaluation is fed with transitions and the policy's chunks there")
        if not chunks.shape[1]:
            # Every recorded step ends its task: nothing was drawn, and nothing of it counts.
            chunks = batch.actions[:, None].expand(-1, self.config.draws, -1, -1)
        now = self.features(batch.observations, batch.actions[:, None], rng)
        with torch.no_grad():
            after = self.features(follow, chunks)
        return Losses({"critic": self.loss(now, after, batch)}, {})

    def features(
        self, observations: Observed, chunks: Candidates, rng: torch.Generator | None = None
    ) -> ManyFeatures:
        """What networks see of chunks ``[b, k, h, a]``: ``[b * k, f]``."""
        count, critic = chunks.shape[1], self.critic
        at = {name: v.repeat_interleave(count, dim=0) for name, v in observations.items()}
        seen = critic.observed(observations, rng).repeat_interleave(count, dim=0)
        return torch.cat([seen, critic.chunk(chunks.flatten(0, 1), at)], dim=-1)

    @torch.no_grad()
    def at_starts(self, observations: Observed, seeds: RequestNumbers) -> ManyFeatures:
        """What networks see of the policy's own chunks at starts ``[b * draws, f]``."""
        return self.features(observations, self.propose(observations, seeds).to(self._device))

    @torch.no_grad()
    def values(self, starts: ManyFeatures) -> MemberRows:
        """Expected return at every start by every member, over the policy's draws."""
        found = self.means(self.critic.q, starts)
        return found.unflatten(1, (-1, self.config.draws)).mean(dim=2)

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Move the target networks."""
        move_towards(self.target, self.critic.q, self.config.tau)

    def policy(self) -> Policy:
        """The one that is judged; it stays as it is."""
        return self._judged

    def policy_weights(self) -> Weights:
        """The evaluator's."""
        return self.critic.state_dict()

    @property
    def _device(self) -> torch.device:
        return self.critic.codec.high.device


def batches_for(config: EvaluationConfig, judged: PolicySpec) -> BatchSpec:
    """What an evaluation of such a policy is fed with."""
    return BatchSpec(
        max(config.n_obs, judged.n_obs),
        judged.execute,
        config.batch_size,
        ("transition", "next_candidates"),
        config.discount,
        judged.execute,
    )


def start_seeds(count: int) -> RequestNumbers:
    """Of the policy's draws at starts, the same for every policy."""
    return np.arange(count, dtype=np.int64)
