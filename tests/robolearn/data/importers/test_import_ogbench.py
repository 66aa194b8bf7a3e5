"""OGBench's manipulation files, known by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn import ogbench
from robolearn.data.importers.recording import ImportOptions, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError


def imported(path: Path, **arrays: Any) -> EpisodeStore:
    rng = np.random.default_rng(0)
    rows = np.arange(12)
    np.savez(
        path,
        **{
            "observations": rng.random((12, 28), dtype=np.float32),
            "actions": rng.uniform(-1, 1, (12, 5)).astype(np.float32),
            "terminals": np.isin(rows, (4, 11)),
            "qpos": np.zeros((12, 14)),
        }
        | arrays,
    )
    store = EpisodeStore.create(path.parent / path.stem)
    _, importer = find_importer(path)
    options = ImportOptions(images=True)
    write_recording(importer.open(path, options), store, options)
    return store


def test_actions_are_those_of_the_world_in_si_units(tmp_path: Path) -> None:
    actions = np.ones((12, 5), dtype=np.float32)
    actions[:, 1] = -0.5
    seen = np.zeros((12, 28), dtype=np.float32)
    seen[:, 19:26] = (1.0, -2.0, 0.2, -0.6, 0.0, 0.0, 0.8)
    store = imported(tmp_path / "cube-single-play-v0-val.npz", actions=actions, observations=seen)
    episode = store.read("ep_000001")
    tool, grip = (episode.action[spec.name] for spec in ogbench.action_specs())
    np.testing.assert_allclose(tool, [(0.05, -0.025, 0.05, 0.3)] * 7, rtol=1e-15)
    np.testing.assert_array_equal(grip, np.ones((7, 1)))
    assert episode.meta.embodiment.actions == ogbench.action_specs()
    assert episode.meta.embodiment.name == "ogbench_cube_single"
    assert episode.meta.embodiment.rate_hz == 20.0
    assert "rate" not in episode.meta.provenance
    assert "ogbench/cube-single" in episode.meta.provenance["actions"]
    np.testing.assert_array_equal(episode.observed("obs/state"), seen[5:])
    # As in play.
    np.testing.assert_array_equal(episode.observed("goal/state"), seen[5:])
    pose = (0.525, -0.2, 0.02, 0.6, 0.0, 0.0, -0.8)
    np.testing.assert_allclose(episode.observed("block_0/pose"), [pose] * 7, atol=1e-7)
    assert "obs/qpos" in episode.streams


@pytest.mark.parametrize("name", ["pointmaze-medium-navigate-v0", "antmaze-large-v0", "cube"])
def test_files_of_other_families_keep_their_actions(tmp_path: Path, name: str) -> None:
    episode = imported(tmp_path / f"{name}.npz").read("ep_000000")
    assert set(episode.action) == {"obs/action"}
    assert "goal/state" not in episode.streams
    assert "assumed" in episode.meta.provenance["rate"]


def test_pictures_of_a_manipulation_world(tmp_path: Path) -> None:
    pictures = np.random.default_rng(3).integers(0, 255, (12, 64, 64, 3), dtype=np.uint8)
    path = tmp_path / "visual-puzzle-3x3-play-v0.npz"
    episode = imported(path, observations=pictures).read("ep_000000")
    assert episode.meta.embodiment.actions == ogbench.action_specs()
    np.testing.assert_array_equal(episode.observed("obs/state"), pictures[:5])
    assert "goal/state" not in episode.streams


@pytest.mark.parametrize(
    ("arrays", "got"),
    [({"actions": np.zeros((12, 2))}, r"\(2,\)"), ({"observations": np.zeros((12, 4))}, r"\(4,\)")],
)
def test_what_is_not_of_the_world_of_its_name(
    tmp_path: Path, arrays: dict[str, Any], got: str
) -> None:
    message = r"OGBench's cube-single: expected actions \(5,\) and observations \(28,\).*" + got
    with pytest.raises(DataError, match=message):
        imported(tmp_path / "cube-single-play-v0.npz", **arrays)
