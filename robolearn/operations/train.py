"""Trains a policy: an experiment, the episodes of a store or of several, a run directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.sweep import Value, with_settings
from policies.registry import policy_config
from robolearn.config import load_yaml
from robolearn.data.reading.cache import ImageMode, OnEpisode
from robolearn.data.reading.mixture import MixtureSource
from robolearn.data.reading.selection import StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError
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
    source = _source(experiment, store)
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


def _source(experiment: Experiment, store: Path | None) -> StoreSource | MixtureSource:
    if experiment.data.stores and store is not None:
        raise ConfigError(
            "the experiment names its stores itself (data: stores); leave the store out"
        )
    if store is not None:
        return StoreSource(EpisodeStore.open(store), experiment.data)
    if not experiment.data.stores:
        raise ConfigError("give a store, or name stores under 'data' in the experiment")
    return MixtureSource(experiment.data)
