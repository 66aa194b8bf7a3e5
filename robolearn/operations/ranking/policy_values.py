"""Fits what policies are worth to the recordings of a store, one evaluator per policy.

OUT/ranking.json      the settings and the data that all values in this folder stand on
OUT/NAME/             metrics.jsonl, weights and state of the evaluator: what stopped goes on
OUT/NAME/value.json   what it says at every start
"""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from eval.plain import plain_values, read_mapping, write_mapping
from eval.statistics.intervals import mean_bootstrap
from policies.off_policy_evaluation.fitted import (
    EvaluationConfig,
    FittedEvaluation,
    batches_for,
    start_seeds,
)
from policies.off_policy_evaluation.fle import FittedLikelihood
from policies.off_policy_evaluation.fqe import FittedQ
from robolearn.config import to_dict
from robolearn.contracts import Policy
from robolearn.data.episode import EpisodeKind
from robolearn.data.reading.cache import FlatEpisodes, cached
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.operations.ranking.question import PolicyValue, Question, opened
from robolearn.seeding import child_seed
from robolearn.spec import TaskSpace
from robolearn.training.data import TrainingData
from robolearn.training.loop import Hooks, fit
from robolearn.training.run_directory import policy_hash
from robolearn.training.task_goal import at_goal
from robolearn.training.trainer import FitConfig

Numbers = NDArray[np.float64]

RANKING = "ranking.json"
VALUE = "value.json"
EVERYTHING: tuple[EpisodeKind, ...] = get_args(EpisodeKind)


@dataclass(frozen=True, slots=True)
class RankConfig:
    """What policies are judged by; the same for all of them."""

    # Kinds of episodes that count.
    kinds: tuple[EpisodeKind, ...] = EVERYTHING
    # Tasks to take; empty: all.
    tasks: tuple[str, ...] = ()
    # What steps are worth and where the task ends.
    reward: RewardConfig = field(default_factory=RewardConfig)
    # The evaluator.
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    # Updates per policy.
    steps: int = 5000
    # Of initial weights, the order of the data and the policies' draws.
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"steps must be at least 1, got {self.steps}")

    def values(self, question: Question) -> tuple[PolicyValue, ...]:
        """See :func:`policy_values`."""
        return policy_values(question, self)

    def data(self, space: TaskSpace) -> DataConfig:
        """What is read of the store for policies of ``space``."""
        return DataConfig(
            tuple(s.name for s in space.observations),
            tuple(a.name for a in space.actions),
            self.kinds,
            self.tasks,
            reward=self.reward,
        )


def policy_values(question: Question, config: RankConfig) -> tuple[PolicyValue, ...]:
    """Fit an evaluator to every run, in their order; what ``question.out`` holds is reused.

    Errors: :class:`SpecMismatchError` for policies of different task spaces, or that the store does
    not fit; :class:`ConfigError` for a folder whose values stand on other settings or data;
    :class:`DataError` where rewards tell nothing.
    """
    policies, source = opened(question, config.data)
    placed = at_goal(config.evaluation, lambda: source.goals)
    config = dataclasses.replace(config, evaluation=placed)
    take_folder(question.out, plain_values(to_dict(config)), source.content_hash)
    flat = cached(source)
    found: list[PolicyValue] = []
    for name, policy in policies.items():
        run = question.runs[name]
        folder, digest = question.out / name, policy_hash(run)
        kept = _kept(folder, digest)
        if kept is None:
            data = _data(config, source, flat, policy)
            _fitted(config, data, flat, policy, folder, digest, question.hooks(name))
        value = _value(name, run, digest, folder, reused=kept is not None)
        found.append(value)
        question.on_value(value)
    return tuple(found)


def evaluator(config: EvaluationConfig, policy: Policy, stats: DatasetStats) -> FittedEvaluation:
    """An untrained evaluator; initial weights come from torch's global generator."""
    kind = FittedQ if config.method == "expected" else FittedLikelihood
    return kind(config, policy, stats)


def take_folder(out: Path, settings: Mapping[str, Any], data_hash: str) -> None:
    """All values of a folder stand on the same settings and data; :class:`ConfigError` for one that
    holds others.
    """
    identity = {"settings": settings, "data_hash": data_hash}
    file = out / RANKING
    if file.is_file():
        there = read_mapping(file)
        if {k: there.get(k) for k in identity} != identity:
            changed = [k for k in identity if there.get(k) != identity[k]]
            raise ConfigError(
                f"'{out}' holds values of other {' and '.join(changed)}: they would not be"
                " comparable with these (discount, rewards and networks shift values); choose"
                " another folder"
            )
        return
    write_mapping(file, identity)


def _data(
    config: RankConfig, source: StoreSource, flat: FlatEpisodes, policy: Policy
) -> TrainingData:
    batches = batches_for(config.evaluation, policy.spec)
    return TrainingData(config.data(policy.spec.task_space), batches, config.seed, source, flat)


def _fitted(
    config: RankConfig,
    data: TrainingData,
    flat: FlatEpisodes,
    policy: Policy,
    folder: Path,
    digest: str,
    hooks: Hooks,
) -> None:
    """Fit the evaluator of a policy, and write down what it says at every episode's start."""
    torch.manual_seed(child_seed(config.seed, "weights"))
    judge = evaluator(config.evaluation, policy, data.stats)
    data.propose(judge, hooks.on_proposed)
    # Of a policy that was trained anew since, nothing is kept.
    work = folder / digest
    work.mkdir(parents=True, exist_ok=True)
    every = max(1, config.steps // 20)
    settings = FitConfig(
        config.steps, warmup=min(100, config.steps), schedule="linear", final_lr=0.1,
        log_every=every, checkpoint_every=max(every, 1000),
    )  # fmt: skip
    done = fit(judge, data.batches(), settings, work, seed=config.seed, resume=True, hooks=hooks)
    spec = dataclasses.replace(judge.batch_spec, parts=())
    starts = EpisodeDataset(flat, spec, config.seed).gather(np.asarray(flat.starts[:-1]))
    judge.eval()
    features = judge.at_starts(starts.observations, start_seeds(len(flat.ids)))
    values: Numbers = np.asarray(judge.values(features).cpu(), dtype=np.float64)
    worst = judge.worst(features) if isinstance(judge, FittedLikelihood) else None
    expected = config.evaluation.method == "expected"
    error = float(done.metrics["loss/critic"]) ** 0.5 if expected else None
    write_mapping(
        folder / VALUE,
        {
            "policy_hash": digest,
            "episodes": list(flat.ids),
            "values": values.mean(axis=0),
            "members": values.mean(axis=1),
            "worst": worst,
            "td_error": error,
        },
    )


def _kept(folder: Path, digest: str) -> Mapping[str, Any] | None:
    file = folder / VALUE
    found = read_mapping(file) if file.is_file() else dict[str, Any]()
    return found if found.get("policy_hash") == digest else None


def _value(name: str, run: Path, digest: str, folder: Path, *, reused: bool) -> PolicyValue:
    found = read_mapping(folder / VALUE)
    members = np.asarray(found["members"], dtype=np.float64)
    return PolicyValue(
        name,
        run,
        digest,
        mean_bootstrap(np.asarray(found["values"], dtype=np.float64)),
        float(members.std()),
        found["worst"],
        found["td_error"],
        reused,
    )


def names_of(runs: Sequence[Path]) -> dict[str, Path]:
    """Runs by the names of their folders, with the folder above where two are alike."""
    names = [run.resolve().name for run in runs]
    labels = {
        run.resolve(): name if names.count(name) == 1 else f"{run.resolve().parent.name}-{name}"
        for run, name in zip(runs, names, strict=True)
    }
    if len(set(labels.values())) < len(runs):
        raise ConfigError(f"the same run twice, or the same name: {[str(r) for r in runs]}")
    return {label: run for run, label in labels.items()}
