"""LeRobot v2.1 and v3.0 datasets, written by the test, and a real one where it is at hand."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from robolearn.data.importers.recording import ImportOptions, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.store.picture_codec import parse_codec
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import DataError

# A pyarrow that does not fit the installed numpy fails with a plain ImportError.
pa: Any = pytest.importorskip("pyarrow", exc_type=ImportError)
pq: Any = pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
av: Any = pytest.importorskip("av")

G1 = Path(__file__).resolve().parents[5] / "shared/data/g1"
LENGTHS = (5, 8, 3)
FPS = 10
CAMERA = "observation.images.top"
FEATURES = {
    "observation.state": {"dtype": "float32", "shape": [3], "names": [["x", "y", "z"]]},
    "action": {"dtype": "float32", "shape": [2], "names": {"motors": ["x", "y"]}},
    CAMERA: {"dtype": "video", "shape": [32, 48, 3], "names": ["height", "width", "channels"]},
    "next.reward": {"dtype": "float32", "shape": [1], "names": None},
    "next.done": {"dtype": "bool", "shape": [1], "names": None},
    "timestamp": {"dtype": "float32", "shape": [1], "names": None},
    "frame_index": {"dtype": "int64", "shape": [1], "names": None},
    "episode_index": {"dtype": "int64", "shape": [1], "names": None},
    "note": {"dtype": "string", "shape": [1], "names": None},
}


def write_video(path: Path, frames: int, brightness: Callable[[int], int]) -> None:
    """Grey pictures, one brightness per frame (which survives the codec)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=FPS)
        stream.height, stream.width, stream.pix_fmt = 32, 48, "yuv420p"
        for k in range(frames):
            grey = np.full((32, 48, 3), brightness(k), dtype=np.uint8)
            for packet in stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")):
                out.mux(packet)
        for packet in stream.encode():
            out.mux(packet)


def episode_columns(index: int, length: int) -> dict[str, Any]:
    rng = np.random.default_rng(index)
    reward = np.zeros(length, dtype=np.float32)
    reward[-1] = 1
    return {
        "observation.state": list(rng.random((length, 3), dtype=np.float32)),
        "action": list(rng.random((length, 2), dtype=np.float32)),
        "next.reward": reward,
        "next.done": np.arange(length) == length - 1,
        "timestamp": (np.arange(length) / FPS).astype(np.float32),
        "frame_index": np.arange(length),
        "episode_index": np.full(length, index),
        "note": ["x"] * length,
    }


def write_info(root: Path, version: str, data: str, video: str) -> None:
    (root / "meta").mkdir(parents=True)
    info = {
        "codebase_version": version,
        "robot_type": "arm",
        "fps": FPS,
        "total_episodes": len(LENGTHS),
        "chunks_size": 1000,
        "data_path": data,
        "video_path": video,
        "features": FEATURES,
    }
    (root / "meta/info.json").write_text(json.dumps(info))


@pytest.fixture
def v21(tmp_path: Path) -> Path:
    root = tmp_path / "v21"
    write_info(
        root,
        "v2.1",
        "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet",
        "videos/chunk-{episode_chunk:03d}/{video_key}/episode_{episode_index:06d}.mp4",
    )
    lines = [
        json.dumps({"episode_index": k, "tasks": ["push"], "length": n})
        for k, n in enumerate(LENGTHS)
    ]
    (root / "meta/episodes.jsonl").write_text("\n".join(lines) + "\n")
    (root / "data/chunk-000").mkdir(parents=True)
    for k, n in enumerate(LENGTHS):
        table = pa.table(episode_columns(k, n))
        pq.write_table(table, root / f"data/chunk-000/episode_{k:06d}.parquet")
        if k != 1:
            video = root / f"videos/chunk-000/{CAMERA}/episode_{k:06d}.mp4"
            write_video(video, n, lambda j: 20 * j)
    return root


@pytest.fixture
def v30(tmp_path: Path) -> Path:
    root = tmp_path / "v30"
    write_info(
        root,
        "v3.0",
        "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
    )
    (root / "data/chunk-000").mkdir(parents=True)
    (root / "meta/episodes/chunk-000").mkdir(parents=True)
    tables = [pa.table(episode_columns(k, n)) for k, n in enumerate(LENGTHS)]
    pq.write_table(pa.concat_tables(tables), root / "data/chunk-000/file-000.parquet")
    starts = np.cumsum([0, *LENGTHS])
    rows = [
        {
            "episode_index": k,
            "tasks": ["push"],
            "length": n,
            "data/chunk_index": 0,
            "data/file_index": 0,
            f"videos/{CAMERA}/chunk_index": 0,
            f"videos/{CAMERA}/file_index": 0,
            f"videos/{CAMERA}/from_timestamp": float(starts[k]) / FPS,
            f"videos/{CAMERA}/to_timestamp": float(starts[k + 1]) / FPS,
            "stats/action/mean": [0.0, 0.0],
        }
        for k, n in enumerate(LENGTHS)
    ]
    pq.write_table(pa.Table.from_pylist(rows), root / "meta/episodes/chunk-000/file-000.parquet")
    video = root / f"videos/{CAMERA}/chunk-000/file-000.mp4"
    write_video(video, int(starts[-1]), lambda j: 15 * j)
    return root


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "store")


def run(path: Path, store: EpisodeStore, **options: Any) -> tuple[str, tuple[str, ...]]:
    name, importer = find_importer(path)
    recording = importer.open(path, ImportOptions(**options))
    write_recording(recording, store, ImportOptions(**options))
    return name, recording.left_out


def test_v21_columns_become_signals(v21: Path, store: EpisodeStore) -> None:
    name, left_out = run(v21, store)
    assert name == "lerobot-v2.1"
    assert [i.steps for i in store.list()] == list(LENGTHS)
    episode = store.read("ep_000001")
    columns = episode_columns(1, 8)
    np.testing.assert_array_equal(
        episode.observed("obs/state"), np.stack(columns["observation.state"])
    )
    np.testing.assert_array_equal(episode.action["obs/action"], np.stack(columns["action"]))
    assert episode.reward.tolist() == [0.0] * 7 + [1.0]
    assert episode.meta.outcome.terminal
    assert episode.meta.task_text == "push"
    assert episode.meta.embodiment.name == "arm"
    assert episode.meta.embodiment.rate_hz == FPS
    assert episode.meta.embodiment.signal("obs/state").components == ("x", "y", "z")
    assert episode.meta.provenance["times"].startswith("synthetic")
    assert episode.meta.provenance["missing_videos"] == [CAMERA]
    assert episode.meta.provenance["texts"] == {"note": [[0, "x"]]}
    assert left_out == (
        f"{CAMERA} (pictures: give --images)",
        f"{CAMERA} of episodes 1: no video file (1 of 3 missing)",
    )


def test_v21_pictures_where_there_are_any(v21: Path, store: EpisodeStore) -> None:
    run(v21, store, images=True)
    frames = store.read("ep_000000").observed("top/image")
    assert frames.shape == (5, 32, 48, 3)
    np.testing.assert_allclose(frames.mean(axis=(1, 2, 3)), 20 * np.arange(5), atol=4)
    without = store.read("ep_000001")
    assert "top/image" not in without.streams
    assert without.meta.embodiment == store.meta("ep_000000").embodiment
    assert check_store(store.path).findings == ()


def test_v30_rows_and_frames_of_shared_files(v30: Path, store: EpisodeStore) -> None:
    name, left_out = run(v30, store, images=True)
    assert name == "lerobot-v3.0"
    assert left_out == ()
    for k, start in enumerate((0, 5, 13)):
        episode = store.read(f"ep_{k:06d}")
        np.testing.assert_array_equal(
            episode.action["obs/action"], np.stack(episode_columns(k, LENGTHS[k])["action"])
        )
        grey = episode.observed("top/image").mean(axis=(1, 2, 3))
        np.testing.assert_allclose(grey, 15 * np.arange(start, start + LENGTHS[k]), atol=4)


def test_v30_without_its_video_says_so(v30: Path, store: EpisodeStore) -> None:
    (v30 / f"videos/{CAMERA}/chunk-000/file-000.mp4").unlink()
    _, left_out = run(v30, store, images=True)
    assert left_out[-1] == f"{CAMERA} of episodes 0-2: no video file (3 of 3 missing)"


def put_pictures(root: Path, version: str, pictures: dict[int, list[Any]]) -> None:
    """Replace the camera's videos by pictures in the rows, as LeRobot writes them."""
    info = json.loads((root / "meta/info.json").read_text())
    info["features"][CAMERA] |= {"dtype": "image"}
    info["features"]["observation.images.depth"] = {"dtype": "image", "shape": [32, 48, 1]}
    (root / "meta/info.json").write_text(json.dumps(info))
    shutil.rmtree(root / "videos")
    tables: list[Any] = []
    for k, n in enumerate(LENGTHS):
        columns = episode_columns(k, n)
        columns["note"] = ["reach"] * 2 + ["push"] * (n - 2)
        columns[CAMERA] = pictures[k]
        tables.append(pa.table(columns))
        if version == "v2.1":
            pq.write_table(tables[-1], root / f"data/chunk-000/episode_{k:06d}.parquet")
    if version == "v3.0":
        pq.write_table(pa.concat_tables(tables), root / "data/chunk-000/file-000.parquet")


def png(picture: np.ndarray) -> dict[str, Any]:
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "png")
    return {"bytes": file.getvalue(), "path": "frame.png"}


def pictures_of(k: int) -> np.ndarray:
    return np.random.default_rng(k).integers(0, 255, (LENGTHS[k], 32, 48, 3), dtype=np.uint8)


@pytest.mark.parametrize("version", ["v2.1", "v3.0"])
def test_pictures_in_the_rows_come_bit_for_bit(
    v21: Path, v30: Path, store: EpisodeStore, version: str
) -> None:
    root = v21 if version == "v2.1" else v30
    put_pictures(root, version, {k: [png(p) for p in pictures_of(k)] for k in range(3)})
    name, left_out = run(root, store, images=True, codec=parse_codec("png"))
    assert name == f"lerobot-{version}"
    assert left_out == ("observation.images.depth (image of shape [32, 48, 1]: no RGB picture)",)
    for k in range(3):
        episode = store.read(f"ep_{k:06d}")
        np.testing.assert_array_equal(episode.observed("top/image"), pictures_of(k))
        np.testing.assert_array_equal(
            episode.action["obs/action"], np.stack(episode_columns(k, LENGTHS[k])["action"])
        )
        assert episode.meta.provenance["texts"] == {"note": [[0, "reach"], [2, "push"]]}
        assert episode.meta.provenance["frame_codecs"] == {"top/image": "png"}
    assert check_store(store.path, deep=True).findings == ()


def test_pictures_named_by_a_path_are_read(v21: Path, store: EpisodeStore) -> None:
    cells = {k: [png(p) for p in pictures_of(k)] for k in range(3)}
    cells[1][3]["path"] = "images/three.png"
    (v21 / "images").mkdir()
    (v21 / "images/three.png").write_bytes(cells[1][3]["bytes"])
    cells[1][3]["bytes"] = None
    put_pictures(v21, "v2.1", cells)
    run(v21, store, images=True)
    np.testing.assert_array_equal(store.read("ep_000001").observed("top/image"), pictures_of(1))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (None, "frame 3: no picture in this row"),
        ({"bytes": None, "path": "images/gone.png"}, "gone.png cannot be read: No such file"),
        ({"bytes": b"GIF89a", "path": None}, "frame 3 cannot be decoded"),
        (
            png(np.zeros((4, 4, 3), dtype=np.uint8)),
            r"expected uint8 \(32, 48, 3\), got uint8 \(4, 4, 3\)",
        ),
    ],
)
def test_a_bad_picture_in_a_row_leaves_nothing(
    v30: Path, store: EpisodeStore, cell: Any, message: str
) -> None:
    cells: dict[int, list[Any]] = {k: [png(p) for p in pictures_of(k)] for k in range(3)}
    cells[1][3] = cell
    put_pictures(v30, "v3.0", cells)
    with pytest.raises(DataError, match=message):
        run(v30, store, images=True)
    assert store.ids() == ()


def test_times_that_were_measured_are_kept(v21: Path, store: EpisodeStore) -> None:
    columns = episode_columns(0, 5)
    columns["timestamp"] = np.array([0, 0.1, 0.23, 0.3, 0.41])
    pq.write_table(pa.table(columns), v21 / "data/chunk-000/episode_000000.parquet")
    run(v21, store)
    episode = store.read("ep_000000")
    np.testing.assert_array_equal(episode.tick_t_ns, np.array([0, 100, 230, 300, 410]) * 1_000_000)
    assert episode.meta.provenance["times"] == "timestamp of the source"


def test_times_in_nanoseconds_are_not_converted_into_nonsense(
    v21: Path, store: EpisodeStore
) -> None:
    columns = episode_columns(0, 5)
    columns["timestamp"] = np.array([0, 0.1, 0.23, 0.3, 0.41]) * 1e9
    pq.write_table(pa.table(columns), v21 / "data/chunk-000/episode_000000.parquet")
    with pytest.raises(DataError, match=r"timestamp: expected times in seconds.*got 4\.1e\+08 s"):
        run(v21, store)


def test_a_rate_beyond_numbers_is_damage(v21: Path, store: EpisodeStore) -> None:
    info = v21 / "meta/info.json"
    info.write_text(info.read_text().replace(f'"fps": {FPS}', '"fps": ' + "1" * 400))
    with pytest.raises(DataError, match=r"info\.json is damaged: OverflowError"):
        run(v21, store)


def change(key: str, value: Any) -> Callable[[Path], None]:
    def apply(root: Path) -> None:
        columns = episode_columns(2, 3)
        if value is None:
            del columns[key]
        else:
            columns[key] = value
        pq.write_table(pa.table(columns), root / "data/chunk-000/episode_000002.parquet")

    return apply


def shorten(root: Path) -> None:
    table = pa.table(episode_columns(2, 2))
    pq.write_table(table, root / "data/chunk-000/episode_000002.parquet")


def truncate(root: Path) -> None:
    file = root / "data/chunk-000/episode_000002.parquet"
    file.write_bytes(file.read_bytes()[:-100])


def remove(root: Path) -> None:
    (root / "data/chunk-000/episode_000002.parquet").unlink()


def cut_video(root: Path) -> None:
    write_video(root / f"videos/chunk-000/{CAMERA}/episode_000002.mp4", 2, lambda _: 0)


def break_video(root: Path) -> None:
    (root / f"videos/chunk-000/{CAMERA}/episode_000002.mp4").write_bytes(b"no video" * 50)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (change("action", [[0.0, np.nan]] * 3), "NaN or infinity"),
        (change("action", [[0.0, None]] * 3), "NaN or infinity"),
        (change("action", [[0.0]] * 3), "expected 2 values"),
        (change("action", [[0.0, 1.0], None, [0.0, 1.0]]), "expected 2 values"),
        (change("action", None), "expected column 'action'"),
        (change("action", ["a", "b", "c"]), "expected 2 values"),
        (change("timestamp", [0.0, 0.2, 0.1]), "goes backwards"),
        (change("frame_index", [0, 2, 1]), "frame_index is 2 in row 1"),
        (change("episode_index", [2, 2, 1]), "episode_index is 1 in row 2"),
        (shorten, "2 rows, the metadata says 3"),
        (truncate, "cannot be read"),
        (remove, "is missing"),
        (cut_video, "expected 3 frames"),
        (break_video, "cannot be read as a video"),
    ],
)
def test_a_bad_dataset_leaves_nothing(
    v21: Path, store: EpisodeStore, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(v21)
    with pytest.raises(DataError, match=message):
        run(v21, store, images=True)
    assert store.ids() == ()
    assert check_store(store.path).findings == ()


def test_a_time_of_the_last_frame_is_no_missing_frame(v30: Path, store: EpisodeStore) -> None:
    """``to_timestamp`` is the time of the frame after the last one, or of the last one itself."""
    file = v30 / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.read_table(file).to_pylist()
    for row in rows:
        row[f"videos/{CAMERA}/to_timestamp"] -= 1 / FPS
    pq.write_table(pa.Table.from_pylist(rows), file)
    run(v30, store, images=True)
    assert [i.steps for i in store.list()] == list(LENGTHS)
    for k, length in enumerate(LENGTHS):
        assert len(store.read(f"ep_{k:06d}").streams["top/image"].value) == length


def test_an_end_that_fits_neither_is_refused(v30: Path, store: EpisodeStore) -> None:
    file = v30 / "meta/episodes/chunk-000/file-000.parquet"
    rows = pq.read_table(file).to_pylist()
    rows[1][f"videos/{CAMERA}/to_timestamp"] -= 3 / FPS
    pq.write_table(pa.Table.from_pylist(rows), file)
    with pytest.raises(DataError, match="expected 8 frames"):
        run(v30, store, images=True)


@pytest.mark.parametrize("version", ["v21", "v30"])
def test_columns_with_other_names_are_renamed(
    version: str, request: pytest.FixtureRequest, store: EpisodeStore, tmp_path: Path
) -> None:
    root: Path = request.getfixturevalue(version)
    run(root, store)
    other = tmp_path / "other"
    shutil.copytree(root, other)
    for file in (other / "data").rglob("*.parquet"):
        table = pq.read_table(file)
        names = ["actions" if n == "action" else n for n in table.column_names]
        pq.write_table(table.rename_columns(names), file)
    info = json.loads((other / "meta/info.json").read_text())
    info["features"]["actions"] = info["features"].pop("action")
    (other / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match=r"Did you mean 'actions'.*--rename"):
        find_importer(other)[1].open(other, ImportOptions())
    for bad in ({"acts": "action"}, {"actions": "observation.state"}):
        with pytest.raises(DataError, match="feature"):
            find_importer(other)[1].open(other, ImportOptions(rename=bad))
    renamed = EpisodeStore.create(tmp_path / "renamed")
    run(other, renamed, rename={"actions": "action"})
    for k in range(len(LENGTHS)):
        ours, theirs = (s.read(f"ep_{k:06d}") for s in (renamed, store))
        assert list(ours.action) == list(theirs.action) == ["obs/action"]
        np.testing.assert_array_equal(ours.action["obs/action"], theirs.action["obs/action"])


def test_single_bad_episodes_are_skipped_and_named(v21: Path, store: EpisodeStore) -> None:
    break_video(v21)
    bad: dict[int, str] = {}
    run(v21, store, images=True, on_bad=bad.__setitem__)
    assert [i.steps for i in store.list()] == [5, 8]
    assert list(bad) == [2]
    assert "cannot be read as a video" in bad[2]
    for k in range(2):
        change("action", None)(v21)
        (v21 / f"data/chunk-000/episode_{k:06d}.parquet").unlink()
    with pytest.raises(DataError, match="none of its 3 episodes"):
        run(v21, store, images=True, on_bad=bad.__setitem__)
    assert check_store(store.path).findings == ()


def test_bad_metadata(v21: Path, v30: Path) -> None:
    (v21 / "meta/episodes.jsonl").write_text('{"episode_index": 0}\n')
    with pytest.raises(DataError, match="damaged"):
        find_importer(v21)[1].open(v21, ImportOptions())
    (v30 / "meta/episodes/chunk-000/file-000.parquet").unlink()
    with pytest.raises(DataError, match="no parquet file"):
        find_importer(v30)[1].open(v30, ImportOptions())
    info = json.loads((v21 / "meta/info.json").read_text())
    del info["fps"]
    (v21 / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(DataError, match="damaged: KeyError 'fps'"):
        find_importer(v21)[1].open(v21, ImportOptions())


@pytest.mark.skipif(not G1.exists(), reason="the G1 recording is not at hand")
def test_the_g1_recording_says_what_is_missing(store: EpisodeStore) -> None:
    name, left_out = run(G1, store, limit=2)
    assert name == "lerobot-v2.1"
    assert [i.steps for i in store.list()] == [479, 393]
    assert any("0-26, 28, 31, 33-99: no video file (96 of 100 missing)" in s for s in left_out)
    episode = store.read("ep_000000")
    assert episode.observed("obs/state").shape == (479, 26)
    assert episode.meta.embodiment.signal("obs/state").components[3] == "kLeftElbow"
    assert episode.meta.provenance["times"].startswith("synthetic")


@pytest.mark.skipif(not G1.exists(), reason="the G1 recording is not at hand")
def test_a_video_of_the_g1_recording() -> None:
    recording = find_importer(G1)[1].open(G1, ImportOptions(images=True))
    made = recording.episode(27)
    assert made.episode.steps == 319
    (stream,) = made.frames
    assert stream.spec.name == "cam_high/image"
    block = next(iter(stream.blocks()))
    assert block.shape == (16, 480, 640, 3)
    assert block.std() > 10
