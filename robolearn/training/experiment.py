"""Describes a complete experiment in one file (data, policy, how to fit it); carries it out."""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch

from robolearn.config import check_finite, config_hash, from_dict, load_yaml, to_dict
from robolearn.data.provenance import git_revision, library_versions
from robolearn.data.reading.cache import ImageMode, OnEpisode, cached
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Algorithm, BatchSpec, Proposing, use_threads
from robolearn.machine.memory import reuse_memory
from robolearn.pusht import goal_params
from robolearn.representation import RepresentationConfig
from robolearn.seeding import child_seed
from robolearn.spec import TaskSpace
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.timing.latencies import trained_with
from robolearn.training.data import Described, TrainingData, TrainingSource
from robolearn.training.diagnosis import Diagnosis, diagnose
from robolearn.training.distributed import Ranks
from robolearn.training.log import logged
from robolearn.training.loop import NO_HOOKS, FitResult, Hooks, fit
from robolearn.training.renamed_keys import refuse_old_keys
from robolearn.training.run_directory import (
    PROVENANCE,
    Run,
    policy_hash,
    seal_run,
    unseal_run,
    write_json,
    write_run,
)
from robolearn.training.run_start import keep_parent, previous_run, written
from robolearn.training.task_goal import at_goal
from robolearn.training.trained_starts import starts_entry
from robolearn.training.trainer import FitConfig
from robolearn.training.watching.probe import watched


@runtime_checkable
class AlgorithmConfig(Protocol):
    """What training needs of a policy's configuration."""

    def batches(self) -> BatchSpec:
        """What the algorithm is fed with."""
        ...

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """An untrained algorithm."""
        ...


@runtime_checkable
class Choosy(Protocol):
    """A configuration that makes sense for some choices of data only."""

    def require(self, data: DataConfig) -> None:
        """:class:`ConfigError` where ``data`` is none of them."""
        ...


@dataclass(frozen=True, slots=True)
class Experiment:
    """``policy`` names the algorithm, ``algorithm`` is its configuration."""

    policy: str
    data: DataConfig
    algorithm: AlgorithmConfig
    fit: FitConfig
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.algorithm, Choosy):
            self.algorithm.require(self.data)

    def plain(self) -> dict[str, Any]:
        """The resolved experiment as plain values."""
        return {
            "policy": self.policy,
            "seed": self.seed,
            "data": to_dict(self.data),
            "algorithm": to_dict(self.algorithm),
            "fit": to_dict(self.fit),
        }

    def parts(self) -> dict[str, Any]:
        """Its configurations by name."""
        return {"data": self.data, "fit": self.fit, "algorithm": self.algorithm}


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training run left behind."""

    run_dir: Path
    policy_hash: str
    episodes: int
    windows: int
    parameters: int
    reused: bool
    fit: FitResult
    # What the critic's curves say; None without a critic.
    diagnosis: Diagnosis | None


@dataclass(frozen=True, slots=True)
class _Raw:
    policy: str
    data: DataConfig
    fit: FitConfig
    algorithm: dict[str, Any] = field(default_factory=dict[str, Any])
    seed: int = 0


def load_experiment(path: Path, config_class: Callable[[str], type[AlgorithmConfig]]) -> Experiment:
    """Read an experiment file; ``config_class`` finds the configuration class of a policy."""
    return experiment_of(load_yaml(path), config_class, str(path))


def experiment_of(
    values: Mapping[str, Any], config_class: Callable[[str], type[AlgorithmConfig]], where: str
) -> Experiment:
    """An experiment from its plain values; errors call them ``where``."""
    raw = from_dict(_Raw, dict(values), where=where)
    refuse_old_keys(raw.policy, raw.algorithm, where)
    kind = config_class(raw.policy)
    algorithm = from_dict(kind, raw.algorithm, where=f"{where}: algorithm")
    experiment = Experiment(raw.policy, raw.data, algorithm, raw.fit, raw.seed)
    check_finite(experiment, where)
    return experiment


def train(
    experiment: Experiment,
    source: TrainingSource,
    run_dir: Path,
    *,
    parent: Run | None = None,
    resume: bool = False,
    threads: int = 1,
    cache_dir: Path | None = None,
    images: ImageMode = "auto",
    on_episode: OnEpisode | None = None,
    hooks: Hooks = NO_HOOKS,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> TrainResult:
    """Carry an experiment out in ``run_dir``; with ``resume`` go on, or reuse what is finished.

    ``ranks``: this process among several, of which the first one writes. ``images`` and
    ``on_episode`` are those of :func:`cached`; neither changes the result.

    Errors: :class:`CheckpointError` when ``run_dir`` holds another experiment or would be
    overwritten; data and configuration errors before anything is written. Ctrl-C leaves a
    checkpoint that ``resume`` goes on from as if nothing had happened.
    """
    use_threads(threads)
    reuse_memory()
    configured = at_goal(experiment.algorithm, lambda: source.goals)
    experiment = dataclasses.replace(experiment, algorithm=configured)
    identity = _identity(experiment, source, parent)
    previous = previous_run(run_dir, experiment.parts(), identity, resume)
    with _first_alone(ranks):
        flat = cached(source, cache_dir, images=images, on_episode=on_episode)
    batches = experiment.algorithm.batches()
    data = TrainingData(experiment.data, watched(batches), experiment.seed, source, flat)
    require_same_representation(experiment, parent)
    # Initial weights and dropout come from torch's global generator.
    torch.manual_seed(child_seed(experiment.seed, "weights"))
    algorithm = experiment.algorithm.build(data.seen.representation.inner, data.stats, parent)
    parameters = sum(p.numel() for g in algorithm.groups().values() for p in g.parameters)
    if previous is not None and previous.get("complete"):
        done = FitResult(**previous["fit"])
        return _result(run_dir, data.dataset, parameters, done, reused=True)
    told = provenance_of(experiment, [source], data.held_out_ids, parent, threads)
    provenance = identity | told | {"episodes": len(data.dataset.episodes)}
    with written(run_dir, ranks):
        if batches.proposed and isinstance(algorithm, Proposing):
            data.propose(algorithm, hooks.on_proposed if ranks.leads else None)
        if ranks.leads:
            spec = data.seen.observed_by(
                algorithm.policy().spec, None if parent is None else parent.spec
            )
            write_run(run_dir, experiment.plain(), spec, data.stats)
            keep_parent(parent, run_dir, fresh=previous is None)
            write_json(run_dir / PROVENANCE, provenance | {"complete": False})
        ranks.wait()
        result = fit(
            algorithm,
            data.batches(),
            experiment.fit,
            run_dir,
            seed=experiment.seed,
            resume=previous is not None,
            hooks=dataclasses.replace(hooks, held_out=data.held_out()),
            ranks=ranks,
        )
        ended = {"complete": True, "fit": dataclasses.asdict(result)}
        if ranks.leads:
            unseal_run(run_dir)
            write_json(run_dir / PROVENANCE, provenance | ended)
            seal_run(run_dir)
        ranks.wait()
    return _result(run_dir, data.dataset, parameters, result, reused=False)


def provenance_of(
    experiment: Experiment,
    sources: Sequence[Described],
    held_out: Sequence[str],
    parent: Run | None,
    threads: int,
) -> dict[str, Any]:
    """Where a run comes from, besides its identity: data, code and machine."""
    learned = None if parent is None else parent.provenance
    ids = [i for source in sources for i in source.ids]
    starts = [start for source in sources for start in source.starts]
    goals = tuple(dict.fromkeys(goal for source in sources for goal in source.goals))
    return {
        "seed": experiment.seed,
        LATENCIES: trained_with((s.latencies for s in sources), {}).to_json(),
        **goal_params(goals[0] if len(goals) == 1 else None),
        "held_out": list(held_out),
        # Who says how episodes ended, where not the recording: a classifier says how often it errs.
        "annotated_outcomes": dict(Counter(said for s in sources for said in s.annotated)),
        **starts_entry(ids, starts, held_out, learned),
        "git_revision": git_revision(),
        "versions": library_versions(),
        "threads": threads,
        "started_wall_s": round(time.time()),
    }


def require_same_representation(experiment: Experiment, parent: Run | None) -> None:
    """:class:`ConfigError` where the data is not shown as the parent sees it."""
    ours = experiment.data.representation
    if parent is None or ours.plain:
        return
    raw = parent.config["data"].get("representation", {})
    theirs = from_dict(RepresentationConfig, raw, f"{parent.path}/config.yaml: data")
    if theirs != ours:
        raise ConfigError(
            f"data.representation: a run that builds on '{parent.path}' sees the data as that does,"
            f" {theirs}; got {ours}"
        )


def require_statistics(stats: DatasetStats, space: TaskSpace, parent: Run) -> None:
    """:class:`ConfigError` where ``stats``, which are the parent's, lack what ``space`` has."""
    known = {*stats.observations, *stats.actions}
    signals = [s.name for s in space.observations if not s.is_image]
    lacking = [n for n in (*signals, *(a.name for a in space.actions)) if n not in known]
    if lacking:
        raise ConfigError(
            f"data.observations, data.actions: the parent '{parent.path}' has no statistics of"
            f" {lacking}; what learns on top of it sees what it sees: {sorted(known)}"
        )


@contextlib.contextmanager
def _first_alone(ranks: Ranks) -> Generator[None]:
    """The first process does it before the others, once all of them are here."""
    ranks.wait()
    if not ranks.leads:
        ranks.wait()
    yield
    if ranks.leads:
        ranks.wait()


def _identity(experiment: Experiment, source: TrainingSource, parent: Run | None) -> dict[str, Any]:
    identity: dict[str, Any] = {
        "experiment": experiment.plain(),
        "data_hash": source.content_hash,
        "parent": None if parent is None else parent.policy_hash,
    }
    if experiment.data.quality.of_episodes:
        # Outcomes may be annotated anew without any change of the recordings.
        judged = [{"success": q.success, "score": q.score} for q in source.qualities]
        identity["qualities"] = config_hash(judged)
    return identity


def _result(
    run_dir: Path, dataset: EpisodeDataset, parameters: int, result: FitResult, *, reused: bool
) -> TrainResult:
    return TrainResult(
        run_dir=run_dir,
        policy_hash=policy_hash(run_dir),
        episodes=len(dataset.episodes),
        windows=len(dataset),
        parameters=parameters,
        reused=reused,
        fit=result,
        diagnosis=diagnose(logged(run_dir)),
    )
