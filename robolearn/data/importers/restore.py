"""Restores episodes that this package exported, with their names, times and metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from robolearn.data.importers.recording import FrameStream, SourceEpisode
from robolearn.data.store.layout import meta_from_json
from robolearn.errors import DataError
from robolearn.shapes import AnyArray
from robolearn.types import Signals


def restored(
    source: SourceEpisode,
    raw_meta: Any,
    values: Signals,
    frames: Mapping[str, FrameStream],
    *,
    ticks: AnyArray,
    progress: AnyArray,
) -> SourceEpisode:
    """``source`` with metadata ``raw_meta``; ``values`` and ``frames`` by the true signal names.

    Cameras without frames leave the embodiment. Damaged metadata is a :class:`DataError`.
    """
    where = f"{source.source}: episode {source.index}"
    try:
        meta = meta_from_json(raw_meta)
        specs = {s.name: s for s in meta.embodiment.signals}
        signals = {
            name: v.reshape(len(v), *specs[name].shape).astype(specs[name].dtype)
            for name, v in values.items()
        }
        streams = tuple(FrameStream(specs[name], f.blocks) for name, f in frames.items())
        actions = [np.asarray(v, dtype=np.float64) for v in source.actions.values()]
        flat = np.concatenate([v.reshape(len(v), -1) for v in actions], axis=1)
        commanded = meta.embodiment.task_space(()).split(flat)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{where}: its robolearn metadata is damaged: {error}") from error
    kept = tuple(s for s in meta.embodiment.signals if not s.is_image or s.name in frames)
    embodiment = dataclasses.replace(meta.embodiment, signals=kept)
    return dataclasses.replace(
        source,
        meta=dataclasses.replace(meta, embodiment=embodiment),
        rate_hz=embodiment.rate_hz,
        signals=signals,
        actions=commanded,
        frames=streams,
        cameras=(),
        times={},
        t_ns=np.asarray(ticks, dtype=np.int64).reshape(-1),
        progress=np.asarray(progress, dtype=np.float64).reshape(-1),
    )
