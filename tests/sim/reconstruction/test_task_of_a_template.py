"""A scene takes the task of the scene whose robot it has, for what was found on its table."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from robolearn.capture.config import CaptureArm
from robolearn.errors import SceneError
from robolearn.geometry import pose
from robolearn.types import Command, Condition
from sim.env.scene_env import SceneEnv
from sim.reconstruction.pipeline import Reconstruction
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from sim.scene.config import Scene
from sim.scene.load import load_scene
from tests.sim.reconstruction.worlds import World, matrix_rows

CHOICE = SceneChoice("pick_place", "pick_place_ur5e")


def with_cube(found: Reconstruction, k: int, T_table_base: np.ndarray | None = None):
    """What was found, its object ``k`` being the cube of the task, and the only one."""
    config = found.capture.config
    if T_table_base is not None:
        config = dataclasses.replace(config, arm=CaptureArm("", matrix_rows(T_table_base)))
    capture = dataclasses.replace(found.capture, config=config)
    bodies = (dataclasses.replace(found.bodies[k], name="cube"),)
    return dataclasses.replace(found, capture=capture, bodies=bodies)


def gripped(scene: Scene) -> set[str]:
    """What the pads of the robot touch with the friction that the template gives them."""
    model = scene.compile()
    names = [model.geom(g).name for g in model.pair_geom2]
    assert len(names) == 2 * len(set(names)), "both pads"
    return set(names)


@pytest.mark.parametrize("k", [0, 2], ids=["primitive", "parts"])
def test_the_task_judges_what_was_found(
    found: Reconstruction, world: World, tmp_path: Path, k: int
) -> None:
    scene = write_reconstructed(with_cube(found, k), CHOICE, tmp_path / "cell")
    body = found.bodies[k]
    parts = (
        {"cube"} if body.primitive is not None else {f"cube_{n}" for n in range(len(body.parts))}
    )
    assert gripped(scene) == parts
    sizes = scene.config.task.params["sizes_m"]["cube/pose"]
    np.testing.assert_allclose(sizes, 2 * body.half_size_m)
    env = SceneEnv(scene, cameras=())
    goal = (*world.things[k].xy_yaw[:2], 0.0, 1.0, 0.0, 0.0, 0.0)
    env.reset(Condition("there", 0, {"goal/pose": goal}), np.random.default_rng(0))
    action = {"tool/xyz_yaw": np.array([0.0, 0.0, 0.3, 0.0]), "gripper/width": np.array([0.085])}
    for k in range(15):
        env.apply(Command(k, action, env.now_ns(), "test"))
        env.advance()
    outcome = env.outcome()
    env.close()
    assert outcome.progress == 0.95, "it lies on its goal; wider than the fingers open"
    assert abs(outcome.metrics["height_m"]) < 0.001


def test_a_task_whose_object_was_not_found_is_refused(
    found: Reconstruction, tmp_path: Path
) -> None:
    with pytest.raises(SceneError, match=r"three sides .* of 'cube/pose'"):
        write_reconstructed(found, CHOICE, tmp_path / "cell")
    assert not (tmp_path / "cell").exists()


def test_the_tool_goes_as_low_over_a_lower_table(found: Reconstruction, tmp_path: Path) -> None:
    T_table_base = pose(None, (-0.47, 0.02, 0.025))
    made = with_cube(found, 0, T_table_base)
    scene = write_reconstructed(made, CHOICE, tmp_path / "cell")
    template = load_scene("pick_place_ur5e")
    there, before = (
        next(a.low for a in s.config.actions if a.name == "tool/xyz_yaw") for s in (scene, template)
    )
    np.testing.assert_allclose(np.subtract(there, before)[:2], [0.03, 0.02], atol=1e-6)
    assert there[2] == before[2], "the pads would be in the table"
