"""One file, one complete experiment: data, policy and how to fit it; and how it is carried out."""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from robolearn.config import config_hash, from_dict, load_yaml, to_dict
from robolearn.contracts import PolicySpec
from robolearn.data.provenance import git_revision, library_versions
from robolearn.data.reading.cache import EpisodeSource, FlatEpisodes, ImageMode, OnEpisode, cached
from robolearn.data.reading.dataset import EpisodeDataset, split_episodes
from robolearn.data.reading.mixture import window_weights
from robolearn.data.reading.selection import DataConfig
from robolearn.data.reading.weighting import EpisodeQuality, row_weights
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError, DataError, did_you_mean
from robolearn.instructions import task_table, text_encoder
from robolearn.learning import Algorithm, BatchSpec
from robolearn.representation import Representation, RepresentationConfig
from robolearn.seeding import child_seed
from robolearn.spec import TaskSpace
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.timing.latencies import Latencies
from robolearn.training.batch_loader import Batches, Represented, represented_stats
from robolearn.training.distributed import Ranks
from robolearn.training.loop import NO_HOOKS, FitConfig, FitResult, Hooks, Progress, fit
from robolearn.training.pictures import Augmented
from robolearn.training.run_directory import (
    PARENT,
    PROVENANCE,
    Run,
    copy_run,
    policy_hash,
    seal_run,
    unseal_run,
    write_json,
    write_run,
)

log = logging.getLogger(__name__)


@runtime_checkable
class AlgorithmConfig(Protocol):
    """What training needs of a policy's configuration."""

    def batches(self) -> BatchSpec:
        """What the algorithm is fed with."""
        ...

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """An untrained algorithm."""
        ...


@dataclass(frozen=True, slots=True)
class Experiment:
    """``policy`` names the algorithm, ``algorithm`` is its configuration."""

    policy: str
    data: DataConfig
    algorithm: AlgorithmConfig
    fit: FitConfig
    seed: int = 0

    def plain(self) -> dict[str, Any]:
        """The resolved experiment as plain values."""
        return {
            "policy": self.policy,
            "seed": self.seed,
            "data": to_dict(self.data),
            "algorithm": to_dict(self.algorithm),
            "fit": to_dict(self.fit),
        }


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


@dataclass(frozen=True, slots=True)
class _Raw:
    policy: str
    data: DataConfig
    fit: FitConfig
    algorithm: dict[str, Any] = field(default_factory=dict[str, Any])
    seed: int = 0


def load_experiment(path: Path, config_class: Callable[[str], type[AlgorithmConfig]]) -> Experiment:
    """Read an experiment file; ``config_class`` finds the configuration class of a policy."""
    raw = from_dict(_Raw, load_yaml(path), where=str(path))
    kind = config_class(raw.policy)
    algorithm = from_dict(kind, raw.algorithm, where=f"{path}: algorithm")
    return Experiment(raw.policy, raw.data, algorithm, raw.fit, raw.seed)


def train(
    experiment: Experiment,
    source: EpisodeSource,
    run_dir: Path,
    *,
    parent: Run | None = None,
    resume: bool = False,
    threads: int = 1,
    cache_dir: Path | None = None,
    images: ImageMode = "auto",
    on_episode: OnEpisode | None = None,
    on_step: Callable[[Progress], None] | None = None,
    qualities: Sequence[EpisodeQuality] = (),
    texts: Sequence[str] = (),
    latencies: Latencies = Latencies(),  # noqa: B008 (frozen)
    hooks: Hooks = NO_HOOKS,
    ranks: Ranks = Ranks(),  # noqa: B008 (frozen)
) -> TrainResult:
    """Carry an experiment out in ``run_dir``; with ``resume`` go on, or reuse what is finished.

    ``qualities``: how the episodes of ``source`` ended, for ``data.quality``; ``texts``: what they
    were told, for ``data.text``. ``latencies``: what their times and commands were corrected by,
    for whoever deploys the run. ``ranks``: this process among several, of which the first one
    writes. ``images`` and ``on_episode`` are those of :func:`cached`; neither changes the result.

    Errors: :class:`CheckpointError` when ``run_dir`` holds another experiment or would be
    overwritten; data and configuration errors before anything is written.
    """
    torch.set_num_threads(threads)
    identity = _identity(experiment, source, parent, qualities)
    previous = _previous(run_dir, experiment, identity, resume)
    with _first_alone(ranks):
        flat = cached(source, cache_dir, images=images, on_episode=on_episode)
    told = _told(experiment, texts)
    known = dataclasses.replace(flat.task_space, texts=task_table(told))
    said = _said(told, known, len(flat.ids))
    dataset = _dataset(experiment, flat, qualities, said)
    seen = Representation(experiment.data.representation, known)
    _require_same_representation(experiment, parent)
    stats = _stats(experiment, dataset, seen)
    # Initial weights and dropout come from torch's global generator.
    torch.manual_seed(child_seed(experiment.seed, "weights"))
    algorithm = experiment.algorithm.build(seen.inner, stats, parent)
    parameters = sum(p.numel() for g in algorithm.groups().values() for p in g.parameters)
    if previous is not None and previous.get("complete"):
        done = FitResult(**previous["fit"])
        return _result(run_dir, dataset, parameters, done, reused=True)
    provenance = identity | {
        "seed": experiment.seed,
        LATENCIES: latencies.to_json(),
        "episodes": len(dataset.episodes),
        "held_out": [flat.ids[e] for e in _held_out(experiment, flat)],
        "git_revision": git_revision(),
        "versions": library_versions(),
        "threads": threads,
        "started_wall_s": round(time.time()),
    }
    if ranks.leads:
        spec = _observing(algorithm.policy().spec, known)
        write_run(run_dir, experiment.plain(), spec, stats)
        _keep_parent(parent, run_dir)
        write_json(run_dir / PROVENANCE, provenance | {"complete": False})
    ranks.wait()
    held_out = _held_out_batches(experiment, flat, seen, said)
    result = fit(
        algorithm,
        _batches(experiment, dataset, seen, train=True),
        experiment.fit,
        run_dir,
        seed=experiment.seed,
        resume=previous is not None,
        hooks=dataclasses.replace(hooks, on_step=on_step or hooks.on_step, held_out=held_out),
        ranks=ranks,
    )
    ended = {"complete": True, "fit": dataclasses.asdict(result)}
    if ranks.leads:
        unseal_run(run_dir)
        write_json(run_dir / PROVENANCE, provenance | ended)
        seal_run(run_dir)
    ranks.wait()
    return _result(run_dir, dataset, parameters, result, reused=False)


def _keep_parent(parent: Run | None, run_dir: Path) -> None:
    if parent is not None and not (run_dir / PARENT).is_dir():
        copy_run(parent.path, run_dir / PARENT)


def _require_same_representation(experiment: Experiment, parent: Run | None) -> None:
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


def _told(experiment: Experiment, texts: Sequence[str]) -> tuple[str, ...]:
    if experiment.data.text and not texts:
        raise ConfigError("data.text: these episodes come without instructions")
    return tuple(texts) if experiment.data.text else ()


def _observing(spec: PolicySpec, known: TaskSpace) -> PolicySpec:
    """The policy's spec in the world's own signals: of those the data has, what it observes.

    The data may have signals that the policy learns from without observing them.
    """
    kept = {s.name for s in spec.task_space.observations}
    observed = tuple(s for s in known.observations if s.name in kept)
    return dataclasses.replace(spec, task_space=dataclasses.replace(known, observations=observed))


@contextlib.contextmanager
def _first_alone(ranks: Ranks) -> Generator[None]:
    """The first process does it before the others, once all of them are here."""
    ranks.wait()
    if not ranks.leads:
        ranks.wait()
    yield
    if ranks.leads:
        ranks.wait()


def _identity(
    experiment: Experiment,
    source: EpisodeSource,
    parent: Run | None,
    qualities: Sequence[EpisodeQuality],
) -> dict[str, Any]:
    identity: dict[str, Any] = {
        "experiment": experiment.plain(),
        "data_hash": source.content_hash,
        "parent": None if parent is None else parent.policy_hash,
    }
    if experiment.data.quality.of_episodes:
        # Outcomes may be annotated anew without any change of the recordings.
        identity["qualities"] = config_hash([dataclasses.asdict(q) for q in qualities])
    return identity


def _previous(
    run_dir: Path, experiment: Experiment, identity: Mapping[str, Any], resume: bool
) -> dict[str, Any] | None:
    """The provenance of what ``run_dir`` holds, if it may be continued; None for a fresh start."""
    import json

    file = run_dir / PROVENANCE
    if not file.is_file():
        if run_dir.exists() and not run_dir.is_dir():
            raise CheckpointError(f"'{run_dir}' is a file; --out names a folder")
        return None
    if not resume:
        raise CheckpointError(
            f"'{run_dir}' holds a run already; go on with --resume, or choose another --out"
        )
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"'{file}' is damaged; choose another --out") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"'{file}' is damaged; choose another --out")
    found = cast("dict[str, Any]", found)
    stored = dict(found)
    stored["experiment"] = _completed(experiment, found.get("experiment", {}))
    lines = _differences(identity, stored, "")
    if lines:
        raise CheckpointError(
            f"'{run_dir}' holds a run of another experiment; choose another --out."
            f" Differences: {'; '.join(lines[:6])}"
        )
    return found


def _completed(experiment: Experiment, raw: dict[str, Any]) -> dict[str, Any]:
    """The experiment of an earlier version, with the defaults of what it did not know yet."""
    parts = {"data": experiment.data, "fit": experiment.fit, "algorithm": experiment.algorithm}
    try:
        known = {k: to_dict(from_dict(type(part), raw[k])) for k, part in parts.items()}
    except (ConfigError, KeyError):
        return raw
    return raw | known


def _differences(want: Mapping[str, Any], have: Mapping[str, Any], prefix: str) -> list[str]:
    lines: list[str] = []
    for key, value in want.items():
        other = have.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            inner = cast("dict[str, Any]", value), cast("dict[str, Any]", other)
            lines += _differences(*inner, f"{prefix}{key}.")
        elif value != other:
            lines.append(f"{prefix}{key}: now {value!r}, there {other!r}")
    return lines


def _dataset(
    experiment: Experiment,
    flat: FlatEpisodes,
    qualities: Sequence[EpisodeQuality],
    said: NDArray[np.float32] | None,
) -> EpisodeDataset:
    data, batches, seed = experiment.data, experiment.algorithm.batches(), experiment.seed
    chosen, out = split_episodes(len(flat.ids), data.held_out, seed)
    if data.held_out and not out.size:
        raise DataError(
            f"data.held_out: {data.held_out:g} of {len(flat.ids)} episodes is none; raise it, or"
            " set it to 0"
        )
    longest = int(flat.lengths[chosen].max())
    if batches.horizon > longest:
        raise DataError(
            f"algorithm.horizon: a chunk of {batches.horizon} actions is longer than every episode"
            f" (the longest has {longest} steps); use a shorter one"
        )
    dataset = EpisodeDataset(flat, batches, seed, chosen, texts=said)
    weights = row_weights(
        flat,
        dataset.windows,
        stores=window_weights(data.stores, flat, dataset.windows),
        quality=data.quality,
        qualities=qualities,
        idle=data.idle,
    )
    if weights is None:
        return dataset
    return EpisodeDataset(flat, batches, seed, chosen, weights, said)


def _said(told: Sequence[str], space: TaskSpace, episodes: int) -> NDArray[np.float32] | None:
    """What every episode's instruction says ``[episodes, size]``, as the policy is told it."""
    encoder = text_encoder(space)
    if encoder is None:
        return None
    if len(told) != episodes:
        raise DataError(f"data.text: {len(told)} instructions for {episodes} episodes")
    return encoder(told)


def _stats(experiment: Experiment, dataset: EpisodeDataset, seen: Representation) -> DatasetStats:
    data = experiment.data
    plain = data.representation.plain
    stats = dataset.stats() if plain else represented_stats(dataset, seen)
    known = {*stats.observations, *stats.actions}
    for name in data.normalization:
        if name not in known:
            raise ConfigError(
                f"data.normalization: no signal '{name}'.{did_you_mean(name, known)}"
                f" Signals: {sorted(known)}"
            )
    return dataclasses.replace(stats, scaling=dict(data.normalization))


def _batches(
    experiment: Experiment, dataset: EpisodeDataset, seen: Representation, *, train: bool
) -> Batches:
    data, batches = experiment.data, cast("Batches", dataset)
    if train and not data.pictures.plain:
        batches = Augmented(batches, data.pictures, experiment.seed)
    return batches if data.representation.plain else Represented(batches, seen)


def _held_out_batches(
    experiment: Experiment,
    flat: FlatEpisodes,
    seen: Representation,
    said: NDArray[np.float32] | None,
) -> Batches | None:
    out = np.asarray(_held_out(experiment, flat), dtype=np.int64)
    if not out.size:
        return None
    spec = experiment.algorithm.batches()
    dataset = EpisodeDataset(flat, spec, experiment.seed, out, texts=said)
    return _batches(experiment, dataset, seen, train=False)


def _held_out(experiment: Experiment, flat: FlatEpisodes) -> list[int]:
    _, out = split_episodes(len(flat.ids), experiment.data.held_out, experiment.seed)
    return np.asarray(out).tolist()


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
    )
