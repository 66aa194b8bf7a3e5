"""MJPEG over HTTP (``multipart/x-mixed-replace``), with the sender's time stamps.

A reader of our own: OpenCV's hides the part headers, queues what is not read, and its synthetic
positions (40 ms per frame) look like times. Every wait
has a time limit, every length a bound.
"""

from __future__ import annotations

import http.client
import math
import urllib.parse
from dataclasses import dataclass

import cv2
import numpy as np

from hardware.camera import FrameSource, RawFrame, StreamConfig
from robolearn.errors import ConfigError, RobotConnectionError, StaleSignalError

_LINE, _LINES, _BYTES = 1024, 64, 16 << 20


@dataclass(frozen=True, slots=True)
class MjpegConfig:
    """Where the stream is."""

    url: str
    """``http://host:port/path`` of the multipart stream."""
    timeout_s: float = 0.5
    """Longest wait for bytes [s]."""
    stamp_header: str = "X-Timestamp"
    """Part header with the sender's time [s]."""

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
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
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
        try:
            data, device_t_s = self._part()
        except TimeoutError as error:
            raise StaleSignalError(
                f"camera '{self._name}': nothing arrived for {self._config.timeout_s:g} s from"
                f" {self._config.url}; check it, then connect again"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise RobotConnectionError(f"camera '{self._name}': {error}") from error
        encoded = np.frombuffer(data, dtype=np.uint8)
        bgr = cv2.imdecode(encoded, cv2.IMREAD_COLOR) if len(encoded) else None
        if bgr is None:
            raise RobotConnectionError(
                f"camera '{self._name}': {len(data)} bytes that are no picture; is"
                f" {self._config.url} an MJPEG stream?"
            )
        return RawFrame(np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), np.uint8), device_t_s)

    def close(self) -> None:
        """Close the connection."""
        # The connection hands its socket over to the answer.
        self._connection.close()
        if self._response is not None:
            self._response.close()

    def _open(self) -> http.client.HTTPResponse:
        if self._response is None:
            raise RobotConnectionError(f"camera '{self._name}' is closed; connect again")
        return self._response

    def _line(self) -> bytes:
        line = self._open().readline(_LINE)
        if not line:
            raise RobotConnectionError(
                f"camera '{self._name}': the sender closed the stream; connect again"
            )
        if not line.endswith(b"\n"):
            raise RobotConnectionError(
                f"camera '{self._name}': a header line of more than {_LINE} bytes"
            )
        return line.strip()

    def _part(self) -> tuple[bytes, float]:
        """The bytes of the next part and the sender's time."""
        length, stamp = -1, math.nan
        for _ in range(_LINES):
            line = self._line()
            name, _, value = line.partition(b":")
            key = name.strip().lower().decode("ascii", "replace")
            if key == "content-length":
                number = self._number(value)
                length = int(number) if 0 <= number <= _BYTES else -1
            elif key == self._config.stamp_header.lower():
                stamp = self._number(value)
            elif not line and length >= 0:
                break
        if not 0 <= length <= _BYTES:
            raise RobotConnectionError(
                f"camera '{self._name}': a part without a usable Content-Length ({length})"
            )
        data = self._open().read(length)
        if len(data) != length:
            raise RobotConnectionError(
                f"camera '{self._name}': the sender closed the stream in the middle of a picture"
            )
        return data, stamp

    def _number(self, text: bytes) -> float:
        try:
            return float(text)
        except ValueError as error:
            raise RobotConnectionError(
                f"camera '{self._name}': a part header with {text[:40]!r} instead of a number"
            ) from error
