"""Import of the Diffusion Policy layout, and the demonstrations that come with the package."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from numcodecs import Blosc

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.cli.main import main
from robolearn.data.importers.columns import Column
from robolearn.data.importers.diffusion_policy import import_diffusion_policy, open_replay
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import DataError
from robolearn.pusht import BLOCK, TOOL, progress, px_from_pose, px_from_table
from tests.episodes import small_episode

ORIGINAL = Path(__file__).resolve().parents[5] / "shared/data/pusht/pusht_cchi_v7_replay.zarr"
ENDS = (7, 12, 30)


def pusht_arrays(rows: int = ENDS[-1]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    state = np.concatenate(
        [rng.uniform(20, 490, (rows, 4)), rng.uniform(0, 2 * np.pi, (rows, 1))], axis=1
    ).astype(np.float32)
    state[ENDS[0] - 1, 2:] = 256, 256, np.pi / 4  # the first episode ends on the goal
    return {
        "state": state,
        "action": rng.integers(0, 512, (rows, 2)).astype(np.float32),
        "keypoint": rng.random((rows, 9, 2), dtype=np.float32),
        "img": rng.integers(0, 256, (rows, 24, 24, 3)).astype(np.float32),
    }


def make_source(
    path: Path,
    arrays: dict[str, np.ndarray],
    ends: Any = ENDS,
    chunk: int = 5,
    compressor: Any = None,
) -> Path:
    """A recording in zarr v2, as Diffusion Policy writes it."""
    root = zarr.open_group(str(path), mode="w", zarr_format=2)
    groups = {"data": arrays, "meta": {"episode_ends": np.asarray(ends)}}
    for name, contents in groups.items():
        group = root.create_group(name)
        for key, values in contents.items():
            chunks = (min(chunk, len(values)), *values.shape[1:])
            array = group.create_array(
                key, shape=values.shape, chunks=chunks, dtype=values.dtype, compressors=compressor
            )
            array[:] = values
    return path


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "store")


def test_pusht_becomes_metres_in_the_table_frame(tmp_path: Path, store: EpisodeStore) -> None:
    arrays = pusht_arrays()
    ids = import_diffusion_policy(make_source(tmp_path / "s.zarr", arrays), store)
    assert ids == ("ep_000000", "ep_000001", "ep_000002")
    assert [i.steps for i in store.list()] == [7, 5, 18]
    episode = store.read("ep_000001")
    rows = slice(7, 12)
    np.testing.assert_array_equal(
        px_from_table(episode.observed(TOOL)).astype(np.float32), arrays["state"][rows, :2]
    )
    np.testing.assert_allclose(
        px_from_pose(episode.observed(BLOCK)), arrays["state"][rows, 2:], atol=1e-9
    )
    np.testing.assert_array_equal(
        px_from_table(episode.action[TOOL]).astype(np.float32), arrays["action"][rows]
    )
    assert episode.meta.embodiment.signal(BLOCK).angular == (2,)
    assert episode.meta.kind == "demonstration"
    assert episode.meta.task == "pusht"
    assert episode.meta.condition.poses[BLOCK] == tuple(episode.observed(BLOCK)[0])
    np.testing.assert_array_equal(episode.tick_t_ns, np.arange(5) * 100_000_000)
    assert "times synthesised from 10 Hz" in episode.meta.provenance["times"]
    assert episode.meta.provenance["left_out"] == ["img", "keypoint"]


def test_rewards_are_those_of_the_following_state(tmp_path: Path, store: EpisodeStore) -> None:
    import_diffusion_policy(make_source(tmp_path / "s.zarr", pusht_arrays()), store)
    solved, other = store.read("ep_000000"), store.read("ep_000001")
    poses = solved.observed(BLOCK)
    expected = [progress(p) for p in [*poses[1:], poses[-1]]]
    np.testing.assert_allclose(solved.progress, expected, atol=1e-12)
    np.testing.assert_array_equal(solved.reward, solved.progress)
    assert solved.success
    assert solved.score == 1.0
    assert solved.terminal.tolist() == [False] * 6 + [True]
    assert not solved.truncated.any()
    assert not other.success
    assert other.truncated.tolist() == [False] * 4 + [True]
    assert not other.terminal.any()


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("compressor", [None, Blosc(cname="zstd")])
def test_pictures_are_kept_exactly(
    tmp_path: Path, store: EpisodeStore, dtype: str, compressor: Any
) -> None:
    arrays = pusht_arrays()
    arrays["img"] = arrays["img"].astype(dtype)
    source = make_source(tmp_path / "s.zarr", arrays, compressor=compressor)
    import_diffusion_policy(source, store, images=True)
    read = np.concatenate([store.read(i).observed("top/image") for i in store.ids()])
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, arrays["img"])
    assert store.meta("ep_000000").provenance["left_out"] == ["keypoint"]


def test_importing_again_adds_what_is_new(tmp_path: Path, store: EpisodeStore) -> None:
    source = make_source(tmp_path / "s.zarr", pusht_arrays())
    assert import_diffusion_policy(source, store, limit=1) == ("ep_000000",)
    seen: list[tuple[int, int]] = []
    ids = import_diffusion_policy(
        source, store, on_episode=lambda done, of: seen.append((done, of))
    )
    assert ids == ("ep_000001", "ep_000002")
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert import_diffusion_policy(source, store) == ()
    other = pusht_arrays()
    other["action"][-1] += 1.0
    changed = make_source(tmp_path / "t.zarr", other)
    assert import_diffusion_policy(changed, store) == ("ep_000003",)
    sources = [store.meta(i).provenance["source_episode"] for i in store.ids()]
    assert sources == [0, 1, 2, 2]
    assert list((tmp_path / "store" / "tmp").iterdir()) == []


KILLED_IMPORT = """
import os, signal, sys
from robolearn.cli.main import main
from robolearn.data.store.writer import StoreWriter
real, count = StoreWriter.commit, 0
def commit(self, prepared):
    global count
    count += 1
    if count == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, prepared)
StoreWriter.commit = commit
main(["data", "import", sys.argv[1], "--out", sys.argv[2]])
"""


def test_an_import_killed_between_two_commits_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = make_source(tmp_path / "s.zarr", pusht_arrays()), tmp_path / "out"
    with EpisodeStore.create(out).writer() as writer:
        writer.append(small_episode(5))
    done = subprocess.run(
        [sys.executable, "-c", KILLED_IMPORT, str(source), str(out)], capture_output=True
    )
    assert done.returncode == -signal.SIGKILL
    assert len(EpisodeStore.open(out).ids()) == 3
    assert main(["data", "import", str(source), "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert "imported 1 episodes" in told
    assert "there before, bit for bit: 2 of 3 episodes" in told
    store = EpisodeStore.open(out)
    sources = [store.meta(i).provenance["source_episode"] for i in store.ids()[1:]]
    assert sources == [0, 1, 2]
    assert check_store(out).findings == ()


@pytest.mark.parametrize("chunk", [1, 4, 30])
def test_columns_are_read_in_blocks_of_whole_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr("robolearn.data.importers.columns.BLOCK_BYTES", 200)
    values = np.arange(90, dtype=np.float64).reshape(30, 3)
    source = make_source(tmp_path / "s.zarr", {"action": values}, chunk=chunk)
    column = Column(zarr.open_group(str(source), mode="r")["data/action"], "action", source)
    column.require_finite()
    for start, end in ((0, 7), (7, 12), (12, 30), (8, 8), (0, 30)):
        np.testing.assert_array_equal(column.read(start, end), values[start:end])
        kept = column._kept
        assert kept is not None
        assert len(kept[1]) <= max(chunk, 8)


def test_other_recordings_keep_their_keys(tmp_path: Path, store: EpisodeStore) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "action": rng.random((30, 7)).astype(np.float32),
        "robot_qpos": rng.random((30, 6)),
        "camera": rng.integers(0, 255, (30, 8, 8, 3), dtype=np.uint8),
    }
    source = make_source(tmp_path / "s.zarr", arrays)
    import_diffusion_policy(source, store, images=True, rate_hz=20.0)
    episode = store.read("ep_000002")
    assert set(episode.streams) == {"obs/robot_qpos", "obs/camera"}
    np.testing.assert_array_equal(episode.observed("obs/robot_qpos"), arrays["robot_qpos"][12:])
    np.testing.assert_array_equal(episode.observed("obs/camera"), arrays["camera"][12:])
    np.testing.assert_array_equal(episode.action["obs/action"], arrays["action"][12:])
    assert episode.meta.embodiment.rate_hz == 20.0
    assert episode.truncated[-1]


def drop(key: str) -> Callable[[dict[str, np.ndarray]], None]:
    def change(arrays: dict[str, np.ndarray]) -> None:
        del arrays[key]

    return change


def shorten(arrays: dict[str, np.ndarray]) -> None:
    arrays["state"] = arrays["state"][:-1]


def poison(arrays: dict[str, np.ndarray]) -> None:
    arrays["action"][20, 1] = np.nan


def fractions(arrays: dict[str, np.ndarray]) -> None:
    arrays["img"] /= 255


@pytest.mark.parametrize(
    ("change", "ends", "message"),
    [
        (drop("action"), ENDS, "expected data/action"),
        (shorten, ENDS, "data/state has 29 rows"),
        (poison, ENDS, "data/action has NaN or infinity at row 20"),
        (fractions, ENDS, r"whole numbers 0\.\.255"),
        (None, (7, 5, 30), "must ascend"),
        (None, (7, 7, 30), "must ascend"),
        (None, (0, 30), "must ascend"),
        (None, (7, 12, 40), "rows, meta/episode_ends says 40"),
        (None, (7.0, 30.0), "must be integers"),
    ],
)
def test_a_bad_source_leaves_nothing(
    tmp_path: Path,
    store: EpisodeStore,
    change: Callable[[dict[str, np.ndarray]], None] | None,
    ends: tuple[float, ...],
    message: str,
) -> None:
    arrays = pusht_arrays()
    if change is not None:
        change(arrays)
    source = make_source(tmp_path / "s.zarr", arrays, ends)
    with pytest.raises(DataError, match=message):
        import_diffusion_policy(source, store, images=True)
    assert store.ids() == ()
    assert check_store(store.path).findings == ()


def test_a_missing_chunk_is_not_read_as_zeros(tmp_path: Path, store: EpisodeStore) -> None:
    source = make_source(tmp_path / "s.zarr", pusht_arrays())
    (source / "data/state/3.0").unlink()
    with pytest.raises(DataError, match=r"data/state lacks 1 of 6\s+chunks"):
        import_diffusion_policy(source, store)
    assert store.ids() == ()


def test_a_corrupt_picture_chunk_leaves_nothing(tmp_path: Path, store: EpisodeStore) -> None:
    source = make_source(tmp_path / "s.zarr", pusht_arrays(), compressor=Blosc(cname="zstd"))
    (source / "data/img/5.0.0.0").write_bytes(b"garbage, garbage, garbage")
    with pytest.raises(DataError, match="cannot be decoded"):
        import_diffusion_policy(source, store, images=True)
    assert store.ids() == ()
    assert check_store(store.path).findings == ()


def test_what_is_no_recording_says_so(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_replay(tmp_path / "absent")
    with pytest.raises(DataError, match="not a zarr folder"):
        open_replay(tmp_path)
    zarr.open_group(str(tmp_path / "other.zarr"), mode="w", zarr_format=2).create_group("x")
    with pytest.raises(DataError, match="expected 'data/'"):
        open_replay(tmp_path)
    with pytest.raises(DataError, match="10 Hz"):
        open_replay(make_source(tmp_path / "p" / "s.zarr", pusht_arrays()), rate_hz=20.0)


def test_the_bundled_demonstrations() -> None:
    path = pusht_demonstrations_path()
    source = open_replay(path)
    assert len(source.ends) == 206
    assert int(source.ends[-1]) == 25_650
    size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
    assert size < 1_000_000
    assert "MIT" in (path.parent / "LICENSE").read_text()
    assert "Diffusion Policy" in (path.parent / "SOURCE.md").read_text()


def test_the_bundled_demonstrations_import(store: EpisodeStore) -> None:
    import_diffusion_policy(pusht_demonstrations_path(), store, limit=3)
    infos = store.list()
    assert [i.steps for i in infos] == [161, 118, 141]
    assert all(0.8 < i.score < 1.0 for i in infos)


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original recording is not at hand")
def test_the_bundled_demonstrations_are_the_original_bit_for_bit() -> None:
    ours, original = open_replay(pusht_demonstrations_path()), open_replay(ORIGINAL)
    np.testing.assert_array_equal(ours.ends, original.ends)
    for key in ("state", "action"):
        assert ours.low_dim[key].array.dtype == original.low_dim[key].array.dtype
        one, other = (r.low_dim[key].array[:] for r in (ours, original))
        np.testing.assert_array_equal(one, other)


@pytest.mark.skipif(not ORIGINAL.exists(), reason="the original recording is not at hand")
def test_pictures_of_the_original(store: EpisodeStore) -> None:
    import_diffusion_policy(ORIGINAL, store, images=True, limit=1)
    episode = store.read("ep_000000")
    original: Any = zarr.open_group(str(ORIGINAL), mode="r")["data/img"]
    np.testing.assert_array_equal(episode.observed("top/image"), original[: episode.steps])
