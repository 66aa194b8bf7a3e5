"""Writes Diffusion Policy's zarr v2: ``data/<part.name>``, ``data/action``, ``meta/episode_ends``.

Push-T becomes pixels under the names of the original recording (``pusht_px.py``).
``data/reward``, ``data/progress`` and ``data/tick_t_ns`` are added; the metadata of the
episodes lies in the group's ``.zattrs``, so that an import gives the same episodes back.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.data.exporters.common import (
    ExportOptions,
    ExportReport,
    Plan,
    actions_of,
    aside,
    episodes,
    flat_key,
    make_plan,
    observed,
    sidecar,
)
from robolearn.data.exporters.pusht_px import is_pusht, pusht_columns
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.pusht import BLOCK, TOOL

META = "robolearn_episodes"
ROUNDED = "Push-T in pixels is float32, as in the original: positions are rounded to 0.1 um"
RESERVED = ("action", "reward", "progress", "tick_t_ns")
LOW_DIM_ROWS = 4096


def export_diffusion_policy(
    store: EpisodeStore, ids: Sequence[str], out: Path, options: ExportOptions
) -> ExportReport:
    """Write one zarr v2 folder."""
    import zarr

    library: Any = zarr
    plan = make_plan(store, ids, options)
    tasks = {store.info(i).task for i in ids}
    pixels = len(tasks) == 1 and is_pusht(tasks.pop(), plan.embodiment)
    pixels = pixels and {TOOL, BLOCK} <= {s.name for s in plan.states}
    keys = [flat_key(s.name) for s in (*plan.states, *plan.cameras)]
    if len({*keys, *RESERVED}) != len(keys) + len(RESERVED):
        raise DataError(f"signal names collide in the format: {sorted(keys)}")
    ends: list[int] = []
    metas: list[dict[str, Any]] = []
    # Zarr leaves out chunks of zeros, and nobody can tell them from lost ones.
    whole = library.config.set({"array.write_empty_chunks": True})
    with aside(out) as temporary, whole:
        root = library.open_group(str(temporary), mode="w", zarr_format=2)
        data, meta = root.create_group("data"), root.create_group("meta")
        for _, episode in episodes(store, ids, plan, options):
            _append(data, _columns(episode, plan, pixels=pixels))
            ends.append((ends[-1] if ends else 0) + episode.steps)
            metas.append(sidecar(episode))
        meta.create_array("episode_ends", data=np.array(ends, dtype=np.int64), compressors=None)
        root.attrs[META] = metas
    not_held = (*plan.not_held, *((ROUNDED,) if pixels else ()))
    return ExportReport("diffusion-policy", str(out), len(ids), ends[-1], not_held)


def _columns(episode: Episode, plan: Plan, *, pixels: bool) -> dict[str, NDArray[Any]]:
    if pixels:
        values = pusht_columns(episode, plan)
    else:
        values = {
            flat_key(spec.name): observed(episode, spec) for spec in (*plan.states, *plan.cameras)
        } | {"action": actions_of(episode)}
    return values | {
        "reward": episode.reward,
        "progress": episode.progress,
        "tick_t_ns": episode.tick_t_ns,
    }


def _append(group: Any, columns: dict[str, NDArray[Any]]) -> None:
    blosc: Any = importlib.import_module("numcodecs").Blosc  # it has no stubs
    for key, values in columns.items():
        if key not in group:
            rows = 1 if values.ndim == 4 else LOW_DIM_ROWS
            group.create_array(
                key,
                shape=(0, *values.shape[1:]),
                chunks=(rows, *values.shape[1:]),
                dtype=values.dtype,
                compressors=blosc(cname="zstd", clevel=3),
            )
        array = group[key]
        start = int(array.shape[0])
        array.resize((start + len(values), *values.shape[1:]))
        array[start:] = values
