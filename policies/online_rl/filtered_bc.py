"""Goes on imitating, from episodes that succeeded: filtered behaviour cloning.

    E[ loss of the parent's own algorithm (o, A) ],  o, A of episodes that succeeded

Own successes and demonstrations teach, failures do not: one step of policy improvement by 0/1
returns, without a critic. It is what every other algorithm of practice has to beat, so nothing is
left out that makes it good: the parent's network with its weights, its loss, its augmentation and
symmetry, windows from every row, averaged weights that begin as the parent's and are not forgotten
at once, a rate of its own that stays, and rounds that are flown by the newest average.

Which episodes are taken in is the data's to say: ``data: {success: true}``, or the same of every
store of a mixture. Without it this would be plain imitation of failures, so it is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from policies.chunks.base import ChunkAlgorithm
from policies.chunks.student import student_of
from policies.critics.parent import inner_policy, judged_policy, kept_parent
from robolearn.contracts import Policy
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Algorithm, Batch, BatchSpec, Losses, ParamGroup, Schedule, Weights
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run

AVERAGED = 1_000_000
"""Updates that the average is taken to have behind it: its decay does not warm up again."""


@dataclass(frozen=True, slots=True)
class FilteredBcConfig:
    """Filtered behaviour cloning."""

    # Observations that the policy sees; must equal the parent's.
    n_obs: int = 2
    # Chunk length of the parent.
    horizon: int = 16
    # Samples per update.
    batch_size: int = 256
    # Learning rate: well below what the parent began with (flow: 1e-3), since it knows much.
    lr: float = 2e-4
    # How it goes down; nobody knows when practice ends. null: as fit.schedule says.
    schedule: Schedule | None = "constant"
    # Decay of the averaged weights per update. The parent's: .999.
    ema: float = 0.999

    def __post_init__(self) -> None:
        if min(self.n_obs, self.horizon, self.batch_size) < 1:
            raise ConfigError("n_obs, horizon and batch_size must be at least 1")
        if not self.lr > 0 or not 0.0 <= self.ema < 1.0:
            raise ConfigError(f"lr must be positive and ema in [0, 1): got {self.lr}, {self.ema}")

    def require(self, data: DataConfig) -> None:
        """:class:`ConfigError` where failures would be imitated."""
        chosen = [choice.success for choice in data.stores if choice.success is not None]
        if not data.success and not (
            data.stores and all(chosen) and len(chosen) == len(data.stores)
        ):
            raise ConfigError(
                "filtered_bc imitates what succeeded: set data.success to true (or success of every"
                f" store of data.stores), got {data.success}"
            )

    def batches(self) -> BatchSpec:
        """Windows."""
        return BatchSpec(self.n_obs, self.horizon, self.batch_size)

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:  # noqa: ARG002
        """The parent's own algorithm, with its weights."""
        judged_policy(parent, "filtered_bc", space, self.n_obs, self.horizon)
        if parent is None:
            raise ConfigError("filtered_bc needs a parent run: --parent RUN (a trained policy)")
        student = student_of(parent, space, "filtered_bc:", lr=self.lr, ema=self.ema)
        return FilteredBc(self, student)

    def load(self, run: Run) -> Policy:
        """The parent with the weights of ``run``."""
        return inner_policy(dataclasses.replace(kept_parent(run), weights=run.weights))


class FilteredBc(Algorithm):
    """Trains the parent's policy by the parent's loss."""

    name = "filtered_bc"

    def __init__(self, config: FilteredBcConfig, student: ChunkAlgorithm[Any, Any]) -> None:
        super().__init__()
        self.config, self.student, self.batch_spec = config, student, config.batches()

    def groups(self) -> Mapping[str, ParamGroup]:
        """The student's, at a rate that stays."""
        return {
            name: dataclasses.replace(group, schedule=self.config.schedule)
            for name, group in self.student.groups().items()
        }

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """The student's."""
        return self.student(batch, step, rng)

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """Move the average, by its full decay from the first update on."""
        self.student.after_update(AVERAGED + step, updated)

    def policy(self) -> Policy:
        """The average."""
        return self.student.policy()

    def policy_weights(self) -> Weights:
        """Those of the average."""
        return self.student.policy_weights()
