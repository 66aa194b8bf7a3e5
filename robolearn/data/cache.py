"""A flat, memory-mapped copy of the signals that training reads, outside the store.

Derived and disposable: keyed by the content of the episodes and the signals chosen, built in a
temporary folder and renamed, so that a half-built cache is never read.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.config import config_hash
from robolearn.errors import DataError, StoreError
from robolearn.spec import TaskSpace, task_space_from_json, to_json

log = logging.getLogger(__name__)

FORMAT = 1


@dataclass(frozen=True, slots=True)
class EpisodeArrays:
    """One episode as training sees it: ``observations[name] [T, *shape]``, ``actions [T, a]``,
    ``reward [T]`` (of the step that starts at the tick), ``terminal`` (the last step ended the
    task, do not bootstrap; otherwise only the recording stopped).
    """

    id: str
    observations: Mapping[str, NDArray[Any]]
    actions: NDArray[Any]
    reward: NDArray[Any]
    terminal: bool


@runtime_checkable
class EpisodeSource(Protocol):
    """Where episodes come from: a store, or arrays in memory."""

    @property
    def content_hash(self) -> str:
        """Changes when any episode, or the choice of episodes, changes."""
        ...

    @property
    def task_space(self) -> TaskSpace:
        """The signals that :meth:`episodes` delivers."""
        ...

    def episodes(self) -> Iterable[EpisodeArrays]:
        """All episodes in a fixed order."""
        ...


@dataclass(frozen=True, slots=True)
class FlatEpisodes:
    """All episodes concatenated: ``observations[name] [N, *shape]`` and ``actions [N, a]`` as
    float32 (uint8 for images), ``reward [N]``, ``terminal [episodes]``; episode ``e`` is rows
    ``starts[e]:starts[e + 1]``.
    """

    task_space: TaskSpace
    ids: tuple[str, ...]
    starts: NDArray[np.int64]
    observations: Mapping[str, NDArray[Any]]
    actions: NDArray[np.float32]
    reward: NDArray[np.float32]
    terminal: NDArray[np.bool_]
    content_hash: str

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Steps per episode."""
        return np.diff(self.starts)


def user_cache_dir() -> Path:
    """``$ROBOLEARN_CACHE``, else ``robolearn`` in the user's cache folder."""
    explicit = os.environ.get("ROBOLEARN_CACHE")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "robolearn"


def flatten(source: EpisodeSource) -> FlatEpisodes:
    """Read and check every episode, in memory."""
    space = source.task_space
    episodes = list(source.episodes())
    if not episodes:
        raise DataError("no episodes to train on; 'robolearn data ls STORE' shows what it holds")
    for episode in episodes:
        _check(episode, space)
    lengths = [len(e.actions) for e in episodes]
    return FlatEpisodes(
        task_space=space,
        ids=tuple(e.id for e in episodes),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        observations={
            s.name: np.concatenate([_narrow(e.observations[s.name]) for e in episodes])
            for s in space.observations
        },
        actions=np.concatenate([np.asarray(e.actions, dtype=np.float32) for e in episodes]),
        reward=np.concatenate([np.asarray(e.reward, dtype=np.float32) for e in episodes]),
        terminal=np.array([e.terminal for e in episodes], dtype=np.bool_),
        content_hash=source.content_hash,
    )


def cached(source: EpisodeSource, folder: Path | None = None) -> FlatEpisodes:
    """The flat copy of ``source``, memory-mapped; built when absent, else reused."""
    root = folder if folder is not None else user_cache_dir()
    path = root / f"flat-{config_hash(FORMAT, source.content_hash, to_json(source.task_space))}"
    if not (path / "index.json").is_file():
        _build(flatten(source), path)
    return _open(path)


def _build(flat: FlatEpisodes, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}-", dir=path.parent))
    except OSError as error:
        raise StoreError(
            f"cannot write the training cache under '{path.parent}' ({error.strerror});"
            " set ROBOLEARN_CACHE to a writable folder"
        ) from error
    arrays: dict[str, NDArray[Any]] = {f"observation{i}": flat.observations[s.name] for i, s in
                                       enumerate(flat.task_space.observations)}  # fmt: skip
    arrays |= {
        "actions": flat.actions,
        "reward": flat.reward,
        "terminal": flat.terminal,
        "starts": flat.starts,
    }
    try:
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        index = {
            "task_space": to_json(flat.task_space),
            "ids": flat.ids,
            "content_hash": flat.content_hash,
        }
        (temporary / "index.json").write_text(json.dumps(index), encoding="utf-8")
        # Another process may have been faster; its copy has the same content.
        try:
            temporary.rename(path)
        except OSError:
            if not (path / "index.json").is_file():
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _open(path: Path) -> FlatEpisodes:
    index = json.loads((path / "index.json").read_text(encoding="utf-8"))
    space = task_space_from_json(index["task_space"])

    def load(name: str) -> NDArray[Any]:
        return np.load(path / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    return FlatEpisodes(
        task_space=space,
        ids=tuple(index["ids"]),
        starts=np.array(load("starts")),
        observations={s.name: load(f"observation{i}") for i, s in enumerate(space.observations)},
        actions=load("actions"),
        reward=load("reward"),
        terminal=np.array(load("terminal")),
        content_hash=index["content_hash"],
    )


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    return values if values.dtype == np.uint8 else np.asarray(values, dtype=np.float32)


def _check(episode: EpisodeArrays, space: TaskSpace) -> None:
    steps = len(episode.actions)
    if steps == 0:
        raise DataError(f"episode {episode.id} has no steps")
    if episode.actions.shape != (steps, space.action_size):
        raise DataError(
            f"episode {episode.id}: expected actions ({steps}, {space.action_size}),"
            f" got {episode.actions.shape}"
        )
    named: dict[str, NDArray[Any]] = {"actions": episode.actions, "reward": episode.reward}
    for signal in space.observations:
        if signal.name not in episode.observations:
            raise DataError(
                f"episode {episode.id} lacks '{signal.name}'; it has {sorted(episode.observations)}"
            )
        values = episode.observations[signal.name]
        if values.shape != (steps, *signal.shape):
            raise DataError(
                f"episode {episode.id}: '{signal.name}' should be {(steps, *signal.shape)},"
                f" is {values.shape}"
            )
        named[signal.name] = values
    for name, values in named.items():
        finite = np.isfinite(values)
        if not finite.all():
            bad = int(np.argwhere(~finite)[0][0])
            raise DataError(
                f"episode {episode.id}: '{name}' is not finite at step {bad} of {steps};"
                " leave the episode out or repair it"
            )
