"""A scene stops its robot for a force as the supervisor of its cell would."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml

from robolearn.errors import ConfigError, SceneError
from robolearn.types import SAFETY_STOP, Command, Condition
from sim.adapters.bullet.scene import BulletSceneEnv
from sim.env.scene_env import SceneEnv
from sim.scene.config import Scene, SupervisorConfig
from sim.scene.load import SCENES, load_scene

CUBE = (0.0, 0.0, 0.02, 1.0, 0.0, 0.0, 0.0)
DOWN, UP = (0.0, 0.0, 0.019, 0.0), (0.0, 0.0, 0.2, 0.0)


def limited(limit_n: float, overload_s: float = 0.02, name: str = "pick_place_ur5e") -> Scene:
    """The packaged scene with a limit."""
    scene = load_scene(name)
    limit = SupervisorConfig(limit_n, overload_s)
    return dataclasses.replace(scene, config=dataclasses.replace(scene.config, supervisor=limit))


def pressed(env: SceneEnv, ticks: int = 16, goal: tuple[float, ...] = DOWN) -> list[str]:
    """Closed fingers go to ``goal``, where a cube is in the way; the reason after every tick."""
    start = {
        "cube/pose": CUBE,
        "tool/pose": (0.0, 0.0, 0.08, 0.0, 1.0, 0.0, 0.0),
        "gripper/width": (0.0,),
    }
    env.reset(Condition("c", 0, start), np.random.default_rng(0))
    reasons: list[str] = []
    for k in range(ticks):
        action = {"tool/xyz_yaw": np.array(goal), "gripper/width": np.zeros(1)}
        env.apply(Command(k, action, env.now_ns(), "test"))
        env.advance()
        reasons.append(env.outcome().reason)
    return reasons


def test_a_force_beyond_the_limit_ends_the_episode_once_and_for_all() -> None:
    env = SceneEnv(limited(30.0))
    reasons = pressed(env)
    first = reasons.index(SAFETY_STOP)
    assert first > 0
    assert (set(reasons[:first]), set(reasons[first:])) == ({""}, {SAFETY_STOP})
    outcome = env.outcome()
    assert (outcome.truncated, outcome.terminal, outcome.success) == (True, False, False)
    # Latched while nothing is touched any more, and gone with the next episode.
    assert set(pressed(env, goal=UP)) == {""}
    env.close()


@pytest.mark.parametrize("limit", [limited(1e6), limited(30.0, overload_s=60.0)])
def test_less_force_and_shorter_ones_stop_nothing(limit: Scene) -> None:
    env = SceneEnv(limit)
    assert set(pressed(env)) == {""}
    env.close()


def test_a_limit_that_is_not_reached_changes_no_bit() -> None:
    ends: list[bytes] = []
    for scene in (limited(1e6), load_scene("pick_place_ur5e")):
        env = SceneEnv(scene)
        pressed(env)
        ends.append(env.data.qpos.tobytes())
        env.close()
    assert ends[0] == ends[1]


def test_another_engine_tells_its_own_forces() -> None:
    env = BulletSceneEnv(limited(30.0, name="pick_place"))
    assert SAFETY_STOP in pressed(env)
    assert set(pressed(env, goal=UP)) == {""}
    env.close()


def written(folder: Path, name: str, limit: object) -> Path:
    """A packaged scene whose file has this limit."""
    for file in (SCENES / name).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    raw = yaml.safe_load((folder / "scene.yaml").read_text())
    (folder / "scene.yaml").write_text(yaml.safe_dump({**raw, "supervisor": limit}))
    return folder


def test_the_file_says_it(tmp_path: Path) -> None:
    scene = load_scene(written(tmp_path, "pick_place_ur5e", {"max_tool_force_n": 400.0}))
    assert scene.config.supervisor == SupervisorConfig(400.0, 0.02, 100.0)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ({"max_tool_force_n": 0.0}, "supervisor.max_tool_force_n is 0; expected a force above"),
        ({"max_tool_force_n": float("nan")}, "no finite number .*max_tool_force_n: .nan"),
        ({"max_tool_force_n": 9.0, "overload_s": -1.0}, "supervisor.overload_s is -1; expected"),
        ({"max_tool_force_n": 9.0, "rate_hz": 1e4}, "up to the physics' 500 Hz"),
        ({"max_force_n": 9.0}, "max_tool_force_n"),
    ],
)
def test_figures_that_cannot_be_are_refused(tmp_path: Path, limit: object, said: str) -> None:
    with pytest.raises((SceneError, ConfigError), match=said):
        load_scene(written(tmp_path, "pick_place_ur5e", limit))


def test_a_scene_without_an_arm_has_no_supervisor(tmp_path: Path) -> None:
    folder = written(tmp_path, "pick_place_ur5e", {"max_tool_force_n": 9.0})
    raw = yaml.safe_load((folder / "scene.yaml").read_text())
    raw |= {"control": {"kind": "none"}, "actions": []}
    raw["reset"]["settable"] = ["cube/pose"]
    (folder / "scene.yaml").write_text(yaml.safe_dump(raw))
    with pytest.raises(SceneError, match="no arm whose tool could feel a force"):
        load_scene(folder)
