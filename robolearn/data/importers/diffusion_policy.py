"""Imports the Diffusion Policy layout: zarr v2 with all episodes end to end.

    data/<key>         [N, ...]   state, action, img, ... of all episodes, one after the other
    meta/episode_ends  [E]        row after the last of each episode, ascending, last = N

Recordings of real robots have the pictures beside it, at their own rate:

    replay_buffer.zarr            as above, with data/timestamp [N] in seconds
    videos/<episode>/<camera>.mp4

Layout: Diffusion Policy (Chi et al., RSS 2023), ``replay_buffer.py``. Everything of low dimension
is checked before the first episode is written, and no episode is committed before all are written:
an error leaves nothing in the store. Everything is read block by block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.importers.columns import Column, check_array
from robolearn.data.importers.foreign import UNREADABLE, nanoseconds, reading
from robolearn.data.importers.frames import FrameSource, frame_blocks
from robolearn.data.importers.pusht import check_goal, is_pusht, metric_rows, pusht_episode
from robolearn.data.importers.recording import (
    FrameStream,
    ImportedEpisode,
    ImportOptions,
    SourceEpisode,
    episode_ranges,
    make_episode,
    write_recording,
)
from robolearn.data.importers.restore import restored
from robolearn.data.importers.video import VideoInfo, video_blocks, video_info
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, did_you_mean
from robolearn.pusht import GOAL, Pose
from robolearn.shapes import Index
from robolearn.spec import SignalSpec

DEFAULT_RATE_HZ = 10.0
VIDEOS = "videos"
META = "robolearn_episodes"
EXTRA = ("reward", "progress", "tick_t_ns")
"""Arrays that only an export by this package has."""


@dataclass(frozen=True, slots=True)
class ReplayArrays:
    """A checked source, read block by block when its episodes are made."""

    path: Path
    low_dim: dict[str, Column]
    frames: tuple[FrameSource, ...]
    ends: Index
    left_out: tuple[str, ...]
    rate_hz: float
    videos: tuple[dict[str, Path], ...] = ()
    metas: tuple[Any, ...] = ()
    goal: Pose = GOAL

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.ends)

    def episode(self, index: int) -> ImportedEpisode:
        """Make one episode; its frames are read when they are written."""
        return _episode(self, index)

    @property
    def starts(self) -> Index:
        """First row of each episode."""
        return np.concatenate([np.zeros(1, dtype=np.int64), self.ends[:-1]])


def import_diffusion_policy(
    src: str | Path | ReplayArrays,
    store: EpisodeStore,
    *,
    images: bool = False,
    rate_hz: float = DEFAULT_RATE_HZ,
    limit: int | None = None,
    on_episode: Callable[[int, int], None] | None = None,
) -> tuple[str, ...]:
    """Import all (or the first ``limit``) episodes of ``src`` into ``store``; returns their ids.

    ``src`` is a folder or what :func:`open_replay` made of it (then ``images`` and ``rate_hz``
    are those given there).

    ``on_episode(done, total)`` reports progress. Raises :class:`DataError` for a source that is
    incomplete or inconsistent; then nothing is added to the store.
    """
    if isinstance(src, ReplayArrays):
        source = src
    else:
        source = open_replay(src, images=images, rate_hz=rate_hz)
    options = ImportOptions(limit=limit, on_episode=on_episode)
    return write_recording(source, store, options)


class DiffusionPolicyImporter:
    """Zarr v2 with ``data/action`` and ``meta/episode_ends``."""

    looked_for = "a zarr folder with data/action and meta/episode_ends (or one inside)"

    def recognise(self, path: Path) -> bool:
        """Whether the folder, or the only ``*.zarr`` in it, has that layout."""
        inside = [path, *path.glob("*.zarr")] if path.is_dir() else []
        return any((p / "meta/episode_ends").is_dir() and (p / "data").is_dir() for p in inside)

    def open(self, path: Path, options: ImportOptions) -> ReplayArrays:
        """Open and check the source."""
        rate = DEFAULT_RATE_HZ if options.rate_hz is None else options.rate_hz
        return open_replay(path, images=options.images, rate_hz=rate, goal=options.goal)


def open_replay(
    src: str | Path,
    *,
    images: bool = False,
    rate_hz: float = DEFAULT_RATE_HZ,
    goal: Pose | None = None,
) -> ReplayArrays:
    """Open and check a source folder (or a folder that holds exactly one ``*.zarr``).

    ``goal``: Push-T's; None: gym-pusht's, and recordings that end elsewhere are refused.
    """
    path = _find(Path(src).expanduser())
    root = _open_group(path)
    data, meta = _child(root, "data", path), _child(root, "meta", path)
    with reading(path):
        keys = sorted(str(k) for k in data.array_keys())
    if "action" not in keys:
        raise DataError(f"{path}: expected data/action, found {keys}{did_you_mean('action', keys)}")
    ends = _episode_ends(meta, path)
    rows = int(ends[-1])
    low_dim: dict[str, Column] = {}
    frames: list[FrameSource] = []
    left_out: list[str] = []
    for key in keys:
        with reading(f"{path}: data/{key}"):
            array: Any = data[key]
        check_array(array, f"{path}: data/{key}", path / "data" / key)
        if int(array.shape[0]) != rows:
            raise DataError(
                f"{path}: data/{key} has {array.shape[0]} rows, meta/episode_ends says {rows};"
                " the recording is incomplete"
            )
        if len(array.shape) == 4 and not images:
            left_out.append(key)
            continue
        if int(array.nchunks_initialized) != int(array.nchunks):
            raise DataError(
                f"{path}: data/{key} lacks {array.nchunks - array.nchunks_initialized} of"
                f" {array.nchunks} chunks (they would read as zeros); copy the source again"
            )
        if len(array.shape) == 4:
            frames.append(FrameSource.of(key, array, rate_hz))
        else:
            low_dim[key] = Column(array, key, path)
            low_dim[key].require_finite()
    if is_pusht(low_dim) and rate_hz != DEFAULT_RATE_HZ:
        raise DataError(f"{path}: Push-T recordings run at {DEFAULT_RATE_HZ:g} Hz, got {rate_hz:g}")
    if goal is not None and not is_pusht(low_dim):
        raise DataError(f"{path}: a goal is for Push-T recordings (state of 5, action of 2)")
    videos, missing = _videos(path.parent / VIDEOS, len(ends), images=images)
    with reading(f"{path}: its attributes"):
        metas = tuple(root.attrs.get(META, ()))
    if metas and (len(metas) != len(ends) or "tick_t_ns" not in low_dim):
        raise DataError(f"{path}: .zattrs describes {len(metas)} of {len(ends)} episodes")
    if is_pusht(low_dim) and not metas and goal is None:
        last = [low_dim["state"].read(end - 1, end)[0, 2:] for end in ends.tolist()]
        check_goal(np.array(last, dtype=np.float64), GOAL, path)
    return ReplayArrays(
        path,
        low_dim,
        tuple(frames),
        ends,
        (*left_out, *missing),
        rate_hz,
        tuple(videos),
        metas,
        GOAL if goal is None else goal,
    )


def _videos(
    folder: Path, episodes: int, *, images: bool
) -> tuple[list[dict[str, Path]], tuple[str, ...]]:
    """Video files by camera for each episode, and what is left out or missing."""
    if not folder.is_dir():
        return [], ()
    files = [{p.stem: p for p in sorted((folder / str(k)).glob("*.mp4"))} for k in range(episodes)]
    cameras = sorted({camera for found in files for camera in found})
    if not images:
        return [], tuple(f"video {camera} (give --images)" for camera in cameras)
    missing: list[str] = []
    for camera in cameras:
        gone = [k for k, found in enumerate(files) if camera not in found]
        if gone:
            missing.append(f"video {camera} of episodes {episode_ranges(gone)}: no such file")
    return files, tuple(missing)


def _find(path: Path) -> Path:
    if not path.exists():
        raise DataError(f"no recording at {path}: the path does not exist")
    if path.is_dir() and not any((path / n).exists() for n in (".zgroup", "zarr.json")):
        inside = sorted(path.glob("*.zarr"))
        if len(inside) == 1:
            return inside[0]
        raise DataError(
            f"{path} is not a zarr folder (no .zgroup) and holds {len(inside)} *.zarr folders;"
            " give the one to import"
        )
    return path


def _open_group(path: Path) -> Any:
    import zarr

    library: Any = zarr
    try:
        return library.open_group(str(path), mode="r")
    except UNREADABLE as error:
        raise DataError(f"{path} cannot be read as a zarr folder: {error}") from error


def _child(group: Any, name: str, path: Path) -> Any:
    if name not in group:
        raise DataError(
            f"{path}: expected '{name}/' (Diffusion Policy layout: data/, meta/episode_ends),"
            f" found {sorted(str(k) for k in group)}"
        )
    return group[name]


def _episode_ends(meta: Any, path: Path) -> NDArray[np.int64]:
    if "episode_ends" not in meta:
        raise DataError(f"{path}: expected meta/episode_ends, found {sorted(map(str, meta))}")
    with reading(f"{path}: meta/episode_ends"):
        array = meta["episode_ends"]
        check_array(array, f"{path}: meta/episode_ends", path / "meta/episode_ends")
    raw = _read(array, "meta/episode_ends", path)
    if raw.ndim != 1 or raw.size == 0 or raw.dtype.kind not in "iu":
        raise DataError(
            f"{path}: meta/episode_ends must be integers [episodes], got {raw.dtype} {raw.shape}"
        )
    ends = raw.astype(np.int64)
    if int(ends[0]) <= 0 or bool((np.diff(ends) <= 0).any()):
        raise DataError(f"{path}: meta/episode_ends must ascend from above 0, got {_brief(ends)}")
    return ends


def _brief(values: NDArray[Any]) -> str:
    shown = ", ".join(str(v) for v in values[:5].tolist())
    return f"[{shown}, ...]" if len(values) > 5 else f"[{shown}]"


def _read(array: Any, key: str, path: Path) -> NDArray[Any]:
    try:
        return np.asarray(array[:])
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{path}: {key} cannot be decoded: {error}") from error


def _episode(source: ReplayArrays, index: int) -> ImportedEpisode:
    """One episode; its frames are read later."""
    start, end = int(source.starts[index]), int(source.ends[index])
    rows = {key: column.read(start, end) for key, column in source.low_dim.items()}
    pusht = is_pusht(source.low_dim)
    dropped = [k for k in rows if pusht and k not in ("state", "action")]
    provenance: dict[str, Any] = {
        "importer": "diffusion_policy",
        "left_out": sorted([*source.left_out, *dropped]),
    }
    frames = tuple(_zarr_frames(frame, start, end) for frame in source.frames)
    if source.metas:
        return _restored(source, index, rows, frames)
    if pusht:
        provenance |= {
            "source": source.path.name,
            "source_episode": index,
            "times": f"times synthesised from {source.rate_hz:g} Hz",
            "wall_clock": "unknown",
            "sent": "unknown: the source has commanded actions only",
        }
        made = pusht_episode(rows, index, provenance, source.frames, source.goal)
        return ImportedEpisode(made, frames)
    infos = {
        f"{camera}/image": video_info(path)
        for camera, path in (source.videos[index] if source.videos else {}).items()
    }
    t_ns, wall_ns = _tick_times(rows.pop("timestamp", None))
    if t_ns is not None:
        provenance["times"] = "data/timestamp; video times from the container, from the first tick"
    return make_episode(
        SourceEpisode(
            source=source.path.name,
            index=index,
            rate_hz=source.rate_hz,
            signals={f"obs/{key}": values for key, values in rows.items() if key != "action"},
            actions={"obs/action": rows["action"]},
            provenance=provenance,
            frames=(*frames, *(_video_frames(name, info) for name, info in infos.items())),
            times={name: _ns(info.t_s) for name, info in infos.items()},
            t_ns=t_ns,
            start_wall_ns=wall_ns,
        )
    )


def _restored(
    source: ReplayArrays,
    index: int,
    rows: dict[str, NDArray[Any]],
    frames: tuple[FrameStream, ...],
) -> ImportedEpisode:
    """An episode that this package exported."""
    try:
        extra = {key: rows[key] for key in EXTRA}
        specs = source.metas[index]["embodiment"]["signals"]
        names = {str(s["name"]).replace("/", "."): str(s["name"]) for s in specs}
    except (KeyError, TypeError) as error:
        raise DataError(f"{source.path}: .zattrs is damaged: lacks {error}") from error
    cameras = {f.spec.name.removeprefix("obs/").replace("/", "."): f for f in frames}
    if is_pusht(rows):
        rows = rows | metric_rows(rows)
    plain = SourceEpisode(
        source=source.path.name,
        index=index,
        rate_hz=source.rate_hz,
        signals={},
        actions={"obs/action": rows["action"]},
        provenance={},
        reward=extra["reward"].astype(np.float64),
    )
    return make_episode(
        restored(
            plain,
            source.metas[index],
            {names[k]: v for k, v in rows.items() if k in names},
            {names[k]: f for k, f in cameras.items() if k in names},
            ticks=extra["tick_t_ns"],
            progress=extra["progress"],
        )
    )


def _zarr_frames(frame: FrameSource, start: int, end: int) -> FrameStream:
    return FrameStream(frame.spec, lambda: (b.value for b in frame_blocks(frame, start, end)))


def _video_frames(name: str, info: VideoInfo) -> FrameStream:
    spec = SignalSpec(name, info.shape, rate_hz=round(info.rate_hz, 3), dtype="uint8")
    return FrameStream(spec, lambda: video_blocks(info, float(info.t_s[0])))


def _ns(t_s: NDArray[np.float64]) -> NDArray[np.int64]:
    return nanoseconds(t_s, "timestamps")


def _tick_times(t_s: NDArray[Any] | None) -> tuple[NDArray[np.int64] | None, int]:
    """Tick times from the first tick, and its Unix time (0 where the clock is another one)."""
    if t_s is None:
        return None, 0
    seconds = t_s.astype(np.float64).reshape(-1)
    unix = seconds[0] > 1e9
    return _ns(seconds - seconds[0]), int(seconds[0] * 1e9) if unix else 0
