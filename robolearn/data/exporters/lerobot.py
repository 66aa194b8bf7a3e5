"""Writes LeRobot v3.0: parquet tables and an mp4 per camera and episode.

    meta/info.json, stats.json, tasks.parquet, episodes/chunk-000/file-000.parquet
    meta/robolearn.json                names and metadata that the format has no place for
    data/chunk-000/file-000.parquet    observation.state, action, next.*, timestamp, indices
    videos/<camera>/chunk-000/file-000.mp4

``observation.state`` holds all signals that are not pictures, side by side. LeRobot wants
``timestamp = frame_index / fps``: the true tick times go to ``robolearn.tick_t_ns``.
Layout checked against datasets that LeRobot 0.6.1 writes.
"""

from __future__ import annotations

import json
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
    make_plan,
    observed,
    sidecar,
)
from robolearn.data.exporters.lerobot_meta import (
    CHUNKS,
    DATA,
    VIDEO,
    camera_key,
    features,
    write_metadata,
)
from robolearn.data.exporters.lerobot_stats import EpisodeStats, array_stats, picture_stats
from robolearn.data.exporters.video import encode
from robolearn.data.importers.recording import optional_module
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError

FILE_ROWS = 200_000
"""Rows of a data file (below LeRobot's 100 MB for states of up to 50 numbers)."""


class _DataFiles:
    """Parquet files, one row group per episode, a new file after ``FILE_ROWS`` rows."""

    def __init__(self, root: Path) -> None:
        self._parquet = optional_module("pyarrow.parquet", "pyarrow", "writing LeRobot data")
        self._root = root
        self._writer: Any = None
        self._rows = 0
        self.number = -1

    def add(self, table: Any) -> int:
        """Write the rows of an episode; returns the number of its file."""
        if self._writer is None or self._rows >= FILE_ROWS:
            self.close()
            self.number += 1
            self._rows = 0
            chunk, file = divmod(self.number, CHUNKS)
            path = self._root / DATA.format(chunk_index=chunk, file_index=file)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = self._parquet.ParquetWriter(str(path), table.schema)
        self._writer.write_table(table)
        self._rows += table.num_rows
        return self.number

    def close(self) -> None:
        """Write the footer of the open file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def export_lerobot(
    store: EpisodeStore, ids: Sequence[str], out: Path, options: ExportOptions
) -> ExportReport:
    """Write one dataset folder."""
    optional_module("pyarrow.parquet", "pyarrow", "writing LeRobot data")
    plan = make_plan(store, ids, options)
    for spec in plan.cameras:
        if not options.lossless and (spec.shape[0] % 2 or spec.shape[1] % 2):
            raise DataError(f"{spec.name} has odd sizes {spec.shape}: export with --lossless")
    rows: list[dict[str, Any]] = []
    metas: list[dict[str, Any]] = []
    tasks: dict[str, int] = {}
    with aside(out) as temporary:
        files = _DataFiles(temporary)
        try:
            for index, episode in episodes(store, ids, plan, options):
                task = episode.meta.task_text or episode.meta.task
                number = tasks.setdefault(task, len(tasks))
                row, columns = _episode_row(index, episode, rows, plan, task)
                row["stats"] = _stats(columns, episode, plan)
                file = files.add(_table(columns, index, number))
                row["data/chunk_index"], row["data/file_index"] = divmod(file, CHUNKS)
                rows.append(row)
                metas.append(sidecar(episode))
                _videos(temporary, index, episode, plan, lossless=options.lossless)
        finally:
            files.close()
        write_metadata(temporary, plan, rows, tuple(tasks), lossless=options.lossless)
        aside_meta = {
            "states": [s.name for s in plan.states],
            "cameras": {camera_key(s.name): s.name for s in plan.cameras},
            "episodes": metas,
        }
        (temporary / "meta/robolearn.json").write_text(json.dumps(aside_meta))
    steps = sum(int(row["length"]) for row in rows)
    not_held = list(plan.not_held)
    if plan.cameras and not options.lossless:
        not_held.append("pictures bit for bit: H.264 is lossy (--lossless is not)")
    return ExportReport("lerobot", str(out), len(ids), steps, tuple(not_held))


def _episode_row(
    index: int, episode: Episode, rows: list[dict[str, Any]], plan: Plan, task: str
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The line of ``meta/episodes`` and the columns of the data, without indices."""
    steps = episode.steps
    start = int(rows[-1]["dataset_to_index"]) if rows else 0
    rate = round(plan.embodiment.rate_hz) or 1
    row: dict[str, Any] = {
        "episode_index": index,
        "tasks": [task],
        "length": steps,
        "dataset_from_index": start,
        "dataset_to_index": start + steps,
    }
    for spec in plan.cameras:
        key = f"videos/{camera_key(spec.name)}"
        row[f"{key}/chunk_index"], row[f"{key}/file_index"] = divmod(index, CHUNKS)
        row[f"{key}/from_timestamp"], row[f"{key}/to_timestamp"] = 0.0, steps / rate
    frame = np.arange(steps)
    last = frame == steps - 1
    columns: dict[str, NDArray[Any]] = {
        "observation.state": _state(episode, plan),
        "action": actions_of(episode),
        "next.reward": episode.reward,
        "next.done": episode.terminal | episode.truncated,
        "next.truncated": episode.truncated,
        "next.success": last & episode.success,
        "robolearn.progress": episode.progress,
        "robolearn.tick_t_ns": episode.tick_t_ns,
        "timestamp": (frame / rate).astype(np.float32),
        "frame_index": frame,
        "index": start + frame,
    }
    if not plan.states:
        del columns["observation.state"]
    return row, columns


def _state(episode: Episode, plan: Plan) -> NDArray[np.float64]:
    parts: list[NDArray[np.float64]] = [np.zeros((episode.steps, 0))]
    for spec in plan.states:
        values = observed(episode, spec)
        wide = np.asarray(values, dtype=np.float64)
        if not np.array_equal(wide.astype(values.dtype), values):
            raise DataError(f"{episode.id}: {spec.name} has integers above 2**53")
        parts.append(wide.reshape(episode.steps, -1))
    return np.concatenate(parts, axis=1)


def _table(columns: dict[str, NDArray[Any]], index: int, task: int) -> Any:
    arrow = optional_module("pyarrow", "pyarrow", "writing LeRobot data")
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        flat = arrow.array(values.reshape(-1))
        wide = values.ndim == 2 and values.shape[1] > 1
        arrays[name] = arrow.FixedSizeListArray.from_arrays(flat, values.shape[1]) if wide else flat
    steps = len(columns["frame_index"])
    arrays["episode_index"] = arrow.array(np.full(steps, index))
    arrays["task_index"] = arrow.array(np.full(steps, task))
    return arrow.table(arrays)


def _stats(columns: dict[str, NDArray[Any]], episode: Episode, plan: Plan) -> EpisodeStats:
    named = {n: array_stats(v) for n, v in columns.items() if n in features(plan)}
    for spec in plan.cameras:
        named[camera_key(spec.name)] = picture_stats(observed(episode, spec))
    return named


def _videos(root: Path, index: int, episode: Episode, plan: Plan, *, lossless: bool) -> None:
    chunk, file = divmod(index, CHUNKS)
    for spec in plan.cameras:
        key = camera_key(spec.name)
        path = root / VIDEO.format(video_key=key, chunk_index=chunk, file_index=file)
        rate = round(plan.embodiment.rate_hz) or 1
        encode(path, observed(episode, spec), rate, lossless=lossless)
