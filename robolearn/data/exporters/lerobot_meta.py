"""Writes the ``meta`` folder of a LeRobot v3.0 dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from robolearn.data.exporters.common import Plan
from robolearn.data.exporters.lerobot_stats import EpisodeStats, together
from robolearn.data.exporters.video import CODEC, LOSSLESS_CODEC, LOSSLESS_PIXELS, PIXELS
from robolearn.data.importers.recording import optional_module
from robolearn.spec import ActionSpec, SignalSpec

CHUNKS = 1000
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
SCALARS = {
    "next.reward": "float64",
    "next.done": "bool",
    "next.truncated": "bool",
    "next.success": "bool",
    "robolearn.progress": "float64",
    "robolearn.tick_t_ns": "int64",
    "timestamp": "float32",
    "frame_index": "int64",
    "episode_index": "int64",
    "index": "int64",
    "task_index": "int64",
}


def camera_key(name: str) -> str:
    """``top/image`` as ``observation.images.top``."""
    return f"observation.images.{name.removesuffix('/image').replace('/', '.')}"


def features(plan: Plan, *, lossless: bool = False) -> dict[str, Any]:
    """``features`` of ``info.json``."""
    found: dict[str, Any] = {}
    vectors: dict[str, Sequence[SignalSpec] | Sequence[ActionSpec]] = {
        "observation.state": plan.states,
        "action": plan.embodiment.actions,
    }
    for key, specs in vectors.items():
        names = [n for s in specs for n in _names(s)]
        if names:
            found[key] = {"dtype": "float64", "shape": [len(names)], "names": names}
    for spec in plan.cameras:
        found[camera_key(spec.name)] = {
            "dtype": "video",
            "shape": list(spec.shape),
            "names": ["height", "width", "channels"],
            "info": {
                "video.height": spec.shape[0],
                "video.width": spec.shape[1],
                "video.channels": 3,
                "video.fps": round(plan.embodiment.rate_hz) or 1,
                "video.codec": (LOSSLESS_CODEC if lossless else CODEC).removeprefix("lib"),
                "video.pix_fmt": LOSSLESS_PIXELS if lossless else PIXELS,
                "video.is_depth_map": False,
                "has_audio": False,
            },
        }
    return found | {k: {"dtype": d, "shape": [1], "names": None} for k, d in SCALARS.items()}


def _names(spec: SignalSpec | ActionSpec) -> list[str]:
    size = 1
    for n in spec.shape:
        size *= n
    components = spec.components if isinstance(spec, SignalSpec) else ()
    return [f"{spec.name}.{c}" for c in components or [str(k) for k in range(size)]]


def write_metadata(
    root: Path,
    plan: Plan,
    rows: Sequence[dict[str, Any]],
    tasks: Sequence[str],
    *,
    lossless: bool,
) -> None:
    """Write ``info.json``, ``stats.json``, ``tasks.parquet`` and the table of episodes.

    ``rows``: one per episode with its statistics under ``stats``.
    """
    meta = root / "meta"
    meta.mkdir(exist_ok=True)
    info = {
        "codebase_version": "v3.0",
        "robot_type": plan.embodiment.name,
        "total_episodes": len(rows),
        "total_frames": sum(int(row["length"]) for row in rows),
        "total_tasks": len(tasks),
        "chunks_size": CHUNKS,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "fps": round(plan.embodiment.rate_hz) or 1,
        "splits": {"train": f"0:{len(rows)}"},
        "data_path": DATA,
        "video_path": VIDEO if plan.cameras else None,
        "features": features(plan, lossless=lossless),
    }
    (meta / "info.json").write_text(json.dumps(info, indent=2))
    stats: list[EpisodeStats] = [row["stats"] for row in rows]
    total = {key: together([s[key] for s in stats]) for key in stats[0]}
    (meta / "stats.json").write_text(json.dumps(_lists(total), indent=1))
    _write_tasks(meta / "tasks.parquet", tasks)
    _write_rows(meta / "episodes/chunk-000/file-000.parquet", rows)


def _write_tasks(path: Path, tasks: Sequence[str]) -> None:
    """A table that pandas reads with the task as its index, as LeRobot expects."""
    arrow = optional_module("pyarrow", "pyarrow", "writing LeRobot data")
    parquet = optional_module("pyarrow.parquet", "pyarrow", "writing LeRobot data")
    table = arrow.table({"task_index": list(range(len(tasks))), "task": list(tasks)})
    columns = [
        {"name": name, "field_name": name, "pandas_type": kind, "numpy_type": dtype}
        | {"metadata": None}
        for name, kind, dtype in (("task_index", "int64", "int64"), ("task", "unicode", "object"))
    ]
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": columns,
        "pandas_version": "2.2.0",
        "creator": {"library": "pyarrow", "version": arrow.__version__},
    }
    parquet.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), str(path))


def _write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    arrow = optional_module("pyarrow", "pyarrow", "writing LeRobot data")
    parquet = optional_module("pyarrow.parquet", "pyarrow", "writing LeRobot data")
    path.parent.mkdir(parents=True)
    lines: list[dict[str, Any]] = []
    for row in rows:
        line = {k: v for k, v in row.items() if k != "stats"}
        for key, named in row["stats"].items():
            line |= {f"stats/{key}/{name}": v.tolist() for name, v in named.items()}
        lines.append(line | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
    parquet.write_table(arrow.Table.from_pylist(lines), str(path))


def _lists(stats: EpisodeStats) -> dict[str, dict[str, Any]]:
    return {key: {n: v.tolist() for n, v in named.items()} for key, named in stats.items()}
