"""Videos that browsers play."""

from __future__ import annotations

import base64
import contextlib
from pathlib import Path

import av
import numpy as np
import pytest

from robolearn.agents.actions import hold_action
from robolearn.agents.replay import ReplayAgent
from robolearn.cli.main import main
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.runtime import run_episode
from sim.rendering.video import Film, episode_frames, grid, grid_video, side_by_side, write_mp4
from sim.worlds import make_world
from tests.browser import chromium
from tests.episodes import small_episode


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


def test_cameras_of_different_sizes_side_by_side() -> None:
    row = side_by_side([colour(9, (20, 30)), colour(7, (40, 40))], gap=4)
    assert row.shape == (40, 60 + 4 + 40, 3)
    assert (row[:, :60] == 9).all()
    assert (row[:, 60:64] == 255).all()
    assert (row[:, 64:] == 7).all()
    assert side_by_side([colour(9, (20, 30))]).shape == (20, 30, 3)
    assert side_by_side([colour(9, (20, 30))], height=10).shape == (10, 15, 3)
    with pytest.raises(DataError, match="at least one"):
        side_by_side([])


WORLD = "pick_place,camera=agent+wrist,size=48"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[EpisodeStore, list[np.ndarray]]:
    """A short episode of a 3-D scene with two cameras, recorded and filmed at once."""
    store = EpisodeStore.create(tmp_path_factory.mktemp("video") / "store")
    film = Film()
    with contextlib.closing(make_world(WORLD)) as env:
        condition = env.sample_condition(0)
        env.reset(condition, np.random.default_rng(0))
        held = dict(hold_action(env.spec.actions, env.observe()))
        actions = {name: np.repeat(value[None], 8, axis=0) for name, value in held.items()}
        actions["tool/xyz_yaw"][:, 2] -= np.linspace(0, 0.05, 8)
        lossless: dict[str, str] = {"agent/image": "png", "wrist/image": "png"}
        with EpisodeRecorder(store, spec=env.spec, kind="scripted", codecs=lossless) as recorder:
            run_episode(
                env, ReplayAgent(actions, env.spec.actions), None, [recorder, film], condition,
                max_steps=8, task=env.task, env_name=env.spec.name,
            )  # fmt: skip
    return store, film.frames


def test_live_stored_and_repeated_episodes_give_the_same_film(
    recorded: tuple[EpisodeStore, list[np.ndarray]], tmp_path: Path
) -> None:
    store, live = recorded
    assert len(live) == 8
    assert live[0].shape == (48, 98, 3)
    stored = list(episode_frames(store.read(store.ids()[0])))
    assert np.array_equal(stored, live)
    for extra in ([], ["--world", WORLD]):
        out = tmp_path / f"videos{len(extra)}"
        argv = ["video", str(store.path), "--out", str(out), "--height", "96", *extra]
        assert main(argv) == 0
        (path,) = out.iterdir()
        with av.open(str(path)) as container:
            frames = [f.to_ndarray(format="rgb24") for f in container.decode(video=0)]
            assert container.streams.video[0].average_rate == 20
        assert [f.shape for f in frames] == [(96, 194, 3)] * 8
        near = np.abs(frames[-1][::2, :96:2].astype(int) - live[-1][:, :48]).mean()
        assert near < 12


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--cameras", "agnt/image"], "Did you mean 'agent/image'"),
        (["--world", "pick_place"], "pick_place,camera=top"),
        (["--world", WORLD, "--cameras", "top/image"], "no signal 'top/image'"),
        (["--episodes", "0"], "at least 1"),
    ],
)
def test_unusable_requests(
    recorded: tuple[EpisodeStore, list[np.ndarray]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    extra: list[str],
    said: str,
) -> None:
    argv = ["video", str(recorded[0].path), "--out", str(tmp_path / "out"), *extra]
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.rglob("*.mp4"))


def test_an_episode_without_pictures_says_how_to_get_them() -> None:
    episode = small_episode()
    with pytest.raises(DataError, match="camera=agent"):
        list(episode_frames(episode))


def test_a_browser_plays_it(tmp_path: Path) -> None:
    colours = [np.full((64, 96, 3), (250, 20, 20), np.uint8)] * 12
    write_mp4(tmp_path / "a.mp4", colours, 10.0)
    data = base64.b64encode((tmp_path / "a.mp4").read_bytes()).decode()
    with chromium() as tab:
        tab.evaluate(
            "document.body.innerHTML = '<video muted preload=auto></video><canvas></canvas>';"
            f"document.querySelector('video').src = 'data:video/mp4;base64,{data}'"
        )
        tab.wait_for("document.querySelector('video').readyState >= 2", timeout_s=60)
        found = tab.evaluate(
            "(() => { const v = document.querySelector('video'), c = document.querySelector("
            "'canvas').getContext('2d'); c.drawImage(v, 0, 0);"
            "return [v.videoWidth, v.videoHeight, v.duration, v.error,"
            " ...c.getImageData(30, 30, 1, 1).data]; })()"
        )
    assert found[:2] == [96, 64]
    assert found[2] == pytest.approx(1.2, abs=0.11)
    assert found[3] is None
    assert found[4] > 200 > found[5]
