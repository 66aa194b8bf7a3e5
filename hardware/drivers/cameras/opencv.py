"""Reads cameras by OpenCV: USB (UVC) by number or device file, RTSP, HTTP and files by URL.

OpenCV's time limits work only as parameters of opening; without them a read of a stalled stream
never returns, and with them a capture that ran out of time is dead for good. Pictures that are not
read queue up in the socket (a second without reading: the next is 950 ms old), hence the thread of
``StreamedCamera``. A USB camera that sends JPEGs (``fourcc: MJPG``) is asked for those instead of
pixels, and they are decoded here: what it sent can then be stored as it came.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from hardware.devices.camera import FrameSource, RawFrame, StreamConfig
from hardware.drivers.cameras.mjpeg import decode
from robolearn.data.store.picture_codec import is_plain_jpeg
from robolearn.errors import ConfigError, RobotConnectionError, StaleSignalError

_MJPG = cv2.VideoWriter.fourcc(*"MJPG")


@dataclass(frozen=True, slots=True)
class OpenCVConfig:
    """Which device, and its time limits."""

    # Number or path of a video device (``0``, ``/dev/video0``), or a URL (rtsp, http).
    device: int | str
    # Longest wait while opening a URL [s].
    open_timeout_s: float = 1.0
    # Longest wait for a picture of a URL [s].
    read_timeout_s: float = 1.0
    # Pixel format asked of a USB device, e.g. MJPG (needed for high rates over USB 2, and for
    # pictures that are stored as the camera compressed them).
    fourcc: str = ""

    def __post_init__(self) -> None:
        if len(self.fourcc) not in (0, 4):
            raise ConfigError(f"fourcc has four letters (MJPG, YUYV), got '{self.fourcc}'")

    def build(self, stream: StreamConfig) -> FrameSource:
        """Open the device. ConfigError for depth, which OpenCV does not read."""
        if stream.depth:
            raise ConfigError(
                f"camera '{stream.name}': kind 'opencv' reads colours alone; depth comes from kind"
                " 'realsense', or 'mjpeg' of a camera that sends it. Leave 'depth' out"
            )
        return OpenCVSource(self, stream)


class OpenCVSource:
    """One ``VideoCapture``."""

    def __init__(self, config: OpenCVConfig, stream: StreamConfig) -> None:
        self._config, self._name = config, stream.name
        device = config.device
        if isinstance(device, str) and "://" in device:
            self._capture = cv2.VideoCapture(
                device,
                cv2.CAP_FFMPEG,
                [
                    cv2.CAP_PROP_OPEN_TIMEOUT_MSEC,
                    round(1e3 * config.open_timeout_s),
                    cv2.CAP_PROP_READ_TIMEOUT_MSEC,
                    round(1e3 * config.read_timeout_s),
                ],
            )
        else:
            path = Path(f"/dev/video{device}" if isinstance(device, int) else device)
            require_device(path, f"camera '{stream.name}'")
            self._capture = cv2.VideoCapture(str(path), cv2.CAP_V4L2)
            if config.fourcc:
                code = cv2.VideoWriter.fourcc(*config.fourcc)
                self._capture.set(cv2.CAP_PROP_FOURCC, code)
            self._capture.set(cv2.CAP_PROP_FRAME_WIDTH, stream.width)
            self._capture.set(cv2.CAP_PROP_FRAME_HEIGHT, stream.height)
            self._capture.set(cv2.CAP_PROP_FPS, stream.rate_hz)
            if round(self._capture.get(cv2.CAP_PROP_FOURCC)) == _MJPG:
                # Where it is refused, pictures come decoded.
                self._capture.set(cv2.CAP_PROP_CONVERT_RGB, 0)
        if not self._capture.isOpened():
            self._capture.release()
            raise RobotConnectionError(
                f"camera '{stream.name}': OpenCV cannot open '{device}'; check the address, that"
                " the camera is on, and that no other program uses it"
            )

    def read(self) -> RawFrame:
        """The next picture."""
        done, bgr = self._capture.read()
        if not done or bgr is None:
            # It says the same for a stall, an unplugged cable and the end of a stream.
            raise StaleSignalError(
                f"camera '{self._name}': '{self._config.device}' delivers no more pictures (stalled"
                " or unplugged); check it, then connect again"
            )
        if bgr.ndim == 2 and len(bgr) == 1:
            return self._decoded(bgr.tobytes())
        if bgr.ndim == 2:
            return RawFrame(np.asarray(cv2.cvtColor(bgr, cv2.COLOR_GRAY2RGB), np.uint8))
        return RawFrame(np.asarray(cv2.cvtColor(bgr, cv2.COLOR_BGR2RGB), np.uint8))

    def _decoded(self, data: bytes) -> RawFrame:
        """Of what a USB camera sent. Some fill up their packets behind the end of a picture."""
        file = data.rstrip(b"\0")
        try:
            image = decode(file, self._name)
        except RobotConnectionError as error:
            raise RobotConnectionError(
                f"camera '{self._name}': '{self._config.device}' sent {len(data)} bytes that are no"
                " JPEG; try another cable or port, or leave out 'fourcc'. Then connect again"
            ) from error
        return RawFrame(image, file=file if is_plain_jpeg(file, image.shape) else b"")

    def close(self) -> None:
        """Release the device."""
        self._capture.release()


def require_device(path: Path, what: str) -> None:
    """Raise RobotConnectionError unless a device file is there and may be used; says how to fix."""
    if not path.exists():
        near = sorted(str(p) for p in path.parent.glob(path.name.rstrip("0123456789") + "*"))
        raise RobotConnectionError(
            f"{what}: there is no {path}; there are: {near or 'none'}. Plug it in ('robolearn"
            " doctor' lists devices)"
        )
    if not os.access(path, os.R_OK | os.W_OK):
        group = path.group()
        raise RobotConnectionError(
            f"{what}: {path} may not be read and written; add yourself to its group: 'sudo usermod"
            f" -aG {group} $USER' and log in again, or as a udev rule: 'KERNEL==\"{path.name}\","
            ' MODE="0666"\' in /etc/udev/rules.d/99-robot.rules'
        )
