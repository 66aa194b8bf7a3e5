"""Reads all cameras of a cell: connected together, read into signal buffers, refused when stale."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence

from hardware.devices.camera import Camera
from hardware.devices.camera_config import CameraConfig, require_cameras
from hardware.streams.signal_buffer import SignalBuffer
from robolearn.errors import ConfigError, RobolearnError, StaleSignalError, did_you_mean
from robolearn.spec import SignalSpec


class CameraStreams:
    """Owns the cameras of a cell; every picture goes to the signal's buffer once."""

    def __init__(self, configs: Sequence[CameraConfig]) -> None:
        require_cameras(configs)
        self._configs = {c.stream.name: c for c in configs}
        self._cameras = {c.stream.name: c.build() for c in configs}
        self._seen = dict.fromkeys(self._cameras, -1)
        try:
            for camera in self._cameras.values():
                camera.connect()
        except BaseException:
            self.close()
            raise

    @property
    def signals(self) -> tuple[SignalSpec, ...]:
        """Signals of pictures and depth, in order."""
        return tuple(spec for c in self._configs.values() for spec in c.specs)

    def camera(self, name: str) -> tuple[Camera, CameraConfig]:
        """A camera and its config; the error lists what exists."""
        if name not in self._cameras:
            raise ConfigError(
                f"no camera '{name}'.{did_you_mean(name, self._cameras)} This cell has:"
                f" {sorted(self._cameras)}"
            )
        return self._cameras[name], self._configs[name]

    def restart(self, buffers: Mapping[str, SignalBuffer]) -> None:
        """An episode starts: its first picture is the newest one."""
        for name, camera in self._cameras.items():
            self._seen[name] = camera.latest().index - 1
        self.collect(buffers)

    def collect(self, buffers: Mapping[str, SignalBuffer]) -> None:
        """Put every new picture into the buffer of its signal."""
        for name, config in self._configs.items():
            for frame in self._cameras[name].since(self._seen[name]):
                self._seen[name] = frame.index
                if config.signal:
                    shown = config.shown(frame.image)
                    # Of another size it is another picture.
                    file = frame.file if shown is frame.image else b""
                    buffers[config.signal_name].add(frame.t_ns, shown, file)
                if config.signal and frame.depth is not None:
                    depth = config.measured(frame.depth)
                    buffers[config.depth_spec.name].add(frame.t_ns, depth)

    def require_fresh(self) -> None:
        """Raise the typed error of the first camera that has one."""
        for camera in self._cameras.values():
            camera.latest()

    def reconnect(self) -> None:
        """The operator's explicit way back after errors that last."""
        for name, camera in self._cameras.items():
            camera.connect()
            self._seen[name] = -1

    def capture_ns(self, name: str) -> int:
        """Capture time of a camera's newest picture."""
        return self.camera(name)[0].latest().t_ns

    def wait_after(self, name: str, t_ns: int, timeout_s: float = 2.0) -> None:
        """Until a picture was taken after ``t_ns``."""
        _until(lambda: self.capture_ns(name) > t_ns, timeout_s, f"camera '{name}'")

    def behind(self, t_ns: int) -> bool:
        """Whether a camera that works has shown nothing yet that it took after ``t_ns``."""
        return any(self._is_behind(camera, t_ns) for camera in self._cameras.values())

    def wait_until_shown(self, t_ns: int, timeout_s: float = 0.5) -> None:
        """Until all have that can, or the time is over."""
        with contextlib.suppress(StaleSignalError):
            _until(lambda: not self.behind(t_ns), timeout_s, "cameras")

    def _is_behind(self, camera: Camera, t_ns: int) -> bool:
        try:
            return camera.latest().t_ns <= t_ns
        except RobolearnError:
            # Whoever looks next is told.
            return False

    def close(self) -> None:
        """Release every camera; safe to call twice."""
        for camera in self._cameras.values():
            camera.close()


def _until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise StaleSignalError(f"{what}: no new picture within {timeout_s:g} s")
        time.sleep(0.005)
