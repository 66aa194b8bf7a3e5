"""The table of formats, folders of CSV files, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import cv2
import numpy as np
import pytest

from robolearn.cli.main import main as robolearn
from robolearn.data.importers.recording import (
    Importer,
    ImportOptions,
    episode_ranges,
    storable,
    write_recording,
)
from robolearn.data.importers.registry import IMPORTERS, find_importer, importer
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import DataError


@pytest.mark.parametrize("name", IMPORTERS)
def test_every_entry_resolves(name: str, tmp_path: Path) -> None:
    found = importer(name)
    assert isinstance(found, Importer)
    assert found.looked_for
    assert not found.recognise(tmp_path)


def test_an_unknown_source_lists_the_formats(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(DataError, match="in no known format") as caught:
            find_importer(path)
        for name in IMPORTERS:
            assert f"{name}: {importer(name).looked_for}" in str(caught.value)
    with pytest.raises(DataError, match=r"Did you mean 'lerobot-v3\.0'"):
        find_importer(tmp_path, "lerobot-v3")
    with pytest.raises(DataError, match="does not exist"):
        find_importer(tmp_path / "absent")


def test_ranges_and_dtypes() -> None:
    assert episode_ranges([0, 1, 2, 5, 7, 8]) == "0-2, 5, 7-8"
    assert episode_ranges([]) == ""
    assert storable("x", np.zeros(2, dtype=np.float16)).dtype == np.float32
    assert storable("x", np.zeros(2, dtype=np.uint32)).dtype == np.int64
    with pytest.raises(DataError, match=r"2\*\*63"):
        storable("x", np.array([2**64 - 1], dtype=np.uint64))
    with pytest.raises(DataError, match="expected numbers"):
        storable("x", np.array(["a"]))


HEADER = "t,state.x,state.y,action.x,action.y,reward,success,camera:top"


def csv_folder(root: Path, second: str | None = None, header: str = HEADER) -> Path:
    (root / "a").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for k in (0, 2):
        picture = rng.integers(0, 255, (40, 44, 3), dtype=np.uint8)
        cv2.imwrite(str(root / f"a/{k}.png"), picture)
    rows = [
        "10.0,0.1,0.2,1.0,2.0,0,0,a/0.png",
        "10.1,0.3,0.4,3.0,4.0,0.5,0,",
        "10.2,0.5,0.6,5.0,6.0,1,1,a/2.png",
    ]
    (root / "run_1.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    if second is not None:
        (root / "run_2.csv").write_text(f"{header}\n{second}\n")
    return root


def run(path: Path, store: EpisodeStore, options: ImportOptions) -> tuple[str, ...]:
    recording = find_importer(path)[1].open(path, options)
    write_recording(recording, store, options)
    return recording.left_out


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "store")


def test_csv_with_pictures(tmp_path: Path, store: EpisodeStore) -> None:
    root = csv_folder(tmp_path / "runs")
    assert find_importer(root)[0] == "csv"
    run(root, store, ImportOptions(images=True))
    episode = store.read("ep_000000")
    assert episode.tick_t_ns.tolist() == [0, 100_000_000, 200_000_000]
    assert episode.meta.embodiment.rate_hz == 10
    assert episode.observed("obs/state").tolist() == [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
    assert episode.action["obs/action"].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert episode.meta.embodiment.signal("obs/state").components == ("x", "y")
    assert episode.reward.tolist() == [0, 0.5, 1]
    assert episode.success
    block = episode.streams["top/image"]
    assert block.valid.tolist() == [True, False, True]
    expected = cv2.imread(str(root / "a/2.png"))[..., ::-1]
    np.testing.assert_array_equal(block.value[2], expected)
    assert not block.value[1].any()


def test_csv_without_pictures_or_times(tmp_path: Path, store: EpisodeStore) -> None:
    left_out = run(csv_folder(tmp_path / "runs"), store, ImportOptions())
    assert left_out == ("camera:top (pictures: give --images)",)
    other = tmp_path / "one.csv"
    other.write_text("pressure,action\n1,2\n3,4\n")
    with pytest.raises(DataError, match="--rate-hz"):
        run(other, store, ImportOptions())
    run(other, store, ImportOptions(rate_hz=5.0))
    assert store.read("ep_000001").observed("obs/pressure").tolist() == [[1], [3]]


ROW = "0,0.1,0.2,1,2,0,0,a/0.png"


@pytest.mark.parametrize(
    ("second", "header", "message"),
    [
        (f"{ROW}\n0.1,0.1,nan,1,2,0,0,a/0.png", HEADER, "NaN or infinity"),
        (f"{ROW}\n0.1,0.1,x,1,2,0,0,a/0.png", HEADER, "could not convert"),
        (f"{ROW}\n0.1,0.1,0.2", HEADER, "line 3 has 3 cells, expected 8"),
        (f"{ROW}\n0.1,0,0,1,2,0,0,\n0.05,0,0,1,2,0,0,", HEADER, "backwards|ascend"),
        (f"{ROW}\n0.1,0.1,0.2,1,2,0,0,a/9.png", HEADER, "missing or no picture"),
        (ROW, HEADER.replace("state.y", "state.z"), "has other columns"),
        ("", HEADER, "has no rows|has 0 cells"),
    ],
)
def test_bad_csv_leaves_nothing(
    tmp_path: Path, store: EpisodeStore, second: str, header: str, message: str
) -> None:
    root = csv_folder(tmp_path / "runs", second, header)
    with pytest.raises(DataError, match=message):
        run(root, store, ImportOptions(images=True))
    assert store.ids() == ()
    assert check_store(store.path).findings == ()


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, out = csv_folder(tmp_path / "runs"), tmp_path / "out"
    assert robolearn(["data", "import", str(root), "--out", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["format"], result["imported"], result["steps"]) == ("csv", 1, 3)
    assert result["left_out"] == ["camera:top (pictures: give --images)"]
    empty = tmp_path / "empty"
    empty.mkdir()
    assert robolearn(["data", "import", str(empty), "--out", str(tmp_path / "no")]) == 2
    error = capsys.readouterr().err.strip()
    assert "in no known format" in error
    assert "\n" not in error
    assert not (tmp_path / "no").exists()
    named = ["data", "import", str(empty), "--out", str(tmp_path / "no"), "--format", "d4rl"]
    assert robolearn(named) == 2
