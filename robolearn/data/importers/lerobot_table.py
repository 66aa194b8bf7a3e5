"""Reads what LeRobot v2.1 and v3.0 share: features, columns of a parquet file, and their meaning.

Formats: LeRobot ``docs/source/lerobot-dataset-v3.mdx`` and datasets written by LeRobot 0.6.1.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.foreign import nanoseconds, refuse_pointer
from robolearn.data.importers.recording import SourceEpisode, optional_module
from robolearn.errors import DataError, did_you_mean
from robolearn.shapes import AnyRows
from robolearn.spec import SignalSpec

BOOKKEEPING = ("timestamp", "frame_index", "episode_index", "index", "task_index")
REWARD, DONE, TRUNCATED, SUCCESS = "next.reward", "next.done", "next.truncated", "next.success"
OUTCOMES = (REWARD, DONE, TRUNCATED, SUCCESS)
PICTURES = ("video", "image")
TIME_TOLERANCE_S = 1e-4
"""How near to ``frame_index / fps`` a timestamp must be to have been made from it (LeRobot's)."""


@dataclass(frozen=True, slots=True)
class Feature:
    """One column of the data or one camera."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    # What the files call it where --rename gave it another key.
    renamed: str = ""

    @property
    def column(self) -> str:
        """Its name in the files."""
        return self.renamed or self.key

    @property
    def signal(self) -> str:
        """``observation.x`` becomes ``obs/x``, a camera ``cam/image``, others ``obs/key``."""
        name = self.key.removeprefix("observation.")
        if self.dtype in PICTURES:
            return f"{name.removeprefix('images.').replace('/', '.')}/image"
        return f"obs/{name.replace('/', '.')}"


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """``meta/info.json``."""

    root: Path
    version: str
    rate_hz: float
    robot: str
    episodes: int
    chunks_size: int
    data_path: str
    video_path: str
    features: tuple[Feature, ...]

    @property
    def columns(self) -> tuple[Feature, ...]:
        """Features that are signals or actions in the parquet files."""
        return tuple(
            f
            for f in self.features
            if f.dtype not in (*PICTURES, "string") and f.key not in (*BOOKKEEPING, *OUTCOMES)
        )

    @property
    def cameras(self) -> tuple[Feature, ...]:
        """Features in video files, or with a colour picture in every row."""
        return tuple(
            f for f in self.features if f.dtype == "video" or (f.dtype == "image" and _rgb(f))
        )

    @property
    def strings(self) -> tuple[Feature, ...]:
        """Features that are text; they are kept in the provenance."""
        return tuple(f for f in self.features if f.dtype == "string")

    @property
    def not_read(self) -> tuple[str, ...]:
        """Features that are never imported."""
        return tuple(
            f"{f.key} (image of shape {list(f.shape)}: no RGB picture)"
            for f in self.features
            if f.dtype == "image" and not _rgb(f)
        )

    def camera_spec(self, feature: Feature) -> SignalSpec:
        """The signal of a camera (``[height, width, 3]``)."""
        shape = feature.shape
        if shape[-1] != 3 and shape[0] == 3:
            shape = (*shape[1:], 3)
        return SignalSpec(feature.signal, shape, rate_hz=self.rate_hz, dtype="uint8")


def _rgb(feature: Feature) -> bool:
    return len(feature.shape) == 3 and 3 in (feature.shape[0], feature.shape[-1])


def codebase_version(path: Path) -> str:
    """``codebase_version`` of the dataset in ``path``; ``""`` where there is none."""
    try:
        raw: dict[str, Any] = json.loads((path / "meta/info.json").read_bytes())
        return str(raw["codebase_version"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""


def read_info(root: Path, rename: Mapping[str, str] = MappingProxyType({})) -> DatasetInfo:
    """Read and check ``meta/info.json``; ``rename``: keys of features and what to call them."""
    file = root / "meta/info.json"
    refuse_pointer(file)
    try:
        raw = json.loads(file.read_bytes())
        found = {str(key): dict(f) for key, f in raw["features"].items()}
        _check_renames(rename, found, file)
        features = tuple(_feature(key, f, rename.get(key, key)) for key, f in found.items())
        info = DatasetInfo(
            root=root,
            version=str(raw["codebase_version"]),
            rate_hz=float(raw["fps"]),
            robot=str(raw.get("robot_type") or ""),
            episodes=int(raw["total_episodes"]),
            chunks_size=int(raw.get("chunks_size", 1000)),
            data_path=str(raw["data_path"]),
            video_path=str(raw.get("video_path") or ""),
            features=features,
        )
    except FileNotFoundError as error:
        raise DataError(f"{file} is missing: this is no LeRobot dataset") from error
    except DataError:
        raise
    except (
        *(OSError, ValueError, KeyError, TypeError, AttributeError),
        *(RecursionError, OverflowError),
    ) as error:
        raise DataError(f"{file} is damaged: {type(error).__name__} {error}") from error
    if not any(f.key == "action" or f.key.startswith("action.") for f in info.columns):
        keys = [f.key for f in features]
        near = did_you_mean("action", keys)
        raise DataError(
            f"{file}: expected a feature 'action', found {keys}.{near} A feature with another name"
            " is taken for it with --rename NAME=action"
        )
    if not 0 < info.rate_hz < np.inf or info.chunks_size <= 0:
        raise DataError(f"{file}: fps and chunks_size must be above 0")
    for feature in info.features:
        if feature.dtype == "video" and not _rgb(feature):
            raise DataError(
                f"{file}: {feature.key}: expected a shape [height, width, 3], got"
                f" {list(feature.shape)}"
            )
    return info


def _check_renames(rename: Mapping[str, str], found: Collection[str], file: Path) -> None:
    for old, new in rename.items():
        if old not in found:
            raise DataError(f"{file} has no feature '{old}'.{did_you_mean(old, found)}")
        if new in found and new not in rename:
            raise DataError(f"{file} has a feature '{new}' already; it cannot be '{old}' too")


def _feature(source_key: str, raw: Mapping[str, Any], key: str) -> Feature:
    shape = tuple(int(n) for n in raw["shape"])
    if any(n < 1 for n in shape):
        raise DataError(f"meta/info.json: {key}: sizes must be above 0, got {list(shape)}")
    names: Any = raw.get("names")
    if isinstance(names, dict):  # {"motors": [...]} or {"axes": [...]}
        names = next(iter(cast("dict[str, Any]", names).values()), None)
    labels = cast("list[Any]", names) if isinstance(names, list) else []
    if len(labels) == 1 and isinstance(labels[0], list):
        labels = cast("list[Any]", labels[0])
    fits = len(shape) == 1 and len(labels) == shape[0]
    components = tuple(str(n) for n in labels) if fits else ()
    renamed = source_key if source_key != key else ""
    return Feature(key, str(raw["dtype"]), shape, components, renamed)


def read_table(path: Path, episode: int | None = None, leave_out: Collection[str] = ()) -> Any:
    """A parquet file, or only the rows of ``episode``, without the columns ``leave_out``.

    Truncated files are a :class:`DataError`.
    """
    parquet = optional_module("pyarrow.parquet", "pyarrow", "LeRobot data")
    arrow = optional_module("pyarrow", "pyarrow", "LeRobot data")
    refuse_pointer(path)
    filters = None if episode is None else [("episode_index", "==", episode)]
    try:
        names = [n for n in parquet.read_schema(str(path)).names if n not in leave_out]
        return parquet.read_table(str(path), columns=names, filters=filters, partitioning=None)
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; copy the dataset again") from error
    except (OSError, arrow.ArrowException) as error:
        raise DataError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def column(table: Any, key: str, shape: tuple[int, ...], where: str) -> AnyRows:
    """Column ``key`` as ``[rows, *shape]`` (scalars: ``[rows]`` for shape ``()``)."""
    if key not in table.column_names:
        raise DataError(f"{where}: expected column '{key}', found {table.column_names}")
    values: Any = table.column(key).combine_chunks()
    if hasattr(values, "chunks"):
        values = values.chunk(0) if values.num_chunks else values
    rows, want = len(values), int(np.prod(shape, dtype=np.int64))
    depth = 0
    while "list" in str(values.type) and depth < 8:
        values = values.flatten()
        depth += 1
    if len(values) != rows * want:
        raise DataError(f"{where}: {key}: expected {want} values in each of {rows} rows")
    flat = np.asarray(values.to_numpy(zero_copy_only=False))
    if flat.dtype.kind not in "biuf":
        raise DataError(f"{where}: {key}: expected numbers, got {values.type}")
    return flat.reshape(rows, *shape)


@dataclass(frozen=True, slots=True)
class EpisodeTable:
    """The rows of one episode, checked."""

    info: DatasetInfo
    index: int
    table: Any
    where: str
    length: int

    def source(self, provenance: Mapping[str, Any], task_text: str) -> SourceEpisode:
        """Signals, actions, times and outcomes of the episode, without pictures."""
        rows = int(self.table.num_rows)
        if rows != self.length:
            raise DataError(
                f"{self.where}: episode {self.index} has {rows} rows, the metadata says"
                f" {self.length}; the dataset is incomplete"
            )
        self._numbers("episode_index", np.full(rows, self.index))
        self._numbers("frame_index", np.arange(rows))
        signals: dict[str, NDArray[Any]] = {}
        actions: dict[str, NDArray[Any]] = {}
        for feature in self.info.columns:
            values = column(self.table, feature.column, feature.shape, self.where)
            is_action = feature.key == "action" or feature.key.startswith("action.")
            (actions if is_action else signals)[feature.signal] = values
        t_ns, times = self._times(rows)
        done = self._last(DONE, default=False)
        return SourceEpisode(
            source=self.info.root.name,
            index=self.index,
            rate_hz=self.info.rate_hz,
            signals=signals,
            actions=actions,
            provenance={"times": times, **self._texts(), **provenance},
            components={f.signal: f.names for f in self.info.columns},
            t_ns=t_ns,
            reward=self._reward(),
            terminal=done and not self._last(TRUNCATED, default=False),
            success=self._last(SUCCESS, default=False),
            robot=self.info.robot,
            task_text=task_text,
        )

    def _texts(self) -> dict[str, Any]:
        """Features that are text: ``{key: [[first row, text], ...]}``, a pair where it changes."""
        found: dict[str, Any] = {}
        for feature in self.info.strings:
            if feature.column not in self.table.column_names:
                continue
            cells = [str(cell) for cell in self.table.column(feature.column).to_pylist()]
            changes = [k for k, cell in enumerate(cells) if k == 0 or cell != cells[k - 1]]
            found[feature.key] = [[k, cells[k]] for k in changes]
        return {"texts": found} if found else {}

    def _numbers(self, key: str, expected: NDArray[Any]) -> None:
        if key not in self.table.column_names:
            return
        got = column(self.table, key, (), self.where)
        if not np.array_equal(got, expected):
            row = int(np.argmax(got != expected))
            raise DataError(
                f"{self.where}: {key} is {got[row]} in row {row}, expected {expected[row]}"
            )

    def _times(self, rows: int) -> tuple[NDArray[np.int64] | None, str]:
        if "timestamp" not in self.table.column_names:
            return None, f"times synthesised from {self.info.rate_hz:g} Hz"
        t_s = np.asarray(column(self.table, "timestamp", (), self.where), dtype=np.float64)
        made = np.arange(rows) / self.info.rate_hz
        if not np.isfinite(t_s).all() or bool((np.diff(t_s) <= 0).any()):
            raise DataError(f"{self.where}: timestamp is not finite, or goes backwards")
        if bool((np.abs(t_s - made) < TIME_TOLERANCE_S).all()):
            return None, "synthetic: the source stamps frame_index / fps, not capture times"
        first = float(t_s[0])
        return nanoseconds(t_s - first, f"{self.where}: timestamp"), "timestamp of the source"

    def _reward(self) -> NDArray[np.float64] | None:
        if REWARD not in self.table.column_names:
            return None
        return column(self.table, REWARD, (), self.where).astype(np.float64)

    def _last(self, key: str, *, default: bool) -> bool:
        if key not in self.table.column_names:
            return default
        return bool(column(self.table, key, (), self.where)[-1])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a ``.jsonl`` file."""
    refuse_pointer(path)
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
    except FileNotFoundError as error:
        raise DataError(f"{path} is missing; copy the dataset again") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def task_texts(tasks: Sequence[Any]) -> str:
    """The instruction of an episode."""
    return "; ".join(str(task) for task in tasks)
