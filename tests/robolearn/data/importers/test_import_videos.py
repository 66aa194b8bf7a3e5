"""Diffusion Policy recordings of real robots: a zarr v2 buffer with videos beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from robolearn.data.importers.recording import ImportOptions, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import DataError

av: Any = pytest.importorskip("av")

ENDS = (4, 9)
FPS = 30
START_S = 1.7e9


def write_video(path: Path, frames: int) -> None:
    """Frame ``k`` is grey of brightness ``10 k``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=FPS)
        stream.height, stream.width, stream.pix_fmt = 32, 48, "yuv420p"
        for k in range(frames):
            grey = np.full((32, 48, 3), 10 * k, dtype=np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = tmp_path / "real"
    buffer = zarr.open_group(str(root / "replay_buffer.zarr"), mode="w", zarr_format=2)
    arrays = {
        "timestamp": START_S + 0.1 * np.arange(ENDS[-1]),
        "action": np.random.default_rng(0).random((ENDS[-1], 6)),
        "robot_joint": np.random.default_rng(1).random((ENDS[-1], 6)),
    }
    data, meta = buffer.create_group("data"), buffer.create_group("meta")
    for name, values in arrays.items():
        data.create_array(name, data=values)
    meta.create_array("episode_ends", data=np.array(ENDS))
    write_video(root / "videos/0/0.mp4", 13)
    write_video(root / "videos/0/1.mp4", 13)
    write_video(root / "videos/1/0.mp4", 16)
    return root


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "store")


def run(source: Path, store: EpisodeStore, *, images: bool = True) -> tuple[str, ...]:
    name, importer = find_importer(source)
    assert name == "diffusion-policy"
    recording = importer.open(source, ImportOptions(images=images))
    write_recording(recording, store, ImportOptions())
    return recording.left_out


def test_videos_keep_their_own_rate(source: Path, store: EpisodeStore) -> None:
    left_out = run(source, store)
    assert left_out == ("video 1 of episodes 1: no such file",)
    episode = store.read("ep_000000")
    assert set(episode.streams) == {"obs/robot_joint", "0/image", "1/image"}
    assert episode.tick_t_ns.tolist() == pytest.approx([0, 1e8, 2e8, 3e8], abs=300)
    assert episode.meta.start_wall_ns == pytest.approx(START_S * 1e9, abs=1000)
    camera = episode.streams["0/image"]
    assert len(camera.t_ns) == 13
    np.testing.assert_allclose(camera.t_ns, np.arange(13) * 1e9 / FPS, atol=1e6)
    # The tick at 0.2 s shows the newest frame at or before it.
    assert (episode.observed_t_ns("0/image") <= episode.tick_t_ns).all()
    assert (np.diff(episode.view["0/image"]) >= 2).all()
    np.testing.assert_allclose(camera.value.mean(axis=(1, 2, 3)), 10 * np.arange(13), atol=4)
    assert "1/image" not in store.read("ep_000001").streams


def test_without_pictures(source: Path, store: EpisodeStore) -> None:
    left_out = run(source, store, images=False)
    assert left_out == ("video 0 (give --images)", "video 1 (give --images)")
    assert set(store.read("ep_000001").streams) == {"obs/robot_joint"}


def backwards(root: Path) -> None:
    times: Any = zarr.open_group(str(root / "replay_buffer.zarr"), mode="r+")["data/timestamp"]
    times[2] = START_S


def cut(root: Path) -> None:
    file = root / "videos/1/0.mp4"
    file.write_bytes(file.read_bytes()[:400])


@pytest.mark.parametrize(
    ("spoil", "message"), [(backwards, "time goes backwards"), (cut, "cannot be read as a video")]
)
def test_bad_recordings_leave_nothing(
    source: Path, store: EpisodeStore, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(source)
    with pytest.raises(DataError, match=message):
        run(source, store)
    assert store.ids() == ()
    assert check_store(store.path).findings == ()
