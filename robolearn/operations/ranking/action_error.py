"""Says how far policies' actions are from recorded ones, in episodes that none was trained on.

The weakest of evidence: nothing runs, no outcome enters, and a policy that errs little at every
moment may fail all the same, as one that solves the task in another way errs much.

OUT/ranking.json      the settings and the recordings that all errors in this folder stand on
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.plain import plain_values
from eval.statistics.intervals import mean_bootstrap
from policies.critics.candidates import draw_chunks
from robolearn.config import config_hash, to_dict
from robolearn.contracts import Policy
from robolearn.data.episode import EpisodeKind
from robolearn.data.reading.cache import FlatEpisodes, cached
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.errors import ConfigError, DataError
from robolearn.learning import BatchSpec
from robolearn.operations.ranking.policy_values import take_folder
from robolearn.operations.ranking.question import PolicyValue, Question, opened
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import policy_hash, run_provenance
from robolearn.training.trained_starts import starts_of

Numbers = NDArray[np.float64]

METHOD = "action_error"
_BATCH = 256
# Actions that never change are not divided by.
_LEAST_SPREAD = 1e-6


@dataclass(frozen=True, slots=True)
class ErrorConfig:
    """Which recorded actions count as right; the same for all policies."""

    # Kinds of episodes: of somebody who could do the task.
    kinds: tuple[EpisodeKind, ...] = ("demonstration",)
    # Tasks to take; empty: all.
    tasks: tuple[str, ...] = ()
    # Policies are asked at every so many steps of an episode.
    every: int = 4
    # Chunks of a policy at each of them; the errors of all count.
    draws: int = 2

    def __post_init__(self) -> None:
        if self.every < 1 or self.draws < 1:
            raise ConfigError(
                f"every and draws must be at least 1, got {self.every} and {self.draws}"
            )

    def values(self, question: Question) -> tuple[PolicyValue, ...]:
        """See :func:`action_errors`."""
        return action_errors(question, self)

    def data(self, space: TaskSpace) -> DataConfig:
        """What is read of the store for policies of ``space``."""
        names = tuple(s.name for s in space.observations)
        return DataConfig(names, tuple(a.name for a in space.actions), self.kinds, self.tasks)


def action_errors(question: Question, config: ErrorConfig) -> tuple[PolicyValue, ...]:
    """Every run's action error, in their order, **negative**, so that more is better.

    The error of an episode is the mean distance of the actions that all policies execute of a chunk
    from the recorded ones, each component in its standard deviations over the recordings; the
    interval is over episodes. An episode whose start one of the runs was trained on is left out
    for all. Errors: :class:`SpecMismatchError` for policies of different task spaces, or that the
    store does not fit; :class:`DataError` where no episode is left, or a run does not say what it
    was trained on; :class:`ConfigError` for a folder of other values.
    """
    policies, source = opened(question, config.data)
    kept = _unseen(source, question.runs)
    steps = min(p.spec.execute for p in policies.values())
    settings: dict[str, Any] = {
        "evaluation": {"method": METHOD, "steps": steps},
        "errors": plain_values(to_dict(config)),
        "episodes": [source.ids[int(i)] for i in kept],
    }
    take_folder(question.out, settings, source.content_hash)
    flat = cached(source)
    found: list[PolicyValue] = []
    for name, policy in policies.items():
        errors = _errors(policy, flat, kept, steps, config)
        run = question.runs[name]
        digest = policy_hash(run)
        spread = float(errors.std(axis=1).mean())
        value = mean_bootstrap(-errors.mean(axis=1))
        found.append(PolicyValue(name, run, digest, value, spread, None, None, False))
        question.on_value(found[-1])
    return tuple(found)


def _unseen(source: StoreSource, runs: Mapping[str, Path]) -> NDArray[np.int64]:
    """Numbers of the episodes whose starts no run was trained on."""
    trained = {
        config_hash(asdict(start))
        for run in runs.values()
        for start in starts_of(run_provenance(run), str(run))
    }
    fresh = [config_hash(asdict(start)) not in trained for start in source.starts]
    if not any(fresh):
        raise DataError(
            f"each of the {len(fresh)} episodes begins where one of the runs was trained: how well"
            " they are learned by heart says nothing. Give recordings of other starts, or train"
            " with data.held_out"
        )
    return np.flatnonzero(np.array(fresh))


def _errors(
    policy: Policy,
    flat: FlatEpisodes,
    kept: NDArray[np.int64],
    steps: int,
    config: ErrorConfig,
) -> NDArray[np.float64]:
    """Mean error of every kept episode ``[episodes, draws]``."""
    spec = BatchSpec(policy.spec.n_obs, steps, _BATCH, every=config.every)
    dataset = EpisodeDataset(flat, spec, 0, kept)
    rows = dataset.windows
    scale = np.maximum(flat.actions.std(axis=0, dtype=np.float64), _LEAST_SPREAD)
    sums = np.zeros((len(kept), config.draws))
    counts = np.zeros(len(kept))
    for first in range(0, len(rows), _BATCH):
        t = rows[first : first + _BATCH]
        batch = dataset.gather(t)
        chunks = draw_chunks(policy, batch.observations, t.astype(np.int64), config.draws)
        done: Numbers = np.asarray(chunks[:, :, :steps].cpu(), dtype=np.float64)
        recorded: Numbers = np.asarray(batch.actions[:, None], dtype=np.float64)
        mask: Numbers = np.asarray(batch.action_mask[:, None], dtype=np.float64)
        distance = np.linalg.norm((done - recorded) / scale, axis=-1)
        mean = (distance * mask).sum(axis=2) / mask.sum(axis=2)
        episode = np.searchsorted(kept, np.searchsorted(flat.starts, t, side="right") - 1)
        np.add.at(sums, episode, mean)
        np.add.at(counts, episode, 1.0)
    return sums[counts > 0] / counts[counts > 0, None]
