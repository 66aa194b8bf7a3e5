"""The camera contract as tests: every driver's camera subclasses it."""

import dataclasses
import math
import threading
import time

import numpy as np
import pytest

from hardware.devices.camera import Camera, StreamConfig, StreamedCamera
from hardware.emulators.mjpeg import CameraEmulator
from hardware.emulators.sensor import CameraEmulatorConfig, Exposure
from robolearn.errors import (
    CameraError,
    RobolearnError,
    RobotConnectionError,
    SpecMismatchError,
    StaleSignalError,
)
from tests.waiting import pass_time, wait_until

# A busy test machine draws late; what is tested is that the limit is kept, not how short it is.
STREAM = StreamConfig(
    name="top",
    width=64,
    height=48,
    rate_hz=50.0,
    max_age_s=1.0,
    frozen_s=0.3,
    black_s=0.2,
    connect_s=5.0,
)


def pattern(count):
    """A picture that tells its number by the place of a white column."""
    image = np.full((48, 64, 3), 90, dtype=np.uint8)
    image[:, count % 64] = (255, 40, 10)
    return image


class EmulatedCamera:
    """A camera emulator on a thread, drawing :func:`pattern`."""

    def __init__(self, **config):
        self.count = 0
        given = {"port": 0, "width": 64, "height": 48, "rate_hz": 50.0, "latency_s": 0.005}
        self.device = CameraEmulator(
            CameraEmulatorConfig(**{**given, **config}),
            "127.0.0.1",
            self._draw,
            np.random.default_rng(0),
        )
        self.url = f"http://127.0.0.1:{self.device.port}/top"
        self._ended = False
        self._thread = threading.Thread(target=self.device.run, args=(lambda: self._ended,))
        self._thread.start()

    def _draw(self):
        self.count += 1
        return Exposure(time.monotonic_ns(), pattern(self.count))

    def close(self):
        self._ended = True
        self._thread.join()
        self.device.close()
        self.device.close()


def error_of(camera, kind):
    """The error of this kind that must come; others may come before it."""

    def told():
        try:
            camera.latest()
        except RobolearnError as error:
            return error if isinstance(error, kind) else None

    return wait_until(told, what=f"{kind}")


class CameraContract:
    """Subclasses provide :meth:`stream` (a config), :meth:`source` and the faults."""

    stream = STREAM

    def source(self, stream):
        raise AssertionError("a subclass opens the source")

    def fault(self, kind, seconds=10.0):
        raise AssertionError("a subclass causes the fault")

    @pytest.fixture
    def camera(self):
        made = StreamedCamera(self.stream, lambda: self.source(self.stream))
        made.connect()
        yield made
        made.close()
        made.close()

    def test_frames_come_with_times_and_are_read_only(self, camera):
        assert isinstance(camera, Camera)
        first = camera.latest()
        later = camera.wait(first.index + 1, 5.0)
        assert later.image.shape == (48, 64, 3)
        assert later.image.dtype == np.uint8
        assert not later.image.flags.writeable
        assert first.t_ns < later.t_ns <= later.received_ns <= time.monotonic_ns()
        if self.stream.clock != "none":
            assert math.isfinite(later.device_t_s)
        indices = [f.index for f in camera.since(first.index)]
        assert indices == list(range(first.index + 1, indices[-1] + 1))

    def test_what_nobody_read_does_not_wait(self, camera):
        pass_time(0.4, "nobody reads")
        frame = camera.latest()
        assert (time.monotonic_ns() - frame.received_ns) * 1e-9 < 0.3
        assert frame.index > 3

    def test_a_black_camera_is_an_error_while_it_is_black(self, camera):
        self.fault("black", 0.8)
        error = error_of(camera, CameraError)
        assert "black" in str(error)

    def test_a_frozen_camera_is_a_stale_signal(self, camera):
        self.fault("frozen")
        assert "frozen" in str(error_of(camera, StaleSignalError))

    def test_a_stalled_camera_is_a_stale_signal(self, camera):
        self.fault("stall")
        assert "top" in str(error_of(camera, StaleSignalError))

    def test_a_camera_of_another_size_says_both_sizes(self, camera):
        self.fault("size")
        text = str(error_of(camera, SpecMismatchError))
        assert "32 x 24" in text
        assert "64 x 48" in text

    def test_an_unplugged_camera_is_a_typed_error_and_returns_only_by_connect(self, camera):
        self.fault("drop", 0.4)
        first = error_of(camera, (RobotConnectionError, StaleSignalError))
        pass_time(0.5, "a camera that is plugged in again is no recovery")
        with pytest.raises(type(first)):
            camera.latest()
        self.heal()
        camera.connect()
        assert camera.latest().index >= 0

    def heal(self):
        pass

    def test_a_closed_camera_says_so(self, camera):
        camera.close()
        with pytest.raises(RobotConnectionError, match="connect"):
            camera.latest()
        assert camera.since(-1) == []


def with_clock(stream, clock, **changes):
    return dataclasses.replace(stream, clock=clock, **changes)
