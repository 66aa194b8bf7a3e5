"""Reads an episode store for the report: how many episodes, how long, how they ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.report.tasks.base import Path2
from eval.report.tasks.table import task_page
from robolearn.data.store.store import EpisodeStore

MAX_PATHS = 300


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """An episode store in figures.

    ``final``: the task's final measure in [0, 1] of the episodes that have one; ``paths``: tool
    positions [m] ``[k, 2]`` of at most :data:`MAX_PATHS` episodes.
    """

    name: str
    task: str
    kinds: Mapping[str, int]
    steps: int
    lengths_s: tuple[float, ...]
    final: tuple[float, ...]
    successes: int
    paths: tuple[Path2, ...]
    sources: tuple[str, ...] = ()
    # Where the task's goal was in all of the recordings, as their page draws it.
    goal: tuple[float, ...] | None = None


def store_facts(folder: Path, name: str) -> StoreFacts:
    """Read every episode of a store once."""
    store = EpisodeStore.open(folder)
    infos = store.list()
    task = Counter(i.task for i in infos).most_common(1)[0][0] if infos else ""
    words = task_page(task)
    final: list[float] = []
    paths: list[NDArray[np.float64]] = []
    sources: dict[str, None] = {}
    goals: set[tuple[float, ...] | None] = set()
    for info in infos:
        episode = store.read(info.id)
        sources.setdefault(str(episode.meta.provenance.get("source", "")), None)
        goals.add(words.goal(episode))
        measured = words.final(episode)
        if measured is not None:
            final.append(measured)
        path = words.path(episode) if len(paths) < MAX_PATHS else None
        if path is not None:
            paths.append(path)
    return StoreFacts(
        name=name,
        task=task,
        kinds=Counter(i.kind for i in infos),
        steps=sum(i.steps for i in infos),
        lengths_s=tuple(i.duration_s for i in infos),
        final=tuple(final),
        successes=sum(i.success for i in infos),
        paths=tuple(paths),
        sources=tuple(s for s in sources if s),
        goal=goals.pop() if len(goals) == 1 else None,
    )
