"""Reads from episodes how the arm handled objects: forces at the tool, and where both were."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from hardware.cell.motion import TOOL_POSE, WRENCH
from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.geometry import quat_heading
from robolearn.pusht import TOOL
from robolearn.types import SampleBlock
from sim.identification.object_forces import Fours, Handling
from sim.identification.object_model import FoundObject, ObjectModel, found_object, object_models
from sim.perturbations.model import object_signals
from sim.scene.config import Scene

Seconds = Float64[NDArray[np.float64], "_"]
Columns = Float64[NDArray[np.float64], "_ k"]


def handled_episodes(store: EpisodeStore, ids: Sequence[str], scene: Scene) -> list[Episode]:
    """Of the episodes ``ids`` what tells of objects: no pictures are read."""
    wanted = {TOOL_POSE, TOOL, WRENCH, *(s.name for s in object_signals(scene))}
    found: list[Episode] = []
    for name in ids:
        there = {s.name for s in store.meta(name).embodiment.signals}
        found.append(store.read(name, there & wanted))
    return found


def found_objects(
    episodes: Sequence[Episode], scene: Scene
) -> tuple[tuple[FoundObject, ...], tuple[str, ...]]:
    """Mass and friction of every object of ``scene`` that the episodes saw handled, and what
    people should know: without forces at the tool nothing is told, and all stays as it was.
    """
    signals = [s.name for s in object_signals(scene)]
    seen = [n for n in signals if any(n in e.streams for e in episodes)]
    felt = [e for e in episodes if WRENCH in e.streams]
    if not seen:
        return (), ()
    if not felt:
        note = (
            f"mass and friction of {', '.join(seen)} are assumed: no episode has forces at the tool"
            f" ('{WRENCH}'; a cell records them with 'wrench: true'), and what an object does to"
            " the joints is less than their dry friction"
        )
        return (), (note,)
    objects = [o for o in object_models(scene) if o.signal in seen]
    return tuple(found_object(o, [h for e in felt for h in handlings(e, o)]) for o in objects), ()


def handlings(episode: Episode, thing: ObjectModel) -> list[Handling]:
    """One, or none where a signal is missing."""
    streams = episode.streams
    tool = streams.get(TOOL_POSE, streams.get(TOOL))
    place, force = streams.get(thing.signal), streams.get(WRENCH)
    if tool is None or place is None or force is None:
        return []
    start_ns = int(force.t_ns[0]) if len(force.t_ns) else 0
    force_t_s, wrench = _finite(force, start_ns)
    tool_t_s, tip = _finite(tool, start_ns)
    object_t_s, pose = _finite(place, start_ns)
    return [
        Handling(
            thing.radius_m,
            force_t_s,
            wrench[:, :3] @ thing.R_table_base.T,
            tool_t_s,
            tip[:, :3] if tip.shape[1] >= 3 else np.pad(tip, ((0, 0), (0, 1))),
            object_t_s,
            _placed(pose),
        )
    ]


def _placed(pose: Columns) -> Fours:
    """x, y, z [m] and heading [rad] of planar or of full poses."""
    if pose.shape[1] == 3:
        return np.insert(pose, 2, 0.0, axis=1)
    return np.column_stack([pose[:, :3], quat_heading(pose[:, 3:7])])


def _finite(block: SampleBlock, start_ns: int) -> tuple[Seconds, Columns]:
    """Valid samples later than every one before them, with their times [s]."""
    value = block.value.astype(np.float64)
    later = np.append(True, block.t_ns[1:] > np.maximum.accumulate(block.t_ns)[:-1])
    good = np.isfinite(value).all(axis=1) & block.valid & later[: len(value)]
    return (block.t_ns[good] - start_ns) * 1e-9, value[good]
