"""Import of the Diffusion Policy layout: zarr v2 with all episodes end to end.

    data/<key>         [N, ...]   state, action, img, ... of all episodes, one after the other
    meta/episode_ends  [E]        row after the last of each episode, ascending, last = N

Layout: Diffusion Policy (Chi et al., RSS 2023), ``replay_buffer.py``. Everything of low dimension
is checked before the first episode is written, and no episode is committed before all are written:
an error leaves nothing in the store. Frames are read chunk by chunk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.data.importers.frames import FrameSource, frame_blocks
from robolearn.data.importers.pusht import is_pusht, pusht_episode
from robolearn.data.provenance import git_revision, library_versions
from robolearn.data.store import EpisodeStore
from robolearn.data.writer import PreparedEpisode
from robolearn.errors import DataError, did_you_mean
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome

_log = logging.getLogger(__name__)

DEFAULT_RATE_HZ = 10.0


@dataclass(frozen=True, slots=True)
class ReplayArrays:
    """A checked source: low-dimensional arrays in memory, frames as lazy zarr arrays."""

    path: Path
    low_dim: dict[str, NDArray[Any]]
    frames: tuple[FrameSource, ...]
    ends: NDArray[np.int64]
    left_out: tuple[str, ...]
    rate_hz: float

    @property
    def starts(self) -> NDArray[np.int64]:
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
    total = len(source.ends) if limit is None else min(limit, len(source.ends))
    with store.writer() as writer:
        prepared: list[PreparedEpisode] = []
        for index in range(total):
            episode = _episode(source, index)
            draft = writer.begin()
            start, end = int(source.starts[index]), int(source.ends[index])
            for frame in source.frames:
                for block in frame_blocks(frame, start, end):
                    draft.add_frames(frame.spec, block)
            prepared.append(writer.prepare(draft, episode))
            if on_episode is not None:
                on_episode(index + 1, total)
        return tuple(writer.commit(p) for p in prepared)


def open_replay(
    src: str | Path, *, images: bool = False, rate_hz: float = DEFAULT_RATE_HZ
) -> ReplayArrays:
    """Open and check a source folder (or a folder that holds exactly one ``*.zarr``)."""
    path = _find(Path(src).expanduser())
    root = _open_group(path)
    data, meta = _child(root, "data", path), _child(root, "meta", path)
    keys = sorted(str(k) for k in data.array_keys())
    if "action" not in keys:
        raise DataError(f"{path}: expected data/action, found {keys}{did_you_mean('action', keys)}")
    ends = _episode_ends(meta, path)
    rows = int(ends[-1])
    low_dim: dict[str, NDArray[Any]] = {}
    frames: list[FrameSource] = []
    left_out: list[str] = []
    for key in keys:
        array: Any = data[key]
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
            low_dim[key] = _read_finite(array, key, path)
    if is_pusht(low_dim) and rate_hz != DEFAULT_RATE_HZ:
        raise DataError(f"{path}: Push-T recordings run at {DEFAULT_RATE_HZ:g} Hz, got {rate_hz:g}")
    return ReplayArrays(path, low_dim, tuple(frames), ends, tuple(left_out), rate_hz)


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
    except (OSError, ValueError, KeyError, TypeError) as error:
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
    raw = _read(meta["episode_ends"], "meta/episode_ends", path)
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


def _read_finite(array: Any, key: str, path: Path) -> NDArray[Any]:
    values = _read(array, f"data/{key}", path)
    if values.dtype.kind == "f" and not bool(np.isfinite(values).all()):
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise DataError(f"{path}: data/{key} has NaN or infinity at row {row}")
    return values


def _episode(source: ReplayArrays, index: int) -> Episode:
    """One episode without its frames."""
    start, end = int(source.starts[index]), int(source.ends[index])
    rows = {key: values[start:end] for key, values in source.low_dim.items()}
    pusht = is_pusht(source.low_dim)
    dropped = [k for k in rows if pusht and k not in ("state", "action")]
    provenance = {
        "importer": "diffusion_policy",
        "source": source.path.name,
        "source_episode": index,
        "times": f"times synthesised from {source.rate_hz:g} Hz",
        "wall_clock": "unknown",
        "sent": "unknown: the source has commanded actions only",
        "left_out": sorted([*source.left_out, *dropped]),
    }
    if pusht:
        return pusht_episode(rows, index, provenance, source.frames)
    return _generic(rows, index, provenance, source.frames, source.rate_hz)


def _generic(
    rows: dict[str, NDArray[Any]],
    index: int,
    provenance: dict[str, Any],
    frames: tuple[FrameSource, ...],
    rate_hz: float,
) -> Episode:
    """Any other recording: ``obs/<key>`` without units, rewards unknown (zero)."""
    low_dim = {f"obs/{key}": values for key, values in rows.items() if key != "action"}
    action = rows["action"].astype(np.float64)
    embodiment = EmbodimentSpec(
        name=str(provenance["source"]),
        signals=(
            *(
                SignalSpec(name, v.shape[1:], rate_hz=rate_hz, dtype=v.dtype.name)
                for name, v in low_dim.items()
            ),
            *(frame.spec for frame in frames),
        ),
        actions=(ActionSpec("obs/action", action.shape[1:], rate_hz=rate_hz),),
        rate_hz=rate_hz,
    )
    meta = EpisodeMeta(
        kind="demonstration",
        task="",
        embodiment=embodiment,
        condition=Condition(f"{provenance['source']}-{index:06d}", index, {}),
        outcome=Outcome(False, 0.0, 0.0, truncated=True, reason="end_of_recording"),
        agent="human",
        provenance=provenance | {"reward": "unknown: zero"},
        git_revision=git_revision(),
        versions=library_versions(),
    )
    empty = {frame.spec.name: frame.no_rows() for frame in frames}
    return episode_from_arrays(
        meta, low_dim | empty, {"obs/action": action}, progress=np.zeros(len(action))
    )
