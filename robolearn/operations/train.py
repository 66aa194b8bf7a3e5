"""Trains a policy: an experiment, the episodes of a store or of several, a run directory.

Several seeds of one experiment are trained at once, a process with one thread each:

    OUT/seed_0   OUT/seed_1   ...        run directories like any other
    OUT/seeds.json                       what became of each

Small networks gain nothing from a second thread, so that as many trainings as there are cores take
little longer than one. Several processes for *one* training: ``robolearn/training/distributed.py``.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.plain import write_mapping
from eval.sweep import Value, with_settings
from eval.trials.executors import run_in_process, run_in_workers
from policies.registry import policy_config
from robolearn.config import load_yaml
from robolearn.data.reading.cache import ImageMode, OnEpisode, cached
from robolearn.data.reading.mixture import MixtureSource
from robolearn.data.reading.selection import StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, TrainingError
from robolearn.learning import OnProposed
from robolearn.operations.checkpoint_evaluation import CheckpointEvaluation
from robolearn.training.distributed import joined
from robolearn.training.experiment import Experiment, TrainResult, experiment_of
from robolearn.training.experiment import train as carry_out
from robolearn.training.loop import Hooks, Progress
from robolearn.training.run_directory import load_run
from robolearn.training.trackers import TrackerName, tracked


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Where checkpoints are tried while they are trained, every ``fit.evaluate_every`` steps."""

    world: str
    suite: Path = Path("configs/eval/pusht.yaml")
    # The first so many of the suite.
    conditions: int = 10


@dataclass(frozen=True, slots=True)
class TrainListener:
    """Who wants to know how far training is; called in the first process only."""

    # Number of episodes, and of processes that train together.
    on_begin: Callable[[int, int], None] | None = None
    # An episode is in the copy that training reads: number, of how many.
    on_episode: OnEpisode | None = None
    # Chunks of the parent are drawn for a row: number, of how many.
    on_proposed: OnProposed | None = None
    # After every step.
    on_step: Callable[[Progress], None] | None = None


def load_experiment(path: Path, settings: Mapping[str, Value] | None = None) -> Experiment:
    """An experiment file with some of its values replaced, such as ``{"fit.steps": 100}``."""
    raw = with_settings(load_yaml(path), settings or {})
    return experiment_of(raw, policy_config, str(path))


def train(
    experiment: Experiment,
    out: Path,
    store: Path | None = None,
    *,
    parent: Path | None = None,
    resume: bool = False,
    threads: int = 1,
    images: ImageMode = "auto",
    track: Sequence[TrackerName] = (),
    evaluation: Evaluation | None = None,
    listener: TrainListener = TrainListener(),
) -> TrainResult:
    """Train in the run directory ``out``, from ``store`` or the stores that the experiment names.

    ``parent``: the run to build on; ``resume``: go on where a run stopped, or reuse it if it is
    finished; ``track``: where figures go besides ``metrics.jsonl``. Several processes that a
    launcher started train together. Ctrl-C leaves a checkpoint to resume from.

    Errors: :class:`ConfigError`, :class:`DataError` and :class:`CheckpointError` before anything
    is written; :class:`TrainingError` when a loss is not finite.
    """
    source = source_of(experiment, store)
    checked = None
    if evaluation is not None:
        checked = CheckpointEvaluation(
            out, evaluation.world, evaluation.suite, evaluation.conditions, threads
        )
        checked.check(source.task_space)
    elif experiment.fit.evaluate_every:
        raise ConfigError("fit.evaluate_every: say where, by a world to evaluate in")
    found = None if parent is None else load_run(parent)
    with joined(experiment.fit.device) as ranks:
        if ranks.leads and listener.on_begin is not None:
            listener.on_begin(len(source.ids), ranks.size)
        with tracked(track if ranks.leads else (), out, experiment.plain()) as on_log:
            return carry_out(
                experiment,
                source,
                out,
                parent=found,
                resume=resume,
                threads=threads,
                images=images,
                on_episode=listener.on_episode if ranks.leads else None,
                hooks=Hooks(
                    on_proposed=listener.on_proposed,
                    on_step=listener.on_step,
                    on_log=on_log,
                    evaluate=checked,
                ),
                ranks=ranks,
            )


def source_of(experiment: Experiment, store: Path | None) -> StoreSource | MixtureSource:
    """The episodes of ``store``, or of the stores that the experiment names."""
    if experiment.data.stores and store is not None:
        raise ConfigError(
            "the experiment names its stores itself (data: stores); leave the store out"
        )
    if store is not None:
        return StoreSource(EpisodeStore.open(store), experiment.data)
    if not experiment.data.stores:
        raise ConfigError("give a store, or name stores under 'data' in the experiment")
    return MixtureSource(experiment.data)


SEEDS = "seeds.json"
LONGEST_S = 20 * 24 * 3600.0
"""A training that takes longer counts as hung [s]."""


@dataclass(frozen=True, slots=True)
class SeedsResult:
    """Runs of one experiment that differ by their seed, in the order of the seeds."""

    out: Path
    runs: Mapping[int, TrainResult]

    @property
    def losses(self) -> Mapping[str, tuple[float, float]]:
        """Mean and standard deviation over the seeds of every figure that all of them end with."""
        found = [run.fit.metrics for run in self.runs.values()]
        shared = [name for name in found[0] if all(name in figures for figures in found)]
        values = {name: np.array([figures[name] for figures in found]) for name in shared}
        return {
            n: (float(v.mean()), float(v.std(ddof=min(1, len(v) - 1)))) for n, v in values.items()
        }


@dataclass(frozen=True, slots=True)
class TrainSeed:
    """Carries out the training of one seed. Picklable; a worker calls it."""

    experiment: Experiment
    out: Path
    store: Path | None
    parent: Path | None
    resume: bool
    images: ImageMode
    track: tuple[TrackerName, ...]
    evaluation: Evaluation | None

    def __call__(self) -> Callable[[int], TrainResult]:
        """Nothing to build."""
        return self.run

    def run(self, seed: int) -> TrainResult:
        """Train, go on, or reuse."""
        return train(
            dataclasses.replace(self.experiment, seed=seed),
            self.out / f"seed_{seed}",
            self.store,
            parent=self.parent,
            resume=self.resume,
            images=self.images,
            track=self.track,
            evaluation=self.evaluation,
        )


def train_seeds(
    experiment: Experiment,
    seeds: Sequence[int],
    out: Path,
    store: Path | None = None,
    *,
    workers: int = 0,
    parent: Path | None = None,
    resume: bool = False,
    images: ImageMode = "auto",
    track: Sequence[TrackerName] = (),
    evaluation: Evaluation | None = None,
    on_done: Callable[[int, TrainResult], None] | None = None,
) -> SeedsResult:
    """Train ``experiment`` with every seed into ``out/seed_N``, ``workers`` at a time (0: as many
    as there are cores), each with one thread. With ``resume`` what is finished is reused and what
    stopped goes on.

    Errors: :class:`ConfigError` for seeds that are no different numbers, and inside of a launcher's
    processes; those of :func:`train`; :class:`TrainingError` where a process died twice.
    """
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0:
        raise ConfigError(f"seeds must be different numbers from 0 on, got {list(seeds)}")
    if workers < 0:
        raise ConfigError(f"workers must be at least 0, got {workers}")
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ConfigError("several seeds are processes of their own: start them without a launcher")
    # Once for all of them, and before the first one: what does not fit is said at once.
    cached(source_of(experiment, store), images=images)
    work = TrainSeed(experiment, out, store, parent, resume, images, tuple(track), evaluation)
    count = min(workers or len(os.sched_getaffinity(0)), len(seeds))
    spread = (
        run_in_process(work, seeds)
        if count == 1
        else run_in_workers(work, seeds, workers=count, timeout_s=LONGEST_S)
    )
    found: dict[int, TrainResult] = {}
    for done in spread:
        if done.result is None:
            raise TrainingError(
                f"the training of seed {done.task} died: {done.lost}; the same call with resume"
                " goes on"
            )
        found[done.task] = done.result
        if on_done is not None:
            on_done(done.task, done.result)
    result = SeedsResult(out, {seed: found[seed] for seed in seeds})
    write_mapping(out / SEEDS, {"runs": result.runs, "losses": result.losses})
    return result
