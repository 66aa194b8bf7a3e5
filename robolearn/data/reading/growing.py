"""Follows a store that somebody else appends to: only what is new is read.

    STORE   ep_000000 ... ep_000031 | ep_000032 ... ep_000047        committed since the last look
                 taken in           |      read, checked, appended
    rows    one column per signal, mapped from files that are made longer (growing_rows.py)

A reader without a lock: it follows the commit log, so it sees whole episodes only, in the order in
which they were committed. The rows are those that :func:`~robolearn.data.reading.cache.cached`
would give for the same episodes. What happens later to an episode that was taken in already (its
outcome is annotated, it is removed) is not followed: who wants that begins anew. Memory holds what
is in use of the rows, and some numbers per episode; the files go with the process.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.config import config_hash
from robolearn.data.decisions import Driven
from robolearn.data.episode import EpisodeInfo, EpisodeStart
from robolearn.data.reading.cache import FlatEpisodes, episode_rows, row_layout
from robolearn.data.reading.growing_rows import GrowingRows
from robolearn.data.reading.selection import DataConfig, StoreChoice
from robolearn.data.reading.stored_episodes import StoredEpisodes
from robolearn.data.reading.weighting import EpisodeQuality
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, SpecMismatchError
from robolearn.pusht import Pose, recorded_goal
from robolearn.spec import EmbodimentSpec, TaskSpace, diff_task_spaces
from robolearn.timing.latencies import Latencies, trained_with


class GrowingEpisodes:
    """The episodes of ``store`` that ``config`` chooses, as far as :meth:`refresh` has looked.

    ``folder``: where the rows are kept. ``like``: signals that the episodes must have, such as
    those of a policy that is to learn from them.
    """

    def __init__(
        self, store: Path | str, config: DataConfig, folder: Path, like: TaskSpace | None = None
    ) -> None:
        self._store = EpisodeStore.open(store)
        self._config, self._folder, self._like = config, folder, like
        self._choice = StoreChoice(str(store))
        self._reader: StoredEpisodes | None = None
        # The line of the commit log to look from.
        self._line = 0
        self._rows: dict[str, GrowingRows] = {}
        self._starts = GrowingRows((), np.int64)
        self._starts.append(np.zeros(1, dtype=np.int64))
        self._labels: dict[str, int] = {}
        self._infos: list[EpisodeInfo] = []
        self._texts: list[str] = []
        self._began: list[EpisodeStart] = []
        self._driven: list[Driven | None] = []
        self._recorded: list[bool] = []
        self._annotated: list[str] = []
        self._goals: dict[Pose, None] = {}
        self._latencies: dict[str, Latencies] = {}
        self._hash = config_hash(self._store.uuid)
        self._flat: FlatEpisodes | None = None

    def refresh(self, at_most: int | None = None) -> int:
        """Take in what was committed since the last call, ``at_most`` so many episodes; returns how
        many.

        Errors: :class:`DataError` and :class:`SpecMismatchError` for an episode that cannot be
        learned from, :class:`StoreError` where the disk is full; the episodes before it are kept,
        and the next call begins with it.
        """
        taken = 0
        for line, episode_id in self._new():
            if at_most is not None and taken >= at_most:
                break
            info = self._store.info(episode_id)
            if self._choice.takes(info, self._config):
                self._take(info)
                taken += 1
            self._line = line + 1
        else:
            self._line = len(self._store.log())
        if taken:
            self._flat = None
        return taken

    @property
    def flat(self) -> FlatEpisodes:
        """The rows so far; what is handed out does not change.

        Errors: :class:`DataError` as long as there is no episode.
        """
        if self._flat is None:
            self._flat = self._views()
        return self._flat

    @property
    def store_id(self) -> str:
        """Of the store, whatever its folder is called."""
        return self._store.uuid

    @property
    def ids(self) -> tuple[str, ...]:
        """Episodes in the order in which they were committed."""
        return tuple(i.id for i in self._infos)

    @property
    def steps(self) -> tuple[int, ...]:
        """Ticks of every episode."""
        return tuple(i.steps for i in self._infos)

    @property
    def task_space(self) -> TaskSpace:
        """The chosen signals, as the first episode declares them."""
        return self._known().space

    @property
    def qualities(self) -> tuple[EpisodeQuality, ...]:
        """How every episode ended, as annotated when it was taken in."""
        found = zip(self._infos, self._recorded, strict=True)
        return tuple(EpisodeQuality(i.success, i.score, recorded) for i, recorded in found)

    @property
    def annotated(self) -> tuple[str, ...]:
        """Why the outcome of an episode was annotated, one phrase per such episode."""
        return tuple(self._annotated)

    @property
    def texts(self) -> tuple[str, ...]:
        """What every episode was told to be."""
        return tuple(self._texts)

    @property
    def latencies(self) -> Latencies:
        """What a run on these episodes is trained with."""
        return trained_with(self._latencies.values(), self._config.latency_s)

    @property
    def goals(self) -> tuple[Pose, ...]:
        """Where the goal of Push-T was, each pose once."""
        return tuple(self._goals)

    @property
    def starts(self) -> tuple[EpisodeStart, ...]:
        """Where every episode began."""
        return tuple(self._began)

    @property
    def driven(self) -> tuple[Driven | None, ...]:
        """Who drove every episode, as far as it was recorded."""
        return tuple(self._driven)

    @property
    def content_hash(self) -> str:
        """Of the episodes taken in, in their order."""
        return self._hash

    def _new(self) -> list[tuple[int, str]]:
        """The episodes from :attr:`_line` on, with their lines of the log."""
        log = self._store.log()
        if len(log) < self._line:
            raise DataError(
                f"the store '{self._store.path}' had {self._line} commits, now {len(log)}: it was"
                " replaced while it was followed; begin anew"
            )
        if len(log) == self._line:
            return []
        ids = set(self._store.ids_since(self._line))
        return [(n, e.id) for n, e in enumerate(log[self._line :], self._line) if e.id in ids]

    def _take(self, info: EpisodeInfo) -> None:
        """Read, check and append one episode: all of it, or nothing."""
        if self._reader is None:
            self._reader = self._first(info)
        space = self._reader.space
        labels = dict(self._labels)
        meta, arrays = self._reader.read(info, images=True)
        first, count = len(self._rows["actions"]), len(arrays.actions)
        for name, at, block in episode_rows(arrays, space.observations, space, labels):
            self._rows[name].put(first + at, block)
        for rows in self._rows.values():
            rows.keep(first + count)
        self._starts.append(np.array([first + count]))
        self._labels = labels
        self._infos.append(info)
        manifest, said = self._store.manifest(info.id), self._store.annotated(info.id)
        self._recorded.append(manifest.info.success)
        if said.success is not None:
            self._annotated.append(
                "; ".join(filter(None, (said.reason, *said.notes))) or "no reason"
            )
        self._texts.append(meta.task_text or info.task)
        self._began.append(EpisodeStart.of(meta))
        self._driven.append(Driven.of(meta))
        if info.task == "pusht":
            self._goals[recorded_goal(meta.provenance)] = None
        late = Latencies.of(meta.provenance)
        self._latencies[config_hash(late.to_json())] = late
        content = sorted((f.path, f.sha256) for f in manifest.files)
        self._hash = config_hash(self._hash, content, info.success)

    def _first(self, info: EpisodeInfo) -> StoredEpisodes:
        """What reads episodes such as this one, the first of all; the columns for their rows."""
        embodiment = self._store.meta(info.id).embodiment
        if self._like is not None:
            self._require_alike(info.id, embodiment, self._like)
        reader = StoredEpisodes(self._store, self._config, embodiment)
        if self._like is not None:
            reader.space = _declared_as(self._like, reader.space)
        layout = row_layout(reader.space, reader.space.observations)
        self._rows = {k: GrowingRows(*of, self._folder) for k, of in layout.items()}
        return reader

    def _require_alike(self, episode: str, embodiment: EmbodimentSpec, like: TaskSpace) -> None:
        lines = diff_task_spaces(like, embodiment)
        if lines:
            raise SpecMismatchError(
                f"episode {episode} of '{self._store.path}' ('{embodiment.name}') has another task"
                " space than the policy that is to learn from it:\n" + "\n".join(lines)
            )

    def _known(self) -> StoredEpisodes:
        if self._reader is None or not self._infos:
            wanted = {True: " that succeeded", False: " that failed", None: ""}
            raise DataError(
                f"'{self._store.path}' has no episodes of kinds {list(self._config.kinds)}"
                f"{wanted[self._config.success]} yet (it has {len(self._store.ids())} in all)"
            )
        return self._reader

    def _views(self) -> FlatEpisodes:
        space = self._known().space
        rows: dict[str, NDArray[Any]] = {name: r.values for name, r in self._rows.items()}
        return FlatEpisodes(
            task_space=space,
            ids=self.ids,
            starts=self._starts.values,
            observations={
                s.name: rows[f"observation{i}"] for i, s in enumerate(space.observations)
            },
            actions=rows["actions"],
            reward=rows["reward"],
            done=rows["done"],
            cost=rows["cost"],
            source=rows["source"],
            intervention=rows["intervention"],
            labels=tuple(self._labels),
            seen=rows["seen"],
            content_hash=self._hash,
        )


def _declared_as(like: TaskSpace, space: TaskSpace) -> TaskSpace:
    """``space`` with the signals of ``like`` as that declares them: what does not matter, such as
    the names of components, is the policy's to say.
    """
    observations = {s.name: s for s in like.observations}
    actions = {a.name: a for a in like.actions}
    return dataclasses.replace(
        space,
        observations=tuple(observations.get(s.name, s) for s in space.observations),
        actions=tuple(actions.get(a.name, a) for a in space.actions),
    )
