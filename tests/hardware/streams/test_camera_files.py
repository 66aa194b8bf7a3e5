"""A camera's own JPEGs reach store and page as they came, or are pictures like all others."""

from __future__ import annotations

import dataclasses
import re
import time

import cv2
import numpy as np
import pytest

from hardware.devices.camera import StreamConfig
from hardware.devices.camera_config import CameraConfig
from hardware.emulators.sensor import Sensor
from hardware.streams.camera_streams import CameraStreams
from hardware.streams.signal_buffer import SignalBuffer
from hardware.teleop.page.pictures import LONGEST, shown_as
from hardware.teleop.session.seen import jpegs_of
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.picture_codec import StoredFrames, open_values
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import RobotConnectionError
from robolearn.spec import EmbodimentSpec
from robolearn.types import Observation, SampleBatch, SentBlock, Tick
from tests.hardware.camera_contract import EmulatedCamera, error_of, pattern
from tests.recording import ACTION_SPEC, HEADER, RUNNING, make_tick
from tests.waiting import pass_time, wait_until

STREAM = StreamConfig("top", 64, 48, 50.0, max_age_s=5.0, clock="monotonic")
NOTHING = np.zeros(0, dtype=np.int64)


@pytest.fixture
def emulated(monkeypatch):
    """A camera, and every file that it has sent."""
    made, sent = EmulatedCamera(), []
    jpeg = Sensor.jpeg

    def kept(sensor, image):
        sent.append(jpeg(sensor, image))
        return sent[-1]

    monkeypatch.setattr(Sensor, "jpeg", kept)
    yield made, sent
    made.close()


def filmed(tmp_path, emulated, **options):
    """As :func:`filmed_by`, by the emulated network camera."""
    driver = {"kind": "mjpeg", "url": emulated[0].url, "timeout_s": 5.0}
    return filmed_by(tmp_path, CameraConfig(driver, STREAM), **options)


def filmed_by(tmp_path, config, *, codec="jpeg", recorded=None, ticks=8):
    """The stored frames of an episode of so many ticks, what was shown last, and the episode."""
    config = dataclasses.replace(config, recorded=recorded)
    spec = EmbodimentSpec("filmed", config.specs, (ACTION_SPEC,), 10.0)
    streams, name = CameraStreams([config]), config.signal_name
    buffers = {name: SignalBuffer(config.spec)}
    store = EpisodeStore.create(tmp_path / "store")
    with EpisodeRecorder(store, spec=spec, kind="rollout", codecs={name: codec}) as recorder:
        streams.restart(buffers)
        recorder.on_start(HEADER)
        for k in range(ticks):
            seen = buffers[name].last.t_ns

            def newer(seen=seen):
                streams.collect(buffers)
                return buffers[name].last.t_ns > seen

            wait_until(newer, what="a picture")
            shown = Observation(10**9 * (k + 1), {name: buffers[name].newest()})
            drained = SampleBatch({name: buffers[name].drain()}, SentBlock(NOTHING, NOTHING, {}))
            plain = make_tick(k)
            recorder.on_tick(Tick(k, shown, plain.command, drained, RUNNING))
        recorder.on_end(RUNNING)
    streams.close()
    files = store.manifest("ep_000000").by_path()
    stored = open_values(store.path / "episodes/ep_000000", f"signals/{name}", files)
    assert check_store(store.path, deep=True).findings == ()
    return stored, shown, store.read("ep_000000")


def test_what_the_camera_sent_is_what_is_stored(tmp_path, emulated):
    stored, shown, episode = filmed(tmp_path, emulated)
    assert isinstance(stored, StoredFrames)
    rows = [stored.encoded_frame(row) for row in range(stored.shape[0])]
    assert len(rows) >= 8
    assert set(rows) <= set(emulated[1])
    assert len(set(rows)) == len(rows)
    assert episode.meta.provenance["recorder"]["frames_as_sent"] == {"top/image": len(rows)}
    # The page gets the same bytes, and a policy what is read from the store later.
    file = jpegs_of(shown)["top"]
    assert file == rows[-1]
    assert shown_as(shown.value("top/image"), file) is file
    np.testing.assert_array_equal(shown.value("top/image"), stored.frame(stored.shape[0] - 1))


@pytest.mark.parametrize("change", [{"codec": "jpeg:90"}, {"codec": "png"}, {"recorded": (48, 36)}])
def test_what_is_asked_for_otherwise_is_made_here(tmp_path, emulated, change):
    stored, shown, episode = filmed(tmp_path, emulated, **change, ticks=3)
    assert isinstance(stored, StoredFrames)
    assert not {stored.encoded_frame(row) for row in range(stored.shape[0])} & set(emulated[1])
    assert "frames_as_sent" not in episode.meta.provenance["recorder"]
    assert bool(jpegs_of(shown)) == ("recorded" not in change)


def test_files_that_readers_may_show_otherwise_are_pictures_like_all_others(
    tmp_path, emulated, monkeypatch
):
    _, sent = emulated

    def remarked(_, image):
        jpeg = cv2.imencode(".jpg", image)[1].tobytes()
        sent.append(jpeg[:2] + b"\xff\xfe\x00\x08remark" + jpeg[2:])
        return sent[-1]

    monkeypatch.setattr(Sensor, "jpeg", remarked)
    stored, shown, episode = filmed(tmp_path, emulated, ticks=3)
    assert not {stored.encoded_frame(row) for row in range(stored.shape[0])} & set(sent)
    assert "frames_as_sent" not in episode.meta.provenance["recorder"]
    assert not jpegs_of(shown)


MJPG, YUYV = (cv2.VideoWriter.fourcc(*name) for name in ("MJPG", "YUYV"))


class UsbCamera:
    """What OpenCV's V4L2 capture is to its callers: pixels, or of a camera that sends MJPG and is
    asked not to convert one row of the bytes that came.
    """

    formats, converts, sent = (MJPG, YUYV), False, list[bytes]()

    def __init__(self, device, backend):
        assert backend == cv2.CAP_V4L2
        self.told, self.count = {cv2.CAP_PROP_FOURCC: YUYV, cv2.CAP_PROP_CONVERT_RGB: 1}, 0

    def set(self, what, value):
        if what == cv2.CAP_PROP_FOURCC and value not in self.formats:
            return False
        if what == cv2.CAP_PROP_CONVERT_RGB and self.converts:
            return False
        self.told[what] = value
        return True

    def get(self, what):
        return float(self.told.get(what, 0.0))

    def isOpened(self):  # noqa: N802  (OpenCV's name)
        return True

    def file(self):
        """Of the picture that is due, as a camera sends it."""
        self.count += 1
        return cv2.imencode(".jpg", pattern(self.count)[..., ::-1])[1].tobytes()

    def read(self):
        pass_time(1.0 / STREAM.rate_hz, "the next picture is exposed")
        data = np.frombuffer(self.file(), np.uint8)
        if self.told[cv2.CAP_PROP_FOURCC] != MJPG or self.told[cv2.CAP_PROP_CONVERT_RGB]:
            return True, cv2.imdecode(data, cv2.IMREAD_COLOR)
        self.sent.append(data.tobytes())
        return True, data[None]

    def release(self):
        pass


def usb(tmp_path, monkeypatch, camera):
    """A camera of that kind as ``video0``."""
    monkeypatch.setattr(camera, "sent", [])
    monkeypatch.setattr(cv2, "VideoCapture", camera)
    (tmp_path / "video0").touch()
    driver = {"kind": "opencv", "device": str(tmp_path / "video0"), "fourcc": "MJPG"}
    return CameraConfig(driver, dataclasses.replace(STREAM, clock="none"))


def by_usb(tmp_path, monkeypatch, camera, **options):
    """Filmed by it, and what it sent."""
    config = usb(tmp_path, monkeypatch, camera)
    return *filmed_by(tmp_path, config, **options), camera.sent


class PaddingUsb(UsbCamera):
    def file(self):
        return super().file() + bytes(700)


@pytest.mark.parametrize("camera", [UsbCamera, PaddingUsb])
def test_a_usb_cameras_own_jpegs_are_kept(tmp_path, monkeypatch, camera):
    stored, shown, episode, sent = by_usb(tmp_path, monkeypatch, camera)
    rows = [stored.encoded_frame(row) for row in range(stored.shape[0])]
    assert len(set(rows)) == len(rows) >= 8
    assert set(rows) <= {file.rstrip(b"\0") for file in sent}
    assert episode.meta.provenance["recorder"]["frames_as_sent"] == {"top/image": len(rows)}
    assert jpegs_of(shown)["top"] == rows[-1]
    np.testing.assert_array_equal(shown.value("top/image"), stored.frame(stored.shape[0] - 1))


class PixelsAlone(UsbCamera):
    formats = (YUYV,)


class AlwaysConverted(UsbCamera):
    converts = True


class WithoutTables(UsbCamera):
    """As many that send MJPG: decoders know the tables (ITU-T T.81, K.3) that it leaves out."""

    def file(self):
        data = super().file()
        while (at := data.find(b"\xff\xc4")) >= 0:
            data = data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]
        return data


@pytest.mark.parametrize("camera", [PixelsAlone, AlwaysConverted, WithoutTables])
def test_usb_pictures_without_a_plain_jpeg_are_like_all_others(tmp_path, monkeypatch, camera):
    stored, shown, episode, sent = by_usb(tmp_path, monkeypatch, camera, ticks=3)
    assert not {stored.encoded_frame(row) for row in range(stored.shape[0])} & set(sent)
    assert "frames_as_sent" not in episode.meta.provenance["recorder"]
    assert not jpegs_of(shown)
    # The column of its number is red: neighbours share their colour in a JPEG.
    column = shown.value("top/image")[24].astype(int)
    assert int((column[:, 0] - column[:, 2]).max()) > 50


class Damaged(UsbCamera):
    def file(self):
        return bytes(range(1, 200)) if self.count > 3 else super().file()


def test_what_a_bad_cable_makes_of_a_picture_is_a_typed_error(tmp_path, monkeypatch):
    camera = usb(tmp_path, monkeypatch, Damaged).build()
    camera.connect()
    error = error_of(camera, RobotConnectionError)
    assert re.search(r"video0' sent 199 bytes .*another cable", str(error))
    camera.close()


def test_a_file_too_long_for_a_tablet_is_compressed_again():
    picture = np.random.default_rng(0).integers(0, 256, (480, 640, 3), dtype=np.uint8)
    done, data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 98])
    assert done
    file = data.tobytes()
    assert len(file) > LONGEST
    assert shown_as(picture, file) != file
    wide = np.zeros((48, 1280, 3), np.uint8)
    file = cv2.imencode(".jpg", wide)[1].tobytes()
    assert shown_as(wide, file) != file


def test_pictures_that_are_under_way_are_waited_for_those_that_cannot_come_are_not(emulated):
    config = CameraConfig({"kind": "mjpeg", "url": emulated[0].url, "timeout_s": 5.0}, STREAM)
    streams, buffers = CameraStreams([config]), {config.signal_name: SignalBuffer(config.spec)}
    streams.restart(buffers)
    now = time.monotonic_ns()
    assert streams.behind(now)
    streams.wait_until_shown(now, timeout_s=10.0)
    assert not streams.behind(now)
    streams.collect(buffers)
    buffers[config.signal_name].newest()
    assert buffers[config.signal_name].drain().t_ns[-1] > now
    # Nobody waits longer than that, and for a camera that failed not at all.
    streams.wait_until_shown(now + 10**12, timeout_s=0.05)
    assert streams.behind(now + 10**12)
    streams.close()
    assert not streams.behind(now + 10**12)
