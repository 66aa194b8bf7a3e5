"""What exported files look like to the programs they are for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.data.exporters.common import ExportOptions
from robolearn.data.exporters.lerobot_stats import array_stats, picture_stats, together
from robolearn.data.exporters.registry import export_store
from robolearn.data.importers.recording import ImportOptions, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from tests.episodes import IMAGE, TOOL, small_episode


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    made = EpisodeStore.create(tmp_path / "store")
    with made.writer() as writer:
        for k, steps in enumerate((5, 8)):
            writer.append(small_episode(k, steps, image=True))
    return made


def test_diffusion_policy(store: EpisodeStore, tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    export_store(store, out, "diffusion-policy", ExportOptions())
    root: Any = zarr.open_group(str(out), mode="r", zarr_format=2)
    assert root["meta/episode_ends"][:].tolist() == [5, 13]
    assert sorted(root["data"]) == [
        "action",
        "progress",
        "reward",
        "tick_t_ns",
        "tool.xy_table",
        "top.image",
    ]
    assert {root[f"data/{key}"].shape[0] for key in root["data"]} == {13}
    second = store.read("ep_000001")
    np.testing.assert_array_equal(root["data/top.image"][5:], second.observed(IMAGE))
    np.testing.assert_array_equal(root["data/action"][5:], second.action[TOOL])


def test_robomimic(store: EpisodeStore, tmp_path: Path) -> None:
    h5py: Any = pytest.importorskip("h5py")
    out = tmp_path / "out.hdf5"
    export_store(store, out, "robomimic", ExportOptions())
    with h5py.File(out) as file:
        data = file["data"]
        assert sorted(data) == ["demo_0", "demo_1"]
        assert data.attrs["total"] == 13
        assert json.loads(data.attrs["env_args"])["env_kwargs"]["control_freq"] == 10
        demo = data["demo_1"]
        assert demo.attrs["num_samples"] == 8
        assert sorted(demo["obs"]) == ["tool.xy_table", "top.image"]
        assert demo["dones"][:].tolist() == [0] * 7 + [1]
        assert demo["obs/top.image"].chunks == (1, 48, 40, 3)


def test_lerobot(store: EpisodeStore, tmp_path: Path) -> None:
    parquet: Any = pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    out = tmp_path / "out"
    report = export_store(store, out, "lerobot", ExportOptions())
    assert any("H.264 is lossy" in s for s in report.not_held)
    info = json.loads((out / "meta/info.json").read_text())
    assert (info["codebase_version"], info["fps"]) == ("v3.0", 10)
    assert (info["total_episodes"], info["total_frames"]) == (2, 13)
    assert info["features"]["observation.state"]["names"] == [f"{TOOL}.x", f"{TOOL}.y"]
    table = parquet.read_table(out / "data/chunk-000/file-000.parquet")
    assert set(table.column_names) == {
        k for k, f in info["features"].items() if f["dtype"] != "video"
    }
    assert table["index"].to_pylist() == list(range(13))
    np.testing.assert_allclose(
        table["timestamp"].to_numpy(), [*np.arange(5) / 10, *np.arange(8) / 10], atol=1e-6
    )
    rows = parquet.read_table(out / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [(r["dataset_from_index"], r["dataset_to_index"]) for r in rows] == [(0, 5), (5, 13)]
    assert rows[1]["videos/observation.images.top/to_timestamp"] == 0.8
    stats = json.loads((out / "meta/stats.json").read_text())
    actions = np.concatenate([store.read(i).action[TOOL] for i in store.ids()])
    np.testing.assert_allclose(stats["action"]["mean"], actions.mean(axis=0))
    np.testing.assert_allclose(stats["action"]["std"], actions.std(axis=0))
    assert np.shape(stats["observation.images.top"]["mean"]) == (3, 1, 1)


def test_a_killed_export_is_swept_by_the_next_one(store: EpisodeStore, tmp_path: Path) -> None:
    dead = 2**22 + 1  # above the highest number that Linux gives
    (tmp_path / f".out.{dead}-0123.exporting").mkdir()
    (tmp_path / f".out.{dead}-4567.exporting").write_text("x")
    mine = tmp_path / f".out.{os.getpid()}-89ab.exporting"
    mine.write_text("another export of a live process")
    other = tmp_path / f".other.{dead}-0123.exporting"
    other.write_text("of another export")
    export_store(store, tmp_path / "out", "robomimic", ExportOptions())
    assert sorted(p.name for p in tmp_path.glob(".*")) == sorted([mine.name, other.name])


def test_lossy_pictures_are_near(store: EpisodeStore, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet", exc_type=ImportError)
    export_store(store, tmp_path / "out", "lerobot", ExportOptions())
    again = EpisodeStore.create(tmp_path / "again")
    recording = find_importer(tmp_path / "out")[1].open(
        tmp_path / "out", ImportOptions(images=True)
    )
    write_recording(recording, again, ImportOptions())
    frames, true = (s.read("ep_000001").observed(IMAGE) for s in (again, store))
    assert frames.shape == true.shape
    means = [f.astype(np.float64).mean(axis=(1, 2, 3)) for f in (frames, true)]
    np.testing.assert_allclose(*means, atol=3)


def spoil_hdf5(out: Path) -> None:
    import h5py

    library: Any = h5py
    with library.File(out, "r+") as file:
        file["data/demo_1"].attrs["robolearn_meta"] = '{"embodiment": {}}'


def spoil_zarr(out: Path) -> None:
    attributes = json.loads((out / ".zattrs").read_text())
    del attributes["robolearn_episodes"][1]["embodiment"]
    (out / ".zattrs").write_text(json.dumps(attributes))


def spoil_lerobot(out: Path) -> None:
    side = json.loads((out / "meta/robolearn.json").read_text())
    del side["episodes"][1]
    (out / "meta/robolearn.json").write_text(json.dumps(side))


@pytest.mark.parametrize(
    ("name", "module", "spoil"),
    [
        ("robomimic", "h5py", spoil_hdf5),
        ("diffusion-policy", "zarr", spoil_zarr),
        ("lerobot", "pyarrow.parquet", spoil_lerobot),
    ],
)
def test_damaged_metadata(
    store: EpisodeStore, tmp_path: Path, name: str, module: str, spoil: Any
) -> None:
    pytest.importorskip(module, exc_type=ImportError)
    out = tmp_path / ("out.hdf5" if name == "robomimic" else "out")
    export_store(store, out, name, ExportOptions())
    spoil(out)
    again = EpisodeStore.create(tmp_path / "again")
    with pytest.raises(DataError, match="damaged"):
        write_recording(
            find_importer(out, name if name != "lerobot" else "auto")[1].open(out, ImportOptions()),
            again,
            ImportOptions(),
        )
    assert again.ids() == ()


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_statistics_together_are_those_of_all_rows(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, 3)) for n in cuts]
    merged, whole = together([array_stats(p) for p in parts]), array_stats(np.concatenate(parts))
    for name in ("min", "max", "mean", "std", "count"):
        np.testing.assert_allclose(merged[name], whole[name], atol=1e-12)
    pictures = rng.integers(0, 256, (4, 5, 6, 3), dtype=np.uint8)
    found = picture_stats(pictures)
    rows = pictures.reshape(-1, 3) / 255.0
    for name in ("min", "max", "mean", "std"):
        np.testing.assert_allclose(found[name].reshape(-1), getattr(rows, name)(axis=0), atol=1e-12)
    exact = np.quantile(rows, 0.5, axis=0, method="inverted_cdf")
    np.testing.assert_allclose(found["q50"].reshape(-1), exact, atol=1e-12)
