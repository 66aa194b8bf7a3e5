"""Who can be asked what a policy wanted, and where its chunks lie in the scene."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robolearn.data.episode import Episode, episode_from_arrays
from robolearn.geometry import rotation_from_quat
from robolearn.operations.studio.episodes.stage import build_stage
from robolearn.operations.studio.episodes.wanted import wanted
from robolearn.operations.studio.library import Library
from sim.scene.load import scene_folder
from tests.episodes import small_episode

BLOCK = "block/pose"


def _run(path: Path) -> Path:
    path.mkdir(parents=True)
    for name in ("config.yaml", "metrics.jsonl"):
        (path / name).write_text("")
    return path


def _driven(source: str = "policy", agent: str = "test", **provenance: Any) -> Episode:
    episode = small_episode()
    meta = dataclasses.replace(episode.meta, agent=agent, provenance=provenance)
    return dataclasses.replace(episode, meta=meta, source=(source,) * episode.steps)


def test_the_run_that_drove_is_found_by_its_place_or_its_name(tmp_path: Path):
    flow = _run(tmp_path / "a" / "flow")
    library = Library([tmp_path])
    id_ = library.things()[0].id
    for episode in (
        _driven(policy=str(flow)),
        _driven(policy="/elsewhere/flow"),
        _driven(agent="flow@12", practice={"version": 12}),
    ):
        assert wanted(library, episode).run == id_
    _run(tmp_path / "b" / "flow")
    library.look()
    assert wanted(library, _driven(policy=str(flow))).run == id_
    assert "2 runs here are called 'flow'" in wanted(library, _driven(agent="flow")).words


@pytest.mark.parametrize(
    ("episode", "words"),
    [
        (_driven("human:spacemouse", policy="/runs/flow"), "no policy drove"),
        (_driven(policy="/runs/gone"), "no run 'gone', which drove it, lies"),
        (_driven(policy=["/runs/flow"], agent=""), "no run of the policy that drove it"),
        (_driven(policy="..", agent=""), "no run"),
    ],
)
def test_why_nobody_can_be_asked_is_said(tmp_path: Path, episode: Episode, words: str):
    _run(tmp_path / "flow")
    found = wanted(Library([tmp_path]), episode)
    assert found.run == ""
    assert words in found.words


def test_chunks_of_a_tool_lie_where_the_scene_has_its_frame():
    poses = np.array([[0.1, 0.2, 0.3], [0.3, 0.15, 0.0]])
    episode = episode_from_arrays(
        small_episode().meta, {BLOCK: poses}, {}, progress=np.zeros(2), source="policy"
    )
    stage = build_stage(scene_folder("pusht_ur5e"), episode)
    (tool,) = stage.tools
    assert (tool.name, tool.count) == ("tool/xy_table", 2)
    turn = rotation_from_quat(tool.pose[3:])
    for k, pose in enumerate(poses):
        there = turn @ [*pose[:2], 0.0] + tool.pose[:3]
        assert np.abs(stage.poses[k, :, :2] - there[:2]).max(axis=1).min() < 1e-9
