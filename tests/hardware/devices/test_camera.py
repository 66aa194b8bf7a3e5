"""Cameras: the contract over the fake, MJPEG and OpenCV; checks on a clock of the test."""

import dataclasses
import io
import math
import os
import socket
import threading
import time

import cv2
import numpy as np
import pytest

from hardware.devices.camera import FrameChecks, RawFrame, StreamConfig, StreamedCamera
from hardware.drivers.cameras.mjpeg import MjpegConfig, decode, jpeg_size, read_part
from hardware.drivers.cameras.opencv import OpenCVConfig, require_device
from hardware.drivers.cameras.realsense import RealSenseConfig
from hardware.drivers.fakes.camera import FakeCameraConfig, FakeCameraState
from hardware.emulators.sensor import CameraEmulatorConfig, respond
from robolearn.errors import (
    CameraError,
    ClockError,
    ConfigError,
    DataError,
    MissingDependencyError,
    RobotConnectionError,
    SpecMismatchError,
    StaleSignalError,
)
from tests.hardware.camera_contract import (
    STREAM,
    CameraContract,
    EmulatedCamera,
    error_of,
    pattern,
    with_clock,
)
from tests.waiting import wait_for_error, wait_until


class TestFakeCamera(CameraContract):
    stream = with_clock(STREAM, "monotonic")

    @pytest.fixture(autouse=True)
    def _state(self):
        self.state = FakeCameraState()

    def source(self, stream):
        return FakeCameraConfig(state=self.state).build(stream)

    def fault(self, kind, seconds=10.0):
        changes = {
            "black": ("black", True),
            "frozen": ("frozen", True),
            "stall": ("stalled", True),
            "size": ("size", (32, 24)),
            "drop": ("unplugged", True),
        }
        setattr(self.state, *changes[kind])

    def heal(self):
        self.state.unplugged = False


class _Emulated(CameraContract):
    @pytest.fixture(autouse=True)
    def _emulator(self):
        self.emulated = EmulatedCamera()
        yield
        self.emulated.close()

    def fault(self, kind, seconds=10.0):
        self.emulated.device.fault(kind, seconds)


class TestMjpegCamera(_Emulated):
    stream = with_clock(STREAM, "monotonic")

    def source(self, stream):
        return MjpegConfig(self.emulated.url).build(stream)

    def test_times_are_the_senders(self, camera):
        self.emulated.device.fault("slow", 5.0, 0.2)

        def delayed():
            frame = camera.latest()
            return frame if frame.received_ns - frame.t_ns > 0.19e9 else None

        frame = wait_until(delayed)
        assert frame.t_ns == pytest.approx(frame.device_t_s * 1e9, abs=1000)

    @pytest.mark.parametrize(("seconds", "told"), [(-5.0, "backwards"), (5.0, "future")])
    def test_a_jumping_clock_is_a_typed_error(self, camera, seconds, told):
        self.emulated.device.fault("clock_jump", 9.0, seconds)
        assert told in str(error_of(camera, ClockError))


class TestOpenCVCamera(_Emulated):
    stream = STREAM

    def source(self, stream):
        limits = {"open_timeout_s": 3.0, "read_timeout_s": 0.5}
        return OpenCVConfig(self.emulated.url, **limits).build(stream)

    def test_a_camera_of_another_size_says_both_sizes(self, camera):
        # FFmpeg scales a size that changes on the way; at the start it is seen.
        self.fault("size")
        wait_for_error(camera.connect, SpecMismatchError, r"32 x 24.*64 x 48")


def taken(config, frames):
    """Checks after ``(t_s, device_t_s, image)`` arrived."""
    checks = FrameChecks(config)
    for t_s, device_t_s, image in frames:
        checks.take(RawFrame(image.copy(), device_t_s), round(t_s * 1e9))
    return checks


def test_an_own_clock_is_mapped_by_its_fastest_picture():
    config = with_clock(STREAM, "own", latency_s=0.02)
    checks = FrameChecks(config)
    rng = np.random.default_rng(3)
    errors = []
    for k in range(300):
        exposed_s = 100.0 + k / 30
        # The device counts from its own start; pictures take 20 ms and up to 30 ms more.
        arrives_s = exposed_s + 0.02 + 0.03 * rng.random() ** 2
        frame = checks.take(RawFrame(pattern(k), exposed_s - 91.5), round(arrives_s * 1e9))
        errors.append(frame.t_ns * 1e-9 - exposed_s)
    assert max(abs(e) for e in errors[20:]) < 1e-3


def test_clocks_that_run_backwards_or_jump_ahead():
    own = with_clock(STREAM, "own")
    with pytest.raises(ClockError, match="backwards"):
        taken(own, [(10.0, 1.0, pattern(0)), (10.1, 0.9, pattern(1))])
    with pytest.raises(ClockError, match=r"jumped 4.9"):
        taken(own, [(10.0, 1.0, pattern(0)), (10.1, 6.0, pattern(1))])
    with pytest.raises(ClockError, match="no time stamps"):
        taken(own, [(10.0, math.nan, pattern(0))])
    late = taken(own, [(10.0, 1.0, pattern(0)), (12.0, 1.1, pattern(1))])
    with pytest.raises(StaleSignalError, match=r"1.900 s old"):
        late.require_good(12_000_000_000)


def test_black_and_frozen_end_by_themselves():
    dark, light = np.zeros((48, 64, 3), np.uint8), pattern(1)
    frames = [(0.09 * k, math.nan, dark) for k in range(4)]
    with pytest.raises(CameraError, match=r"black for 0\.27 s"):
        taken(STREAM, frames).require_good(270_000_000)
    assert taken(STREAM, [*frames, (0.4, math.nan, light)]).require_good(400_000_000).index == 4
    still = [(0.2 * k, math.nan, light) for k in range(3)]
    with pytest.raises(StaleSignalError, match=r"frozen.*0\.40 s"):
        taken(STREAM, still).require_good(400_000_000)


def test_wrong_configs_are_refused():
    for changes in ({"width": 0}, {"name": "a/b"}, {"rate_hz": 0.0}, {"max_age_s": -1.0}):
        with pytest.raises(ConfigError):
            dataclasses.replace(STREAM, **changes)
    for url in ("https://x/y", "rtsp://x", "top"):
        with pytest.raises(ConfigError, match="http://"):
            MjpegConfig(url)
    for changes in ({"port": -1}, {"quality": 0}, {"latency_s": -1.0}, {"width": 2}):
        with pytest.raises(ConfigError):
            CameraEmulatorConfig(**changes)


def test_a_refusing_address_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RobotConnectionError, match=f"{port}.*does not answer"):
        MjpegConfig(f"http://127.0.0.1:{port}/x").build(STREAM)


class RawServer:
    """Answers the first request with given bytes."""

    def __init__(self, data):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}/x"
        self.thread = threading.Thread(target=self._serve, args=(data,))
        self.thread.start()

    def _serve(self, data):
        client, _ = self.server.accept()
        with client:
            client.recv(4096)
            client.sendall(data)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.thread.join()
        self.server.close()


HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=f\r\n\r\n"


def read_all(url):
    source = MjpegConfig(url).build(STREAM)
    try:
        while True:
            source.read()
    finally:
        source.close()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"HTTP/1.0 404 No\r\nContent-Type: text/html\r\n\r\n", "404"),
        (b"HTTP/1.0 200 OK\r\nContent-Type: image/jpeg\r\n\r\n", "image/jpeg"),
        (b"\x00\xff garbage", "does not answer"),
        (HEAD, "closed"),
        (HEAD + b"--f\r\nContent-Length: 9999999999\r\n\r\n", "closed|Content-Length"),
        (HEAD + b"--f\r\nContent-Length: x\r\n\r\n", "instead of a number"),
        (HEAD + b"--f\r\nContent-Length: 4\r\n\r\nabc", "middle"),
        (HEAD + b"--f\r\nContent-Length: 4\r\n\r\nabcd", "no picture"),
        (HEAD + b"--f\r\nContent-Length: 0\r\n\r\n", "no picture"),
        (HEAD + b"a" * 3000 + b"\r\n", "more than"),
        (HEAD + b"x: y\r\n" * 100, "Content-Length"),
    ],
)
def test_what_is_no_stream_is_a_typed_error(data, told):
    with RawServer(data) as server, pytest.raises(RobotConnectionError, match=told):
        read_all(server.url)


def test_random_bytes_never_break_the_reader():
    rng = np.random.default_rng(0)
    for _ in range(20):
        data = HEAD + b"--f\r\nContent-Length: 50\r\n\r\n" + rng.bytes(int(rng.integers(0, 400)))
        with RawServer(data) as server, pytest.raises((RobotConnectionError, StaleSignalError)):
            read_all(server.url)


def parts(count, seed):
    """Good parts with random damage: bytes changed, cut, doubled, inserted."""
    rng = np.random.default_rng(seed)
    jpeg = cv2.imencode(".jpg", pattern(3))[1].tobytes()
    good = b"--f\r\nContent-Length: %d\r\nX-Timestamp: 12.5\r\n\r\n" % len(jpeg) + jpeg
    for _ in range(count):
        data = bytearray(good)
        for _ in range(int(rng.integers(1, 5))):
            at = int(rng.integers(0, len(data)))
            # Half of the damage goes where the headers are.
            at = at % 80 if rng.random() < 0.5 else at
            kind = int(rng.integers(0, 4))
            if kind == 0:
                data[at : at + 1] = rng.bytes(1)
            elif kind == 1:
                del data[at : at + int(rng.integers(1, 40))]
            elif kind == 2:
                data[at:at] = rng.bytes(int(rng.integers(1, 8)))
            else:
                data += data[at : at + 50]
        yield bytes(data)


def survive(count, seed):
    """How many damaged parts were refused; nothing but the typed error comes out."""
    refused = 0
    for data in parts(count, seed):
        try:
            encoded, _ = read_part(io.BytesIO(data), "X-Timestamp", "top")
            image = decode(encoded, "top")
        except RobotConnectionError:
            refused += 1
        else:
            assert image.ndim == 3
            assert max(image.shape) <= 4096
    return refused


def test_damaged_streams_are_refused_or_decoded():
    assert 50 < survive(500, 0) < 500


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_damaged_parts():
    assert survive(100_000, 1) > 1000


def test_a_picture_that_claims_to_be_huge_takes_no_memory():
    jpeg = bytearray(cv2.imencode(".jpg", pattern(3))[1].tobytes())
    at = jpeg.index(b"\xff\xc0")
    assert jpeg_size(bytes(jpeg)) == (64, 48)
    jpeg[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    with pytest.raises(RobotConnectionError, match="65535"):
        decode(bytes(jpeg), "top")
    assert jpeg_size(b"\x89PNG") is None
    assert jpeg_size(b"\xff\xd8\xff") is None


def test_a_missing_device_and_a_missing_permission_say_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(RobotConnectionError, match="there is no /dev/video97"):
        OpenCVConfig(97).build(STREAM)
    device = tmp_path / "video0"
    device.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(RobotConnectionError, match=r"usermod -aG .*udev"):
        require_device(device, "camera 'top'")


def test_an_absent_sdk_names_its_extra():
    with pytest.raises(MissingDependencyError, match=r"robolearn\[realsense\]"):
        RealSenseConfig().build(STREAM)


def test_a_hanging_device_does_not_hold_up_its_caller():
    hang = threading.Event()

    class Hanging:
        def read(self):
            hang.wait(20)
            raise StaleSignalError("late")

        def close(self):
            pass

    camera = StreamedCamera(dataclasses.replace(STREAM, connect_s=0.2), Hanging)
    start = time.monotonic()
    with pytest.raises(StaleSignalError, match=r"within 0.2 s"):
        camera.connect()
    assert time.monotonic() - start < 5.0
    hang.set()


def test_a_port_in_use_is_named():
    emulated = EmulatedCamera()
    with pytest.raises(RobotConnectionError, match="ss -ltnp"):
        EmulatedCamera(port=emulated.device.port)
    with pytest.raises(DataError, match="Did you mean 'frozen'"):
        emulated.device.fault("frozn", 1.0)
    emulated.close()


def test_the_response_of_the_sensor():
    grey = np.full((40, 50, 3), 100, np.uint8)
    rng = np.random.default_rng(0)
    noisy = respond(grey, CameraEmulatorConfig(noise=4.0), rng).astype(float)
    assert noisy.std() == pytest.approx(4.0, rel=0.1)
    assert noisy.mean() == pytest.approx(100.0, abs=0.5)
    config = CameraEmulatorConfig(noise=0.0, gain=(1.0, 0.5, 3.0), gamma=2.0)
    wanted = [255 * (100 / 255) ** 2, 255 * (50 / 255) ** 2, 255.0]
    np.testing.assert_allclose(respond(grey, config, rng)[3, 3], wanted, atol=0.51)


def test_stream_configs_are_plain_values():
    assert StreamConfig("wrist", 10, 20).rate_hz == 30.0
