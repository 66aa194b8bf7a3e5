"""Reads MJPEG over HTTP (``multipart/x-mixed-replace``), with the sender's time stamps.

Where depth is asked for (``?depth=1``), a PNG of 16 bits with the same stamp follows every picture.
A reader of our own: OpenCV's hides the part headers, queues what is not read, and its synthetic
positions (40 ms per frame) look like times. Every wait has a time limit, every length a bound.
"""

from __future__ import annotations

import http.client
import math
import urllib.parse
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import cv2
import numpy as np

from hardware.devices.camera import FrameSource, RawFrame, StreamConfig
from hardware.wire.mjpeg import DEPTH_QUERY
from robolearn.data.store.picture_codec import is_plain_jpeg
from robolearn.errors import ConfigError, RobotConnectionError, StaleSignalError
from robolearn.shapes import Depth, Picture

_LINE, _LINES, _BYTES, _SIDE = 1024, 64, 16 << 20, 4096


@runtime_checkable
class ByteStream(Protocol):
    """What a stream is read with."""

    def readline(self, limit: int = -1, /) -> bytes:
        """A line of at most ``limit`` bytes."""
        ...

    def read(self, size: int = -1, /) -> bytes:
        """``size`` bytes, fewer at the end."""
        ...


@dataclass(frozen=True, slots=True)
class MjpegConfig:
    """Where the stream is."""

    # ``http://host:port/path`` of the multipart stream.
    url: str
    # Longest wait for bytes [s].
    timeout_s: float = 0.5
    # Part header with the sender's time [s].
    stamp_header: str = "X-Timestamp"

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError(f"an MJPEG camera's url is http://host:port/path, got '{self.url}'")

    def build(self, stream: StreamConfig) -> FrameSource:
        """Connect."""
        return MjpegSource(self, stream)


class MjpegSource:
    """One connection to a stream."""

    def __init__(self, config: MjpegConfig, stream: StreamConfig) -> None:
        self._config, self._name = config, stream.name
        parts = urllib.parse.urlsplit(config.url)
        self._connection = http.client.HTTPConnection(
            parts.hostname or "", parts.port or 80, timeout=config.timeout_s
        )
        self._depth = stream.depth
        wanted = [parts.query] if parts.query else []
        wanted += [f"{DEPTH_QUERY}=1"] if stream.depth else []
        path = (parts.path or "/") + (f"?{'&'.join(wanted)}" if wanted else "")
        self._response: http.client.HTTPResponse | None = None
        try:
            self._connection.request("GET", path, headers={"Accept": "multipart/x-mixed-replace"})
            response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise RobotConnectionError(
                f"camera '{self._name}': {config.url} does not answer ({error}); check that the"
                " camera is on and the address is right"
            ) from error
        self._response = response
        kind = response.headers.get_content_type()
        if response.status != 200 or not kind.startswith("multipart/"):
            self.close()
            raise RobotConnectionError(
                f"camera '{self._name}': {config.url} answers {response.status} with"
                f" '{kind}', expected 200 with 'multipart/x-mixed-replace'"
            )

    def read(self) -> RawFrame:
        """The next picture."""
        if self._response is None:
            raise RobotConnectionError(f"camera '{self._name}' is closed; connect again")
        header, name = self._config.stamp_header, self._name
        try:
            data, device_t_s = read_part(self._response, header, name)
            measured = read_part(self._response, header, name) if self._depth else None
        except TimeoutError as error:
            raise StaleSignalError(
                f"camera '{self._name}': nothing arrived for {self._config.timeout_s:g} s from"
                f" {self._config.url}; check it, then connect again"
            ) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            # The client's own reader lets the ValueError of a chunk of negative length through.
            raise RobotConnectionError(f"camera '{self._name}': {error}") from error
        image = decode(data, name)
        # Every picture is decoded, once: what the next ones show is then known to be readable.
        file = data if is_plain_jpeg(data, image.shape) else b""
        if measured is None:
            return RawFrame(image, device_t_s, file=file)
        depth = decode_depth(measured[0], name)
        if measured[1] != device_t_s:
            raise RobotConnectionError(
                f"camera '{name}': a picture of {device_t_s:.6f} s and depth of {measured[1]:.6f} s"
                " are not of the same moment; the sender puts depth right after its picture, with"
                " the same stamp"
            )
        return RawFrame(image, device_t_s, depth, file)

    def close(self) -> None:
        """Close the connection."""
        # The connection hands its socket over to the answer.
        self._connection.close()
        if self._response is not None:
            self._response.close()


def read_part(stream: ByteStream, stamp_header: str, name: str) -> tuple[bytes, float]:
    """The bytes of the next part and the sender's time [s] (NaN without one).

    Raises RobotConnectionError for anything that is no part; reads at most 16 MiB.
    """
    length, stamp = -1, math.nan
    for _ in range(_LINES):
        line = _line(stream, name)
        key, _, value = line.partition(b":")
        key = key.strip().lower()
        if key == b"content-length":
            number = _number(value, name)
            length = int(number) if 0 <= number <= _BYTES else -1
        elif key == stamp_header.lower().encode():
            stamp = _number(value, name)
        elif not line and length >= 0:
            break
    if not 0 <= length <= _BYTES:
        raise RobotConnectionError(f"camera '{name}': a part without a usable Content-Length")
    data = stream.read(length)
    if len(data) != length:
        raise RobotConnectionError(
            f"camera '{name}': the sender closed the stream in the middle of a picture"
        )
    return data, stamp


def decode(data: bytes, name: str) -> Picture:
    """An RGB picture ``[height, width, 3]`` of a JPEG; raises RobotConnectionError for anything
    else, and for one that claims more than 4096 px a side (before memory is taken for it).
    """
    size = jpeg_size(data)
    if size is None or max(size) > _SIDE:
        raise RobotConnectionError(
            f"camera '{name}': {len(data)} bytes that are no picture"
            f"{'' if size is None else f' of at most {_SIDE} px a side: {size}'}; is its url an"
            " MJPEG stream?"
        )
    # The stub knows only that a matrix comes back; a picture that does not decode is None.
    image: Any = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_COLOR_RGB)
    if image is None:
        raise RobotConnectionError(f"camera '{name}': {len(data)} bytes that are no picture")
    return np.asarray(image, np.uint8)


def decode_depth(data: bytes, name: str) -> Depth:
    """Depth ``[height, width]`` [mm] of a PNG of 16 bits; RobotConnectionError for what is none."""
    size = png_size(data)
    if size is None or max(size) > _SIDE:
        raise RobotConnectionError(
            f"camera '{name}': expected depth (a PNG of 16 bits, at most {_SIDE} px a side) after"
            f" every picture, got {len(data)} bytes that are none; does the camera measure depth?"
            " Otherwise leave 'depth' out"
        )
    raw = cv2.imdecode(np.frombuffer(data, dtype=np.uint8), cv2.IMREAD_UNCHANGED)
    if raw is None or raw.dtype != np.uint16 or raw.ndim != 2:
        got = "nothing" if raw is None else f"{raw.dtype} {raw.shape}"
        raise RobotConnectionError(f"camera '{name}': depth is uint16 [height, width], got {got}")
    return np.asarray(raw, np.uint16)


def png_size(data: bytes) -> tuple[int, int] | None:
    """Width and height that a PNG's header claims (RFC 2083, 3.2 and 4.1.1); None without one."""
    if len(data) < 24 or data[:8] != b"\x89PNG\r\n\x1a\n" or data[12:16] != b"IHDR":
        return None
    wide, high = (int.from_bytes(data[k : k + 4], "big") for k in (16, 20))
    return (wide, high) if wide and high else None


def jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Width and height that a JPEG's frame header (ITU-T T.81, B.2.2) claims; None without one."""
    if data[:2] != b"\xff\xd8":
        return None
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            high, wide = (int.from_bytes(data[at + k : at + k + 2], "big") for k in (5, 7))
            return (wide, high) if wide and high else None
        at += 2 + length
    return None


def _line(stream: ByteStream, name: str) -> bytes:
    line = stream.readline(_LINE)
    if not line:
        raise RobotConnectionError(f"camera '{name}': the sender closed the stream; connect again")
    if not line.endswith(b"\n"):
        raise RobotConnectionError(f"camera '{name}': a header line of more than {_LINE} bytes")
    return line.strip()


def _number(text: bytes, name: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise RobotConnectionError(
            f"camera '{name}': a part header with {text[:40]!r} instead of a number"
        ) from error
