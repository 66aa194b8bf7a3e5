"""The emulated depth sensor: noise, steps, shadows and holes as of a stereo camera; its stream."""

import dataclasses
import math
import sys
import time
import types

import cv2
import numpy as np
import pytest

from hardware.devices.camera import StreamConfig, StreamedCamera
from hardware.devices.camera_config import CameraConfig
from hardware.drivers.cameras.mjpeg import decode_depth, png_size
from hardware.drivers.cameras.opencv import OpenCVConfig
from hardware.drivers.cameras.realsense import RealSenseConfig
from hardware.emulators.depth import DepthSensorConfig, measured
from hardware.emulators.sensor import Exposure, png
from hardware.streams.camera_streams import CameraStreams
from hardware.streams.signal_buffer import SignalBuffer
from robolearn.errors import CameraError, ConfigError, RobotConnectionError, SpecMismatchError
from tests.hardware.camera_contract import STREAM, EmulatedCamera, error_of, with_clock
from tests.waiting import wait_until

FOCAL = 600.0
# Tells depth as it is.
EXACT = DepthSensorConfig(noise_px=0.0, step_px=0.0, nearest_m=0.0, holes=0.0)


def rng():
    return np.random.default_rng(4)


def wall(metres, size=(240, 320)):
    return np.full(size, metres, dtype=np.float32)


@pytest.mark.parametrize("metres", [0.5, 1.0, 2.0])
def test_noise_grows_with_the_square_of_the_distance(metres):
    config = dataclasses.replace(EXACT, noise_px=0.08, step_px=1 / 32)
    found = measured(wall(metres), FOCAL, config, rng())
    assert found.dtype == np.uint16
    seen = found[found > 0].astype(float)
    # With what rounding to a millimetre adds.
    wanted_mm = math.hypot(1e3 * metres**2 * 0.08 / (FOCAL * 0.05), 1 / math.sqrt(12))
    assert seen.std() == pytest.approx(wanted_mm, rel=0.15)
    assert abs(seen.mean() - 1e3 * metres) < 0.2 * wanted_mm
    # Neighbours are matched by the same pixels: noise has patches.
    rows = found[:, 100:].astype(float) - 1e3 * metres
    assert np.corrcoef(rows[:, :-1].ravel(), rows[:, 1:].ravel())[0, 1] > 0.6


def test_a_thing_in_front_throws_a_shadow_to_its_left():
    metres = wall(1.0)
    metres[80:160, 150:200] = 0.5
    found = measured(metres, FOCAL, EXACT, rng())
    # Its edge moves by focal * baseline * (1 / near - 1 / far) columns.
    shadow = round(FOCAL * EXACT.baseline_m * (1 / 0.5 - 1 / 1.0))
    row = found[120]
    assert (row[150:200] == 500).all()
    assert (row[200:] == 1000).all()
    assert abs(int((row[100:150] == 0).sum()) - shadow) <= 1
    assert (row[100 : 150 - shadow - 1] == 1000).all()
    assert (found[40, 100:] == 1000).all()


def test_nothing_is_measured_too_near_too_far_where_nothing_is_and_at_random():
    config = dataclasses.replace(EXACT, nearest_m=0.3, farthest_m=6.0)
    for metres in (0.2, 7.0, np.inf):
        assert not measured(wall(metres), FOCAL, config, rng()).any()
    holes = dataclasses.replace(EXACT, holes=0.1)
    found = measured(wall(1.0), FOCAL, holes, rng())[:, 60:]
    assert (found == 0).mean() == pytest.approx(0.1, abs=0.01)
    slanted = np.tile(np.linspace(0.6, 1.4, 320, dtype=np.float32), (240, 1))
    assert (measured(slanted, FOCAL, EXACT, rng())[:, 60:] > 0).all()


def test_wrong_sensors_are_refused():
    for changes in ({"baseline_m": 0.0}, {"noise_px": -1.0}, {"farthest_m": 0.1}, {"holes": 2.0}):
        with pytest.raises(ConfigError, match="a depth sensor"):
            DepthSensorConfig(**changes)


class DepthCamera(EmulatedCamera):
    """Every picture's depth is its number beyond 700 mm."""

    def __init__(self):
        super().__init__(depth=EXACT)

    def _draw(self):
        seen = super()._draw()
        metres = np.full((48, 64), 0.7 + 1e-3 * self.count, dtype=np.float32)
        return Exposure(seen.t_ns, seen.picture, metres, 20.0)


@pytest.fixture(scope="module")
def emulated():
    made = DepthCamera()
    yield made
    made.close()


DEEP = dataclasses.replace(with_clock(STREAM, "monotonic"), depth=True)


def config_of(url, stream=DEEP, **changes):
    return CameraConfig({"kind": "mjpeg", "url": url, "timeout_s": 2.0}, stream, **changes)


def test_depth_comes_with_its_picture_and_without_loss(emulated):
    config = config_of(emulated.url)
    made = config.build()
    made.connect()
    seen = made.wait(made.latest().index + 2, 5.0)
    made.close()
    assert seen.depth.shape == (48, 64)
    assert not seen.depth.flags.writeable
    # The bright column of the picture counts, and so does the depth.
    column = int(seen.image[..., 0].mean(axis=0).argmax())
    right = seen.depth[:, 40:]
    assert (right == right[0, 0]).all()
    assert abs((int(right[0, 0]) - 700) % 64 - column) <= 1


def test_who_does_not_ask_gets_pictures_alone(emulated):
    made = config_of(emulated.url, with_clock(STREAM, "monotonic")).build()
    made.connect()
    assert made.wait(made.latest().index + 2, 5.0).depth is None
    made.close()


def test_a_camera_without_depth_says_so():
    plain = EmulatedCamera()
    made = config_of(plain.url).build()
    with pytest.raises(RobotConnectionError, match=r"PNG of 16 bits.*leave 'depth' out"):
        made.connect()
    plain.close()
    with pytest.raises(ConfigError, match="reads colours alone"):
        OpenCVConfig("http://127.0.0.1:1/x").build(DEEP)


def test_a_blind_sensor_is_a_typed_error_and_the_picture_goes_on(emulated):
    made = config_of(emulated.url).build()
    made.connect()
    emulated.device.fault("blind", 5.0)
    assert "no depth anywhere" in str(error_of(made, CameraError))
    emulated.device.fault("blind", 0.0)
    wait_until(lambda: bool(made.since(-1)[-1].depth.any()))
    assert made.wait(-1, 5.0).depth.any()
    made.close()


def test_signals_of_a_depth_camera_and_their_size(emulated):
    config = config_of(emulated.url, recorded=(32, 24))
    picture, depth = config.specs
    assert (depth.name, depth.shape, depth.dtype, depth.unit) == (
        "top/depth",
        (24, 32),
        "uint16",
        "mm",
    )
    assert depth.is_image
    assert depth.is_depth
    assert not picture.is_depth
    assert dataclasses.replace(config, signal=False).specs == ()
    streams = CameraStreams([config])
    buffers = {s.name: SignalBuffer(s) for s in streams.signals}
    streams.restart(buffers)
    streams.wait_after("top", time.monotonic_ns())
    streams.collect(buffers)
    shown = {name: buffer.newest() for name, buffer in buffers.items()}
    streams.close()
    assert shown["top/depth"].t_ns == shown["top/image"].t_ns
    assert shown["top/depth"].value.dtype == np.uint16
    # The nearest pixel, never a mean of two.
    edge = np.full((48, 64), 500, np.uint16)
    edge[:, 31:] = 1500
    assert set(np.unique(config.measured(edge))) == {500, 1500}


def test_damaged_depth_is_refused_before_memory_is_taken():
    good = png(np.full((48, 64), 900, np.uint16), "top")
    assert png_size(good) == (64, 48)
    assert (decode_depth(good, "top") == 900).all()
    huge = good[:16] + b"\xff" * 8 + good[24:]
    small = cv2.imencode(".png", np.zeros((8, 8), np.uint8))[1].tobytes()
    for data in (huge, good[:30], b"", b"\xff\xd8\xff", small):
        with pytest.raises(RobotConnectionError, match=r"depth"):
            decode_depth(data, "top")


class _Sdk(types.ModuleType):
    """Stands in for ``pyrealsense2``: what of it the driver calls."""

    def __init__(self, depth_steps=2000, scale=0.0005):
        super().__init__("pyrealsense2")
        self.stream = types.SimpleNamespace(color="color", depth="depth")
        self.format = types.SimpleNamespace(rgb8="rgb8", z16="z16")
        self.enabled = []
        self.aligned_to = []
        colour = np.full((48, 64, 3), 90, np.uint8)
        depth = np.full((48, 64), depth_steps, np.uint16)
        depth[0, 0] = 0

        def frame(data):
            return types.SimpleNamespace(get_data=lambda: data, get_timestamp=lambda: 1e3 * now())

        now = time.monotonic
        frames = types.SimpleNamespace(
            get_color_frame=lambda: frame(colour + np.uint8(now() * 100 % 50)),
            get_depth_frame=lambda: frame(depth),
        )
        sensor = types.SimpleNamespace(get_depth_scale=lambda: scale)
        device = types.SimpleNamespace(first_depth_sensor=lambda: sensor)
        profile = types.SimpleNamespace(get_device=lambda: device)
        self.pipeline = lambda: types.SimpleNamespace(
            start=lambda settings: profile, stop=lambda: None, wait_for_frames=lambda ms: frames
        )
        self.config = lambda: types.SimpleNamespace(
            enable_stream=lambda *given: self.enabled.append(given)
        )
        self.align = self._align

    def _align(self, to):
        self.aligned_to.append(to)
        return types.SimpleNamespace(process=lambda frames: frames)


def test_a_realsense_gives_depth_in_millimetres_aligned_to_its_colours(monkeypatch):
    sdk = _Sdk()
    monkeypatch.setitem(sys.modules, "pyrealsense2", sdk)
    stream = StreamConfig("top", 64, 48, rate_hz=30.0, clock="monotonic", depth=True)
    source = RealSenseConfig().build(stream)
    seen = source.read()
    source.close()
    assert sdk.enabled == [
        ("color", 64, 48, "rgb8", 30),
        ("depth", 64, 48, "z16", 30),
    ]
    assert sdk.aligned_to == ["color"]
    assert seen.depth.dtype == np.uint16
    assert seen.depth[0, 0] == 0
    assert (seen.depth[1:] == 1000).all()
    plain = RealSenseConfig().build(dataclasses.replace(stream, depth=False))
    assert plain.read().depth is None
    assert len(sdk.enabled) == 3


def test_depth_of_another_size_is_named():
    class Small:
        def read(self):
            from hardware.devices.camera import RawFrame

            image = np.full((48, 64, 3), 90, np.uint8)
            return RawFrame(image, time.monotonic(), np.ones((24, 32), np.uint16))

        def close(self):
            pass

    made = StreamedCamera(DEEP, Small)
    with pytest.raises(SpecMismatchError, match=r"depth of 64 x 48 px.*got 32 x 24 px"):
        made.connect()
