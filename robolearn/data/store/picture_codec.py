"""Encodes and decodes cameras on disk, each with its codec.

    signals/top/image/value      [N, height, width, 3]   lossless, chunks of a few frames
    signals/top/depth/value      uint16 [N, height, width]  [mm], 0 where nothing was measured
or
    signals/top/image/encoded    uint8 [bytes]           picture files (JPEG, PNG) end to end
    signals/top/image/offset     int64 [N + 1]           frame i is encoded[offset[i]:offset[i + 1]]

Both are plain Zarr v3 arrays of numbers, so that no reader needs a codec of ours; a frame of zero
bytes is a missing one. Sizes and speeds: ``docs/formats.md``.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import cv2
import numpy as np

from robolearn.data.store.chunks import (
    FRAME_ROWS,
    ArrayWriter,
    FileEntry,
    FileSink,
    StoredArray,
    open_array,
    read_array,
    write_array,
)
from robolearn.data.store.storage import Place
from robolearn.errors import DataError, StoreCorruptError
from robolearn.shapes import AnyArray, AnyRows, Bytes, Flags, Index
from robolearn.spec import EmbodimentSpec, SignalSpec

LARGE_FRAME_BYTES = 256 * 2**10
"""Larger frames are JPEG unless the camera's codec says otherwise (296 x 296 pixels in colour)."""
ENCODED_CHUNK = 2**19
"""Bytes per chunk of encoded frames: some eight 640x480 pictures."""
FRAME_CODECS = "frame_codecs"
"""Key of an episode's provenance: the codec of each camera as it was chosen."""
JPEG_QUALITY = 95
PNG_LEVEL = 1
DECODE_THREADS = 4
# Of JPEG: baseline frame, Huffman and quantization tables, restart interval, JFIF header, scan.
_SOF0, _DHT, _DQT, _DRI, _APP0, _SOS = 0xC0, 0xC4, 0xDB, 0xDD, 0xE0, 0xDA
_NEEDED = (_SOF0, _DHT, _DQT, _DRI, _APP0)
CODECS = "zstd (lossless), png (lossless), jpeg or jpeg:QUALITY (1 to 100)"


@dataclass(frozen=True, slots=True)
class FrameCodec:
    """How the frames of a camera are stored; ``quality`` is for JPEG alone. ``own``: frames that
    the camera compressed itself stay as they are (nobody asked for a quality).
    """

    name: Literal["zstd", "png", "jpeg"]
    quality: int = 0
    own: bool = False

    def __str__(self) -> str:
        return f"{self.name}:{self.quality}" if self.quality and not self.own else self.name

    @property
    def encodes(self) -> bool:
        """Whether each frame becomes a picture file; otherwise frames are compressed in chunks."""
        return self.name != "zstd"

    def encode(self, frame: AnyArray) -> bytes:
        """One RGB frame ``[height, width, 3]``, or depth ``uint16 [height, width]`` (PNG alone), as
        a picture file.
        """
        if self.name == "jpeg":
            suffix, options = ".jpg", [cv2.IMWRITE_JPEG_QUALITY, self.quality]
        else:
            suffix, options = ".png", [cv2.IMWRITE_PNG_COMPRESSION, PNG_LEVEL]
        pixels = frame if frame.ndim == 2 else cv2.cvtColor(frame, cv2.COLOR_RGB2BGR)
        done, data = cv2.imencode(suffix, pixels, options)
        if not done:
            raise DataError(f"a frame of shape {frame.shape} cannot be encoded as {self.name}")
        return data.tobytes()


LOSSLESS = FrameCodec("zstd")
OWN_JPEG = FrameCodec("jpeg", JPEG_QUALITY, own=True)


def parse_codec(text: str) -> FrameCodec:
    """``zstd``, ``png``, ``jpeg`` or ``jpeg:90``; anything else is a :class:`DataError`."""
    match = re.fullmatch(r"(zstd|png|jpeg)(?::(\d{1,3}))?", text)
    if match is None or (match[2] is not None and match[1] != "jpeg"):
        raise DataError(f"unknown picture codec '{text}'; there is: {CODECS}")
    if match[1] == "jpeg":
        if match[2] is None:
            return OWN_JPEG
        if not 1 <= int(match[2]) <= 100:
            raise DataError(f"codec '{text}': the quality must be 1 to 100")
        return FrameCodec("jpeg", int(match[2]))
    return FrameCodec("png") if match[1] == "png" else LOSSLESS


def default_codec(spec: SignalSpec) -> FrameCodec:
    """Lossless; JPEG for a colour picture above 256 KiB, PNG (lossless, too) for depth above it."""
    size = int(np.prod(spec.shape, dtype=np.int64)) * np.dtype(spec.dtype).itemsize
    large = size > LARGE_FRAME_BYTES
    if not large:
        return LOSSLESS
    if spec.is_depth:
        return FrameCodec("png")
    return OWN_JPEG if _is_colour(spec) else LOSSLESS


def camera_codecs(spec: EmbodimentSpec, chosen: Mapping[str, str]) -> dict[str, FrameCodec]:
    """The codec of every camera of ``spec``: as ``chosen``, else :func:`default_codec`.

    A codec for something that is no camera is a :class:`DataError`.
    """
    cameras = {s.name: s for s in spec.signals if s.is_image}
    for name, text in chosen.items():
        if name not in cameras:
            raise DataError(
                f"a codec is given for '{name}', which is no camera of '{spec.name}';"
                f" its cameras: {', '.join(cameras) or 'none'}"
            )
        camera, codec = cameras[name], parse_codec(text)
        if codec.name == "jpeg" and camera.is_depth:
            raise DataError(f"{name}: '{text}' would change depth; store it as png or zstd")
        if codec.encodes and not (_is_colour(camera) or camera.is_depth):
            raise DataError(f"{name}: '{text}' stores RGB pictures, not {camera.shape}")
    return {
        name: parse_codec(chosen[name]) if name in chosen else default_codec(camera)
        for name, camera in cameras.items()
    }


def _is_colour(spec: SignalSpec) -> bool:
    return spec.is_image and not spec.is_depth and spec.shape[2] == 3


class EncodedWriter:
    """Writes the frames of one camera as picture files, end to end, with their offsets."""

    def __init__(
        self, sink: FileSink, path: str, shape: tuple[int, ...], codec: FrameCodec
    ) -> None:
        self.sizes: list[int] = []
        # Frames that are files of the camera's own.
        self.kept = 0
        self._shape = shape
        self._sink, self._path, self._codec = sink, path, codec
        about = {"codec": codec.name, "quality": codec.quality, "frame_shape": list(shape)}
        byte = np.dtype(np.uint8)
        self._bytes = ArrayWriter(sink, f"{path}/encoded", (), byte, ENCODED_CHUNK, about)

    @property
    def rows(self) -> int:
        """Frames so far."""
        return len(self.sizes)

    def append(self, frames: AnyRows, valid: Flags, files: tuple[bytes, ...] = ()) -> None:
        """Encode ``frames [n, *shape]``; those that are not valid take no bytes. ``files``: what
        the frames were decoded of (:attr:`SampleBlock.files`), kept as it is where the codec says
        so and every reader can read it.
        """
        for frame, good, file in zip(frames, valid, files or (b"",) * len(frames), strict=True):
            own = bool(good) and self._codec.own and is_plain_jpeg(file, self._shape)
            self.kept += own
            if own:
                self.append_encoded(file)
            else:
                self.append_encoded(self._codec.encode(frame) if good else b"")

    def append_encoded(self, data: bytes) -> None:
        """Add a frame that is a picture file already."""
        self.sizes.append(len(data))
        if data:
            self._bytes.append(np.frombuffer(data, dtype=np.uint8))

    def close(self) -> None:
        """Write the rest and the offsets."""
        self._bytes.close()
        offset = np.zeros(len(self.sizes) + 1, dtype=np.int64)
        np.cumsum(self.sizes, out=offset[1:])
        write_array(self._sink, f"{self._path}/offset", offset)


@dataclass(frozen=True, slots=True)
class StoredFrames:
    """Encoded frames of a camera on disk, read as if they were a :class:`StoredArray`."""

    encoded: StoredArray
    offset: Index
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the decoded frames."""
        return pixel_type(self.shape[1:])

    @property
    def rows_per_chunk(self) -> int:
        """Frames that :meth:`chunk` decodes at once."""
        return FRAME_ROWS

    @property
    def chunks(self) -> int:
        """How many times :meth:`chunk` can be called for new rows."""
        return -(-self.shape[0] // FRAME_ROWS)

    def chunk(self, index: int) -> AnyRows:
        """Rows ``index * rows_per_chunk`` and following, decoded; safe from many threads."""
        start = index * FRAME_ROWS
        stop = min(start + FRAME_ROWS, self.shape[0])
        data = self._bytes(int(self.offset[start]), int(self.offset[stop]))
        out = np.empty((stop - start, *self.shape[1:]), dtype=self.dtype)
        for row in range(start, stop):
            begin, end = self.offset[row : row + 2] - self.offset[start]
            where = f"{self.encoded.root / self.encoded.path}: frame {row}"
            out[row - start] = decode_frame(data[begin:end], self.shape[1:], where)
        return out

    def frame(self, row: int) -> AnyArray:
        """One frame, decoded; safe from many threads."""
        data = self._bytes(int(self.offset[row]), int(self.offset[row + 1]))
        where = f"{self.encoded.root / self.encoded.path}: frame {row}"
        return decode_frame(data, self.shape[1:], where)

    def encoded_frame(self, row: int) -> bytes:
        """One frame as the picture file that it is stored as; empty for a missing one."""
        return self._bytes(int(self.offset[row]), int(self.offset[row + 1])).tobytes()

    def _bytes(self, begin: int, end: int) -> Bytes:
        per_chunk = self.encoded.rows_per_chunk
        first = begin // per_chunk
        parts = [self.encoded.chunk(i) for i in range(first, -(-end // per_chunk))]
        joined = np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8)
        return joined[begin - first * per_chunk : end - first * per_chunk]


def open_values(
    root: Place, base: str, files: Mapping[str, FileEntry]
) -> StoredArray | StoredFrames:
    """The values of the signal in ``base``, to be read a chunk at a time."""
    if f"{base}/encoded/zarr.json" not in files:
        return open_array(root, f"{base}/value", files)
    encoded = open_array(root, f"{base}/encoded", files)
    offset = read_array(root, f"{base}/offset", files)[0]
    shape = (len(offset) - 1, *(int(n) for n in encoded.attributes["frame_shape"]))
    return StoredFrames(encoded, offset, shape)


def read_values(root: Place, base: str, files: Mapping[str, FileEntry]) -> AnyRows:
    """All values ``[N, *shape]`` of the signal in ``base``; pictures decoded on a few threads.

    Damage is a :class:`StoreCorruptError`.
    """
    stored = open_values(root, base, files)
    if isinstance(stored, StoredArray):
        return read_array(root, f"{base}/value", files)[0]
    out = np.empty(stored.shape, dtype=stored.dtype)
    with ThreadPoolExecutor(min(DECODE_THREADS, os.cpu_count() or 1)) as pool:
        for index, block in enumerate(pool.map(stored.chunk, range(stored.chunks))):
            out[index * FRAME_ROWS : index * FRAME_ROWS + len(block)] = block
    return out


def is_plain_jpeg(data: bytes, shape: tuple[int, ...]) -> bool:
    """Whether a file of a camera's may stand for a frame ``[height, width, 3]``: a whole JPEG that
    every reader shows alike, of this size and no longer than its pixels.

    Looks at the headers (ITU-T T.81, B.1 and B.2) of what a decoder has accepted: baseline with
    tables of its own, three components of 8 bits, no segment but those needed, so no rotation,
    profile, thumbnail or comment of the camera's; ends where it says.
    """
    if len(shape) != 3 or not 4 < len(data) <= shape[0] * shape[1] * shape[2]:
        return False
    if data[:2] != b"\xff\xd8" or data[-2:] != b"\xff\xd9":
        return False
    at, tables, sized = 2, False, False
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if marker == _SOS:
            return tables and sized
        if marker not in _NEEDED or length < 2:
            return False
        if marker == _SOF0:
            high, wide = (int.from_bytes(data[at + k : at + k + 2], "big") for k in (5, 7))
            if data[at + 4 : at + 5] != b"\x08" or (high, wide, data[at + 9]) != shape:
                return False
            sized = True
        tables |= marker == _DHT
        at += 2 + length
    return False


def pixel_type(shape: tuple[int, ...]) -> np.dtype[Any]:
    """Of frames of this shape: bytes of colours, or 16 bits of depth ``[height, width]``."""
    return np.dtype(np.uint16 if len(shape) == 2 else np.uint8)


def decode_frame(data: Bytes, shape: tuple[int, ...], where: str = "frame") -> AnyArray:
    """One picture file as RGB ``[height, width, 3]``, or depth ``[height, width]``; no bytes are a
    missing frame, all zeros.
    """
    wanted = pixel_type(shape)
    if not data.size:
        return np.zeros(shape, dtype=wanted)
    _one_thread_each()
    kind = cv2.IMREAD_COLOR_RGB if len(shape) == 3 else cv2.IMREAD_UNCHANGED
    try:
        # The stub knows only that a matrix comes back; a picture that does not decode is None.
        frame: Any = cv2.imdecode(data, kind)
    except cv2.error as error:
        raise StoreCorruptError(f"{where} cannot be decoded: {error}") from error
    if frame is None or frame.shape != shape or frame.dtype != wanted:
        got = "nothing" if frame is None else f"{frame.dtype} {frame.shape}"
        raise StoreCorruptError(f"{where} cannot be decoded: expected {wanted} {shape}, got {got}")
    return np.asarray(frame)


@functools.cache
def _one_thread_each() -> None:
    """Frames are decoded beside each other; threads inside of each would only get in the way."""
    cv2.setNumThreads(1)
