"""A reconstructed table takes an arm of one's own, and is a world like any other to training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.types import Command, Condition
from sim.env.scene_check import check_scene
from sim.env.scene_env import SceneEnv
from sim.reconstruction.pipeline import Reconstruction
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from sim.robots.own.package import new_scene
from sim.scene.load import load_scene
from tests.sim.reconstruction.test_task_of_a_template import with_cube
from tests.sim.reconstruction.worlds import World
from tests.sim.robots.own.test_own_arm import urdf


def test_an_arm_of_ones_own_stands_at_the_table(
    found: Reconstruction, world: World, tmp_path: Path
) -> None:
    own = new_scene(urdf(tmp_path), tmp_path / "my_arm")
    scene = write_reconstructed(
        found, SceneChoice(arm=str(tmp_path / "my_arm")), tmp_path / "table"
    )
    check_scene(scene)
    details = scene.config.provenance.details
    assert set(details["objects"]) == {t.name for t in world.things}
    assert "where the arm stands" in {a["what"] for a in details["assumed"]}
    # All of it is in the package: the arm's own file may go.
    for path in sorted((tmp_path / "my_arm").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    env = SceneEnv(load_scene(tmp_path / "table"), cameras=())
    env.reset(Condition("as found", 0, {}), np.random.default_rng(0))
    seen = env.observe()
    for thing in world.things:
        assert np.linalg.norm(seen.value(f"{thing.name}/pose")[:2] - thing.xy_yaw[:2]) < 0.003
    (action,) = env.spec.actions
    start = seen.value(action.name)
    assert start.shape == (len(own.joints),)
    goal = start + 0.1
    for seq in range(20):
        env.apply(Command(seq, {action.name: goal}, env.now_ns(), "test"))
        env.advance()
    np.testing.assert_allclose(env.observe().value(action.name), goal, atol=0.02)
    assert "cube/pose" not in {s.name for s in env.spec.signals}
    env.close()


CONFIG = """
policy: bc
data:
  observations: [tool/pose, gripper/width, cube/pose, goal/pose]
  kinds: [scripted]
algorithm: {horizon: 8, execute: 8, width: 16, blocks: 1, batch_size: 8}
fit: {steps: 4, warmup: 1, log_every: 2, checkpoint_every: 4}
"""


@pytest.mark.slow
def test_training_is_evaluated_in_the_reconstructed_scene(
    found: Reconstruction,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    choice = SceneChoice("pick_place", "pick_place_ur5e")
    write_reconstructed(with_cube(found, 0), choice, tmp_path / "my_table")
    (tmp_path / "x.yaml").write_text(CONFIG)
    collect = ["collect", "--env", "my_table", "--agent", "scripted", "--episodes", "1"]
    assert main([*collect, "--out", "demos"]) == 0
    capsys.readouterr()
    train = ["train", "--config", "x.yaml", "--store", "demos", "--out", "run", "--json"]
    train += ["--evaluate-world", "my_table", "--evaluate-conditions", "1"]
    assert main(train) == 2
    assert "'my_table' has the task 'pick_place'" in capsys.readouterr().out
    assert main([*train, "--evaluate-suite", "configs/eval/pick_place.yaml"]) == 0
    told = json.loads(capsys.readouterr().out)["fit"]["metrics"]
    assert 0 <= told["evaluation/score"] <= 1
    assert (tmp_path / "run" / "evaluation" / "trials.sqlite").is_file()
