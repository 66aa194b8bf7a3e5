"""Imports flat offline-RL files, all transitions end to end: D4RL-style HDF5 and OGBench npz.

    D4RL     observations, actions, rewards, terminals (bootstrap no further), timeouts (cut)
    D5RL     the same; its legged robot has trajectory_ends instead of timeouts, its hands have both
             masks = 1 - terminal and timeouts at every end (its kitchen is pickled: not read)
    OGBench  observations, actions, terminals (end of a trajectory), masks = 1 - terminal;
             so terminals = terminal | truncated, without masks every end is a truncation

OGBench's manipulation data sets, known by their names (``cube-single-play-v0.npz``), get the
signals and actions in SI units of our worlds of the same names (:mod:`robolearn.ogbench`); all
others keep ``obs/action`` as it is.

Without a flag that says where recordings are cut, an episode ends where the next observation is
not that of the following row. Rows are read once, in order, an episode at a time. Formats: D4RL
``offline_env.py``, D5RL ``a1/collect/saving.py`` and ``adroit/utils/save_as_h5py.py``, OGBench
``utils.py`` (v1.2).
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from robolearn import ogbench
from robolearn.data.episode import EpisodeKind
from robolearn.data.importers.foreign import require_plausible
from robolearn.data.importers.hdf5 import attribute, leaves, names_in, numbers, opened
from robolearn.data.importers.recording import (
    BLOCK_ROWS,
    FrameStream,
    ImportedEpisode,
    ImportOptions,
    SourceEpisode,
    make_episode,
)
from robolearn.errors import DataError
from robolearn.shapes import AnyRows, Flags, Index
from robolearn.spec import SignalSpec
from robolearn.types import Signals

DEFAULT_RATE_HZ = 20.0
CUTS = ("timeouts", "trajectory_ends")
"""Ends of episodes, whatever the reason; D5RL sets them at terminal rows, too."""
FLAGS = ("rewards", "terminals", *CUTS, "masks")
REQUIRED = ("observations", "actions", "terminals")
NEXT = "next_observations"
SAME = 1e-6
"""A next observation that differs more from the following row belongs to another episode."""
ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Column:
    """Name, shape of a row and dtype of an array of the file."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def picture(self) -> bool:
        """``uint8 [height, width, channels]``."""
        return len(self.shape) == 3 and self.dtype == np.uint8


@dataclass(frozen=True, slots=True)
class FlatRecording:
    """An opened file. ``read(name, start, end)`` gives rows; ``flags`` are whole columns."""

    path: Path
    columns: tuple[Column, ...]
    read: Callable[[str, int, int], AnyRows]
    flags: Signals
    ends: Index
    terminal: Flags
    rate_hz: float
    kind: EpisodeKind
    said: Mapping[str, Any]
    left_out: tuple[str, ...]
    images: bool
    # Of OGBench's manipulation; empty: none of them.
    world: str = ""

    @property
    def count(self) -> int:
        """Number of episodes."""
        return len(self.ends)

    def episode(self, index: int) -> ImportedEpisode:
        """Rows of one episode; pictures are read when they are written."""
        start = int(self.ends[index - 1]) if index else 0
        end = int(self.ends[index])
        plain = [c for c in self.columns if not c.picture and c.name != "actions"]
        pictures = [c for c in self.columns if c.picture] if self.images else []
        rewards = self.flags.get("rewards")
        source = SourceEpisode(
            source=self.path.name,
            index=index,
            rate_hz=self.rate_hz,
            signals={_signal(c.name): self.read(c.name, start, end) for c in plain},
            actions={"obs/action": self.read("actions", start, end)},
            provenance={**self.said, "left_out": list(self.left_out), "first_row": start},
            frames=tuple(self._frames(c, start, end) for c in pictures),
            reward=None if rewards is None else rewards[start:end].astype(np.float64),
            terminal=bool(self.terminal[index]),
            kind=self.kind,
            agent="unknown",
        )
        return make_episode(_in_world(source, self.world) if self.world else source)

    def _frames(self, column: Column, start: int, end: int) -> FrameStream:
        spec = SignalSpec(_signal(column.name), column.shape, rate_hz=self.rate_hz, dtype="uint8")

        def blocks() -> Generator[NDArray[np.uint8]]:
            for at in range(start, end, BLOCK_ROWS):
                yield self.read(column.name, at, min(at + BLOCK_ROWS, end))

        return FrameStream(spec, blocks)


class OGBenchImporter:
    """npz with observations, actions, terminals."""

    looked_for = "an .npz file with observations, actions and terminals"

    def recognise(self, path: Path) -> bool:
        """Whether the archive has those members."""
        if path.suffix == ".npz" and path.is_file() and not zipfile.is_zipfile(path):
            raise DataError(f"{path} cannot be read as .npz (truncated?)")
        if not path.is_file() or not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return {f"{n}.npy" for n in REQUIRED} <= set(archive.namelist())

    def open(self, path: Path, options: ImportOptions) -> FlatRecording:
        """Check the headers and find the trajectories."""
        arrays = NpzRows(path)
        lengths = {n: arrays.rows(n) for n in arrays.columns}
        flags = {n: arrays.read(n, 0, lengths[n]) for n in FLAGS if n in lengths}
        said: dict[str, Any] = {"importer": "ogbench"}
        if "masks" not in flags:
            said["terminal"] = "no masks: every end of a trajectory is a truncation"
        world = ogbench.world_of(path.name)
        if world is not None:
            rate = options.rate_hz or ogbench.RATE_HZ
            options = replace(options, rate_hz=rate)
            said["actions"] = f"times {ogbench.LIMITS.tolist()}: those of ogbench/{world}, in SI"
        flat = _flat(path, arrays.columns, arrays.read, lengths, flags, options, said, "scripted")
        if world is None:
            return flat
        _require_shapes_of(world, arrays.columns, path)
        return replace(flat, world=world)


class D4RLImporter:
    """HDF5 with observations, actions, terminals at the root, as of D4RL and D5RL."""

    looked_for = "an HDF5 file with observations, actions and terminals at its root"

    def recognise(self, path: Path) -> bool:
        """Whether those names are there."""
        return set(REQUIRED) <= names_in(path)

    def open(self, path: Path, options: ImportOptions) -> FlatRecording:
        """Check names and shapes and find the trajectories."""
        with opened(path) as file:
            found = {n: d for n, d in leaves(file).items() if not n.startswith("metadata/")}
            rows = int(found["observations"].shape[0]) if "observations" in found else 0
            scalar = sorted(n for n, d in found.items() if not d.shape)
            single = [n for n in scalar if n in (*REQUIRED, *FLAGS)]
            if single:
                raise DataError(f"{path}: expected one of {single} for each step, got one for all")
            found = {n: d for n, d in found.items() if d.shape}
            columns = {n: Column(n, tuple(d.shape[1:]), d.dtype) for n, d in found.items()}
            lengths = {n: int(d.shape[0]) for n, d in found.items()}
            flags = {n: numbers(found[n], f"{path}: {n}") for n in FLAGS if n in found}
            kept = {str(k): attribute(file, str(k)) for k in file.attrs}
        said: dict[str, Any] = {"importer": "d4rl", "attributes": kept, "scalars": scalar}

        def read(name: str, start: int, end: int) -> NDArray[Any]:
            with opened(path) as file:
                return numbers(file[name], f"{path}: {name}", start, end)

        if not any(name in flags for name in CUTS):
            said["ends"] = "no timeouts: only terminal rows end an episode"
            if NEXT in columns and columns[NEXT].shape == columns["observations"].shape:
                flags["timeouts"] = _jumps(read, min(rows, lengths[NEXT]))
                said["ends"] = f"no timeouts: {NEXT} say where an episode ends"
        return _flat(path, columns, read, lengths, flags, options, said, "rollout")


def _flat(
    path: Path,
    columns: Mapping[str, Column],
    read: Callable[[str, int, int], AnyRows],
    lengths: Mapping[str, int],
    flags: Mapping[str, NDArray[Any]],
    options: ImportOptions,
    said: dict[str, Any],
    kind: EpisodeKind,
) -> FlatRecording:
    missing = [n for n in REQUIRED if n not in columns]
    if missing:
        raise DataError(f"{path}: expected {list(REQUIRED)}, it lacks {missing}")
    rows = lengths["observations"]
    short = {n: k for n, k in lengths.items() if k != rows}
    if short:
        raise DataError(f"{path}: observations have {rows} rows, but {short}")
    if rows == 0:
        raise DataError(f"{path} has no steps: its observations have no rows")
    for name, values in flags.items():
        if values.ndim != 1:
            raise DataError(f"{path}: {name} must be finite numbers [{rows}], got {values.shape}")
        bad = ~np.isfinite(values) if values.dtype.kind == "f" else np.zeros(rows, dtype=np.bool_)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"{path}: {name} must be finite, got {values[row]:g} in row {row}")
    ended = flags["terminals"].astype(np.bool_)
    for name in CUTS:
        if name in flags:
            ended |= flags[name].astype(np.bool_)
    ends = np.flatnonzero(ended).astype(np.int64) + 1
    if not len(ends) or int(ends[-1]) != rows:
        ends = np.append(ends, rows)
        said["last_episode"] = "the file ends within it"
    last = ends - 1
    if "masks" in flags:
        if said["importer"] == "d4rl":
            _require_masks_agree(flags, path)
        terminal = ended[last] & (flags["masks"][last] == 0)
    elif said["importer"] == "ogbench":
        terminal = np.zeros(len(ends), dtype=np.bool_)
    else:
        terminal = flags["terminals"][last].astype(np.bool_)
    left = [NEXT + " (the observations of the following row)"] if NEXT in columns else []
    kept = tuple(c for n, c in columns.items() if n not in (*FLAGS, NEXT))
    if not options.images:
        left += [f"{c.name} (pictures: give --images)" for c in kept if c.picture]
    for column in kept:
        if column.dtype.kind not in "biuf":
            raise DataError(f"{path}: {column.name}: expected numbers, got {column.dtype}")
    rate = DEFAULT_RATE_HZ if options.rate_hz is None else options.rate_hz
    if options.rate_hz is None:
        said["rate"] = f"{rate:g} Hz assumed: the format does not say it (--rate-hz)"
    return FlatRecording(
        path, kept, read, flags, ends, terminal, rate, kind, said, tuple(left), options.images
    )


def _require_shapes_of(world: str, columns: Mapping[str, Column], path: Path) -> None:
    seen, acted = columns["observations"], columns["actions"].shape
    wanted = (ogbench.WORLDS[world].observed,)
    if acted == ogbench.LIMITS.shape and (seen.picture or seen.shape == wanted):
        return
    raise DataError(
        f"{path}: by its name these are recordings of OGBench's {world}: expected actions"
        f" {ogbench.LIMITS.shape} and observations {wanted} or pictures, got {acted} and"
        f" {seen.shape}; if they are others, give the file another name"
    )


def _in_world(source: SourceEpisode, world: str) -> SourceEpisode:
    """With the signals and actions of ``ogbench/WORLD``, as far as the file has them."""
    rate, seen = source.rate_hz, source.signals.get(ogbench.STATE)
    added: dict[str, NDArray[Any]] = {}
    poses: tuple[SignalSpec, ...] = ()
    if seen is not None:
        found = ogbench.cube_poses(world, seen)
        poses = tuple(ogbench.pose_signal(name, rate) for name in found)
        # As in play: goals are put in when it is learned from.
        added = {ogbench.GOAL: seen, **found}
    return replace(
        source,
        signals={**source.signals, **added},
        specs=poses,
        actions=ogbench.si_actions(source.actions["obs/action"]),
        action_specs=ogbench.action_specs(rate),
        robot=ogbench.embodiment_name(world),
    )


def _require_masks_agree(flags: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Masks are 1 - terminal in these files; which of two flags to believe nobody can tell."""
    apart = np.flatnonzero((flags["masks"] == 0) != flags["terminals"].astype(np.bool_))
    if apart.size:
        row = int(apart[0])
        raise DataError(
            f"{path}: masks and terminals contradict each other in {apart.size} rows, row {row} the"
            f" first: expected masks = 1 - terminals, got {flags['masks'][row]:g} and"
            f" {float(flags['terminals'][row]):g}; correct one of them, or leave masks out"
        )


def _jumps(read: Callable[[str, int, int], AnyRows], rows: int) -> Flags:
    """Rows whose next observation is not that of the following row ``[rows]``; the last one is."""
    found = np.zeros(rows, dtype=np.bool_)
    for begin in range(0, rows - 1, ROWS_AT_ONCE):
        end = min(begin + ROWS_AT_ONCE, rows - 1)
        follows = read("observations", begin + 1, end + 1).astype(np.float64)
        # What is no number is refused where the episode is made.
        with np.errstate(invalid="ignore"):
            apart = np.abs(read(NEXT, begin, end) - follows).reshape(end - begin, -1)
        size = np.maximum(1.0, np.abs(follows)).reshape(end - begin, -1)
        found[begin:end] = (apart > SAME * size).any(axis=1)
    found[-1:] = True
    return found


def _signal(name: str) -> str:
    return "obs/state" if name == "observations" else f"obs/{name.replace('/', '.')}"


class NpzRows:
    """Rows of the arrays of an ``.npz`` file, decompressed in order with one row block in memory.

    Asking for earlier rows than before starts the member again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: dict[str, Column] = {}
        self._rows: dict[str, int] = {}
        self._open: dict[str, tuple[zipfile.ZipExtFile, int]] = {}
        try:
            self._archive = zipfile.ZipFile(path)
            for member in self._archive.namelist():
                self._add(member)
        except (OSError, ValueError, zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be read as .npz: {error}") from error

    def rows(self, name: str) -> int:
        """Length of an array."""
        return self._rows[name]

    def read(self, name: str, start: int, end: int) -> AnyRows:
        """Rows ``start`` to ``end`` of an array."""
        column = self.columns[name]
        stored = self._archive.getinfo(f"{name}.npy").compress_size
        size = int(np.prod(column.shape, dtype=np.int64)) * column.dtype.itemsize
        wanted = (end - start) * size
        require_plausible(wanted, stored, f"{self.path}: {name}", at_once=wanted)
        try:
            file, at = self._open.get(name) or (self._begin(name)[0], 0)
            if start < at:
                file.close()
                file, at = self._begin(name)[0], 0
            while at < start:
                step = min(start - at, 4096)
                file.read(step * size)
                at += step
            data = file.read((end - start) * size)
        except (OSError, ValueError, zipfile.BadZipFile, EOFError, zlib.error) as error:
            raise DataError(f"{self.path}: {name} is damaged: {error}") from error
        if len(data) != (end - start) * size:
            raise DataError(f"{self.path}: {name} ends within row {at + len(data) // max(size, 1)}")
        self._open[name] = (file, end)
        return np.frombuffer(data, dtype=column.dtype).reshape(end - start, *column.shape)

    def _add(self, member: str) -> None:
        name = member.removesuffix(".npy")
        file, shape, fortran, dtype = self._begin(name)
        file.close()
        if fortran and len(shape) > 1:
            raise DataError(f"{self.path}: {name} is in Fortran order; save it in C order")
        if dtype.kind not in "biuf" or not shape or min(shape) < 0:
            raise DataError(
                f"{self.path}: {name}: expected numbers [rows, ...], got {dtype} {shape};"
                " pickled objects are never loaded"
            )
        stored = self._archive.getinfo(f"{name}.npy").compress_size
        require_plausible(math.prod(shape) * dtype.itemsize, stored, f"{self.path}: {name}")
        self.columns[name] = Column(name, tuple(shape[1:]), dtype)
        self._rows[name] = int(shape[0])

    def _begin(self, name: str) -> tuple[zipfile.ZipExtFile, tuple[int, ...], bool, np.dtype[Any]]:
        file = cast("zipfile.ZipExtFile", self._archive.open(f"{name}.npy"))
        library: Any = npy  # its stubs are incomplete
        version = library.read_magic(file)
        old = version == (1, 0)
        read = library.read_array_header_1_0 if old else library.read_array_header_2_0
        shape, fortran, dtype = read(file)
        return file, shape, fortran, dtype
