"""A camera's own JPEGs reach store and page as they came, or are pictures like all others."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from hardware.devices.camera import StreamConfig
from hardware.devices.camera_config import CameraConfig
from hardware.emulators.sensor import Sensor
from hardware.streams.camera_streams import CameraStreams
from hardware.streams.signal_buffer import SignalBuffer
from hardware.teleop.page.pictures import LONGEST, shown_as
from hardware.teleop.seen import jpegs_of
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.picture_codec import StoredFrames, open_values
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.spec import EmbodimentSpec
from robolearn.types import Observation, SampleBatch, SentBlock, Tick
from tests.hardware.camera_contract import EmulatedCamera
from tests.recording import ACTION_SPEC, HEADER, RUNNING, make_tick
from tests.waiting import wait_until

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


def filmed(tmp_path, emulated, *, codec="jpeg", recorded=None, ticks=8):
    """The stored frames of an episode of so many ticks, what was shown last, and the episode."""
    made, _ = emulated
    driver = {"kind": "mjpeg", "url": made.url, "timeout_s": 5.0}
    config = CameraConfig(driver, STREAM, recorded=recorded)
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
