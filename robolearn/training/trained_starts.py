"""Says which starts a run was trained on, so that it can be tried on others (``suite draw``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from robolearn.config import config_hash, from_dict
from robolearn.data.episode import EpisodeStart
from robolearn.errors import DataError

KEY = "starts"


def starts_entry(
    ids: Sequence[str],
    starts: Sequence[EpisodeStart],
    held_out: Collection[str],
    parent: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What the provenance of a run says of its starts: those of its episodes without the ones that
    are held out, and those of the run that it builds on (``parent``: its provenance). Nothing where
    that one does not say its own.
    """
    mine = [asdict(s) for i, s in zip(ids, starts, strict=True) if i not in held_out]
    if parent is None:
        return {KEY: mine}
    return {KEY: [*parent[KEY], *mine]} if KEY in parent else {}


def starts_of(provenance: Mapping[str, Any], run: str) -> tuple[EpisodeStart, ...]:
    """The starts that a run was trained on; :class:`DataError` where it does not say them."""
    if KEY not in provenance:
        raise DataError(
            f"'{run}' does not say which starts it was trained on: it, or the run that it builds"
            " on, was trained by an earlier release. Train it again with this one"
        )
    where = f"{run}: {KEY}"
    return tuple(from_dict(EpisodeStart, s, where, error=DataError) for s in provenance[KEY])


def worlds_seen(provenance: Mapping[str, Any], worlds: Mapping[str, str]) -> dict[str, bool]:
    """Which of ``worlds`` (name -> hash of its scene) a run was trained in.

    One of which another version was trained in is left out; nothing where it is not known in which
    worlds all of the run's recordings were made.
    """
    starts = provenance.get(KEY, [])
    scenes, names = {s.get("scene", "") for s in starts}, {s["world"] for s in starts}
    if not scenes or "" in scenes:
        return {}
    return {w: h in scenes for w, h in worlds.items() if h in scenes or w not in names}


def starts_hash(provenance: Mapping[str, Any]) -> str:
    """Of all starts that a run was trained on, in order; empty where it does not say them."""
    return config_hash(provenance[KEY]) if KEY in provenance else ""
