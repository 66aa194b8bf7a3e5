"""A camera that plays a film: its own pictures in a loop, exposed when they are due."""

import dataclasses
import threading
import time

import numpy as np
import pytest

from hardware.devices.camera import StreamedCamera
from hardware.drivers.cameras.mjpeg import MjpegConfig
from hardware.emulators.depth import DepthSensorConfig
from hardware.emulators.film import Film, Shots
from hardware.emulators.mjpeg import CameraEmulator
from hardware.emulators.sensor import CameraEmulatorConfig, Exposure, Sensor
from robolearn.errors import CameraError, ConfigError, StaleSignalError
from tests.hardware.camera_contract import STREAM, error_of, pattern, with_clock
from tests.waiting import pass_time, wait_until

RATE_HZ, COUNT = 50.0, 5
DEVICE = CameraEmulatorConfig(
    port=0, width=64, height=48, rate_hz=RATE_HZ, latency_s=0.005, latency_jitter_s=0.0, noise=0.0
)


def light(k):
    """Of picture ``k``: as :func:`pattern`, a metre away."""
    metres = np.full((48, 64), 1.0 + 0.1 * k, np.float32)
    return Exposure(0, pattern(10 * k), metres, 60.0)


def film(count=COUNT, device=DEVICE, draw=light):
    return Film.of(Sensor(device, np.random.default_rng(0)), draw, count)


class Playing:
    """A camera on a thread of its own, which :meth:`pause` keeps from the processor."""

    def __init__(self, shown, device=DEVICE):
        def draw():
            return dataclasses.replace(light(0), t_ns=time.monotonic_ns())

        rng = np.random.default_rng(0)
        self.camera = CameraEmulator(device, "127.0.0.1", draw, rng, film=shown)
        self.url = f"http://127.0.0.1:{self.camera.port}/top"
        self._ended, self._free = False, threading.Event()
        self._free.set()
        self._thread = threading.Thread(target=self.camera.run, args=(self._stopped,))

    def _stopped(self):
        self._free.wait()
        return self._ended

    def pause(self, seconds):
        self._free.clear()
        pass_time(seconds, "the camera's processor does other things")
        self._free.set()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._ended = True
        self._thread.join()
        self.camera.close()


def looking(playing, **stream):
    config = dataclasses.replace(with_clock(STREAM, "monotonic"), rate_hz=RATE_HZ, **stream)
    made = StreamedCamera(config, lambda: MjpegConfig(playing.url).build(config))
    made.connect()
    return made


def test_the_pictures_of_a_film_come_in_order_with_times_of_their_own():
    shown = film()
    assert isinstance(shown, Shots)
    shots = [shown.take(20_000_000 * k, depth=False) for k in range(2 * COUNT)]
    assert [s.t_ns for s in shots] == [20_000_000 * k for k in range(2 * COUNT)]
    for k, one in enumerate(shots):
        assert one.picture == shots[k % COUNT].picture
        np.testing.assert_array_equal(one.taken.image, pattern(10 * (k % COUNT)))
    assert len({s.picture for s in shots}) == COUNT


def test_a_film_that_would_look_frozen_is_refused():
    with pytest.raises(ConfigError, match="at least 2 pictures"):
        film(1)
    with pytest.raises(ConfigError, match="pictures 2 and 3 of its film are the same"):
        film(draw=lambda k: light(min(k, 2)))
    # It begins again with the one that it ended with.
    with pytest.raises(ConfigError, match="pictures 4 and 0 of its film are the same"):
        film(draw=lambda k: light(k % 4))
    noisy = dataclasses.replace(DEVICE, noise=2.0)
    assert film(device=noisy, draw=lambda _: light(0)) is not None


def test_no_picture_is_missing_when_the_processor_comes_late():
    """What is drawn then is missing, and counted; a film's exposures have a clock of their own."""
    for shown, whole in ((film(), True), (None, False)):
        with Playing(shown) as playing:
            camera = looking(playing)
            playing.pause(0.3)
            last = camera.latest().index
            frames = wait_until(lambda last=last, c=camera: c.since(last + 10) and c.since(-1))
            counts = dict(playing.camera.counts)
            camera.close()
        gaps = np.diff([f.t_ns for f in frames]) * 1e-9 * RATE_HZ
        if whole:
            np.testing.assert_allclose(gaps, 1.0, atol=1e-3)
            assert counts["skipped"] == counts["lost"] == counts["unread"] == 0
        else:
            assert gaps.max() > 10.0
            assert counts["skipped"] > 10
        assert counts["sent"] <= counts["exposed"]


def test_a_film_is_not_played_faster_than_a_second_is_long():
    with Playing(film()) as playing:
        camera = looking(playing, max_age_s=5.0)
        playing.pause(1.5)
        wait_until(lambda: playing.camera.counts["skipped"] > 0)
        # What is older than a second is gone, in the camera as on the wire.
        assert 15 <= playing.camera.counts["skipped"] <= 50
        camera.close()


@pytest.mark.parametrize(("kind", "error"), [("frozen", StaleSignalError), ("black", CameraError)])
def test_faults_show_through_a_film(kind, error):
    with Playing(film()) as playing:
        camera = looking(playing)
        playing.camera.fault(kind, 10.0)
        assert kind in str(error_of(camera, error))
        camera.close()


def test_depth_is_filmed_too_and_sent_to_those_who_ask():
    device = dataclasses.replace(DEVICE, depth=DepthSensorConfig())
    with Playing(film(device=device), device) as playing:
        deep, flat = looking(playing, depth=True), looking(playing)
        seen = deep.latest()
        assert seen.depth is not None
        assert 900 < float(np.median(seen.depth[seen.depth > 0])) < 1500
        assert flat.latest().depth is None
        deep.close()
        flat.close()


def test_whoever_does_not_read_misses_pictures_and_they_are_counted():
    large = dataclasses.replace(DEVICE, width=1280, height=960, quality=100, noise=20.0)

    def draw(k):
        return Exposure(0, np.full((960, 1280, 3), 60 + k, np.uint8))

    with Playing(film(device=large, draw=draw), large) as playing:
        config = dataclasses.replace(STREAM, width=1280, height=960)
        source = MjpegConfig(playing.url).build(config)
        wait_until(lambda: playing.camera.counts["unread"] > 0, timeout_s=20.0)
        source.close()
