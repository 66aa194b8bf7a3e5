"""Tells which trial an episode is of, and holds rows of trials against the episodes they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from robolearn.data.store.store import EpisodeStore
from robolearn.errors import StoreCorruptError
from robolearn.types import TrialRecord

STORE = "store"
# Where an episode says which trial it is of.
KEY = "trial"


@dataclass(frozen=True, slots=True)
class TrialOf:
    """A trial as its episode names it: hash of the plan, slot, row of the table (from 1)."""

    plan: str
    slot: int | None
    row: int


def episode_of(store: EpisodeStore, episode: str) -> TrialOf | None:
    """Which trial an episode of ``store`` is of; None: of none."""
    said = store.meta(episode).provenance.get(KEY)
    if not isinstance(said, Mapping):
        return None
    values = cast("Mapping[str, Any]", said)
    plan, slot, row = values.get("plan"), values.get("slot"), values.get("row")
    if not (isinstance(plan, str) and isinstance(slot, int) and isinstance(row, int) and row > 0):
        return None
    return TrialOf(plan, slot, row)


def require_episodes(folder: Path, rows: Sequence[TrialRecord]) -> None:
    """Hold every row of the trials in ``folder`` that names an episode against that episode.

    :class:`StoreCorruptError` for one that is not in the store, or that is of another trial.
    """
    named = {n: r for n, r in enumerate(rows, 1) if r.episode}
    if not named:
        return
    where = folder / STORE
    if not where.is_dir():
        raise StoreCorruptError(
            f"'{where}', where the episodes of {len(named)} trials are, is gone; put it back, or"
            " restore it from a copy"
        )
    store = EpisodeStore.open(where)
    ids = set(store.ids())
    for number, row in named.items():
        if row.episode not in ids:
            raise StoreCorruptError(
                f"trial {number} names the episode {row.episode}, which is not in '{where}';"
                " restore the store from a copy"
            )
        if episode_of(store, row.episode) != TrialOf(row.plan, row.slot, number):
            raise StoreCorruptError(
                f"trial {number} names the episode {row.episode}, which in '{where}' is of another"
                " trial: the store was exchanged; restore the one that these trials were recorded"
                " into"
            )
