"""Videos that browsers play."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from robolearn.errors import DataError
from sim.video import grid, grid_video, write_mp4


def colour(value: int, size: tuple[int, int] = (64, 48)) -> np.ndarray:
    return np.full((*size, 3), value, dtype=np.uint8)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "a.mp4"
    values = [20, 90, 160, 230]
    assert write_mp4(path, (colour(v) for v in values), 10.0) == 4
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert float(stream.average_rate or 0) == pytest.approx(10.0)
        frames = [f.to_ndarray(format="rgb24") for f in container.decode(stream)]
    assert [f.shape for f in frames] == [(64, 48, 3)] * 4
    assert np.allclose([f.mean() for f in frames], values, atol=4)
    assert [p.name for p in path.parent.iterdir()] == ["a.mp4"]


def test_odd_sizes_lose_a_line(tmp_path: Path) -> None:
    write_mp4(tmp_path / "a.mp4", [colour(9, (33, 65))], 30.0)
    with av.open(str(tmp_path / "a.mp4")) as container:
        assert (container.streams.video[0].height, container.streams.video[0].width) == (32, 64)


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [colour(1), colour(1, (32, 32))],
        [np.zeros((8, 8), np.uint8)],
        [np.zeros((8, 8, 3))],
        [colour(1, (1, 9))],
    ],
)
def test_unusable_frames_leave_no_file(tmp_path: Path, frames: list[np.ndarray]) -> None:
    with pytest.raises(DataError):
        write_mp4(tmp_path / "a.mp4", frames, 10.0)
    assert list(tmp_path.iterdir()) == []


def test_grid_by_hand() -> None:
    picture = grid([colour(v, (2, 2)) for v in (0, 1, 2)], columns=2, gap=1)
    assert picture.shape == (5, 5, 3)
    assert picture[:, :, 0].tolist() == [
        [0, 0, 255, 1, 1],
        [0, 0, 255, 1, 1],
        [255] * 5,
        [2, 2, 255, 255, 255],
        [2, 2, 255, 255, 255],
    ]


def test_grids_of_nothing_or_of_two_sizes() -> None:
    with pytest.raises(DataError, match="at least one"):
        grid([])
    with pytest.raises(DataError, match="one size"):
        grid([colour(1), colour(1, (8, 8))])


def test_a_short_video_shows_its_last_frame() -> None:
    frames = list(grid_video([[colour(1)], [colour(2), colour(3)]], columns=2))
    assert len(frames) == 2
    assert frames[1][0, 0, 0] == 1
    assert frames[1][0, -1, 0] == 3
