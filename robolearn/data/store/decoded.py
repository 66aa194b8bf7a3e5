"""Decodes pictures straight from a store, in threads, and keeps the newest chunks.

    rows [b, n] --view--> frames --group by chunk--> c7 c7 c9 c12
                                                     |     |   '-- decoded, in parallel
                                                     '-----'------ kept (least recently used go)

For data sets whose pictures are too large for the memory-mapped cache. Memory is bounded by the
chunks kept and the batch itself. Threads and kept chunks belong to one object in one process: they
are built on first use and never cross a fork or a pickle.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.data.store.chunks import FileEntry
from robolearn.data.store.picture_codec import StoredFrames, open_values
from robolearn.data.store.storage import Place
from robolearn.errors import DataError
from robolearn.shapes import AnyRows, Frames, Index

KEPT_BYTES = 256 * 2**20
THREADS = max(1, min(8, os.cpu_count() or 1))


@runtime_checkable
class ChunkedFrames(Protocol):
    """The frames of one camera in one episode; see
    :class:`robolearn.data.store.chunks.StoredArray`.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """``(frames, h, w, 3)``."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the pixels."""
        ...

    @property
    def rows_per_chunk(self) -> int:
        """Frames that are decoded together."""
        ...

    @property
    def chunks(self) -> int:
        """How many chunks hold the frames."""
        ...

    def chunk(self, index: int) -> AnyRows:
        """Frames ``index * rows_per_chunk`` and following; called from many threads."""
        ...


@dataclass(frozen=True, slots=True)
class FrameByFrame:
    """Picture files decoded one at a time: random windows would waste the rest of a chunk."""

    stored: StoredFrames

    @property
    def shape(self) -> tuple[int, ...]:
        """``(frames, h, w, 3)``."""
        return self.stored.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the pixels."""
        return self.stored.dtype

    @property
    def rows_per_chunk(self) -> int:
        """One."""
        return 1

    @property
    def chunks(self) -> int:
        """As many as frames."""
        return self.stored.shape[0]

    def chunk(self, index: int) -> AnyRows:
        """Frame ``index`` ``[1, h, w, 3]``, or of depth ``[1, h, w]``."""
        return self.stored.frame(index)[None]


def open_frames(root: Place, base: str, files: Mapping[str, FileEntry]) -> ChunkedFrames:
    """The frames of the camera in ``base``, cut so that windows decode little else."""
    stored = open_values(root, base, files)
    return FrameByFrame(stored) if isinstance(stored, StoredFrames) else stored


@dataclass(frozen=True, slots=True)
class FramePart:
    """The pictures of one episode: ``array [frames, h, w, 3]`` and ``view [T]``, the frame that
    each tick showed.
    """

    array: ChunkedFrames
    view: Index


class FrameRows:
    """The pictures of all episodes, one row per tick, decoded when asked for.

    ``rows[index]`` gives uint8 ``[*index.shape, h, w, 3]``. ``kept_bytes`` bounds the decoded
    chunks that stay in memory.
    """

    def __init__(
        self, parts: Sequence[FramePart], *, kept_bytes: int = KEPT_BYTES, threads: int = THREADS
    ) -> None:
        if not parts:
            raise DataError("no episodes to read pictures of")
        shapes = sorted({part.array.shape[1:] for part in parts})
        if len(shapes) > 1:
            raise DataError(f"pictures of different shapes cannot share a batch: {shapes}")
        self._arrays = tuple(part.array for part in parts)
        self._kept_bytes, self._threads = kept_bytes, threads
        first = np.cumsum([0, *(array.chunks for array in self._arrays)], dtype=np.int64)
        self._first_chunk = first
        self._chunk = np.concatenate(
            [
                start + p.view // p.array.rows_per_chunk
                for start, p in zip(first, parts, strict=False)
            ]
        )
        self._offset = np.concatenate([p.view % p.array.rows_per_chunk for p in parts])
        self._own: _Own | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """``(ticks of all episodes, h, w, 3)``."""
        return (len(self._chunk), *self._arrays[0].shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the pixels."""
        return self._arrays[0].dtype

    @property
    def held_bytes(self) -> int:
        """Size of the decoded chunks that this process keeps now."""
        return self._here().held_bytes

    def __len__(self) -> int:
        return len(self._chunk)

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        index = np.asarray(rows, dtype=np.int64)
        chunk, offset = self._chunk[index].ravel(), self._offset[index].ravel()
        wanted, which = np.unique(chunk, return_inverse=True)
        out = np.empty((index.size, *self.shape[1:]), dtype=self.dtype)
        own = self._here()
        # In groups, so that a large batch never holds more decoded chunks than are kept.
        group = max(1, self._kept_bytes // self._chunk_bytes())
        for begin in range(0, len(wanted), group):
            decoded = own.get(self, wanted[begin : begin + group])
            for k, values in enumerate(decoded, start=begin):
                mine = np.flatnonzero(which == k)
                out[mine] = values[offset[mine]]
        return out.reshape(*index.shape, *self.shape[1:])

    def decode(self, number: int) -> Frames:
        """Chunk ``number``, counted through all episodes."""
        part = int(np.searchsorted(self._first_chunk, number, side="right")) - 1
        return self._arrays[part].chunk(number - int(self._first_chunk[part]))

    def _chunk_bytes(self) -> int:
        frame = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        return frame * max(array.rows_per_chunk for array in self._arrays)

    def _here(self) -> _Own:
        """What belongs to this process; a forked child builds its own."""
        if self._own is None or self._own.pid != os.getpid():
            self._own = _Own(self._kept_bytes, self._threads)
        return self._own

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_own": None}


class _Own:
    """Threads and kept chunks of one process."""

    def __init__(self, kept_bytes: int, threads: int) -> None:
        self.pid = os.getpid()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="frames")
        self._lock = Lock()
        self._kept: OrderedDict[int, NDArray[Any]] = OrderedDict()
        self._limit = kept_bytes
        self.held_bytes = 0

    def get(self, source: FrameRows, wanted: Index) -> list[NDArray[Any]]:
        """The chunks ``wanted``, decoding in parallel those that are not kept."""
        found: dict[int, NDArray[Any]] = {}
        with self._lock:
            for number in wanted.tolist():
                if number in self._kept:
                    self._kept.move_to_end(number)
                    found[number] = self._kept[number]
        missing = [number for number in wanted.tolist() if number not in found]
        for number, values in zip(missing, self._pool.map(source.decode, missing), strict=True):
            found[number] = values
            self._keep(number, values)
        return [found[number] for number in wanted.tolist()]

    def _keep(self, number: int, values: NDArray[Any]) -> None:
        with self._lock:
            if number not in self._kept:
                self._kept[number] = values
                self.held_bytes += values.nbytes
            while self.held_bytes > self._limit and len(self._kept) > 1:
                self.held_bytes -= self._kept.popitem(last=False)[1].nbytes
