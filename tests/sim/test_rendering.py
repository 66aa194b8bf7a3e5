"""Pictures: their content, and what is said when OpenGL is absent."""

from __future__ import annotations

import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.cli.main import main
from robolearn.errors import RenderError
from robolearn.pusht import BLOCK, GOAL, TOOL, transform_points
from robolearn.types import Condition
from sim.scene import load_scene
from sim.scene_env import SceneEnv
from sim.worlds import make_world

POSES = {TOOL: (0.1, 0.4), BLOCK: (0.38, 0.12, 0.7)}


def at(image: NDArray[np.uint8], xy: Any) -> NDArray[np.int64]:
    """The pixel at a table position: x right, y up."""
    h, w, _ = image.shape
    column, row = int(xy[0] / 0.512 * w), int((1 - xy[1] / 0.512) * h)
    return image[row, column].astype(np.int64)


def middle(pose: Any) -> NDArray[np.float64]:
    return transform_points(np.array([[0.0, -0.06]]), pose)[0]


def test_the_top_view_shows_tool_block_and_goal_where_they_are() -> None:
    env = SceneEnv(load_scene("pusht_reference"))
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    for width, height in ((256, 256), (128, 128), (320, 320)):
        image = env.render(width, height)
        assert image.shape == (height, width, 3)
        assert image.dtype == np.uint8
        r, g, b = at(image, POSES[TOOL])
        assert b > r + 50
        assert b > g + 30
        r, g, b = at(image, middle(GOAL))
        assert g > r + 40
        assert g > b + 40
        r, g, b = at(image, middle(POSES[BLOCK]))
        assert abs(r - b) < 50
        assert 70 < g < 180
        assert at(image, (0.45, 0.45)).min() > 235
    first = env.render(64, 64)
    assert np.array_equal(first, env.render(64, 64))
    env.close()


def test_drawing_does_not_change_the_physics() -> None:
    env = SceneEnv(load_scene("pusht_reference"), render=True)
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    before = (env.data.qpos.copy(), env.data.qvel.copy(), env.data.time)
    env.render(64, 64)
    assert np.array_equal(env.data.qpos, before[0])
    assert np.array_equal(env.data.qvel, before[1])
    assert env.data.time == before[2]
    env.close()
    # A closed env draws again when asked to.
    assert env.render(64, 64).mean() > 100
    env.close()


FORGETFUL = """
import numpy as np
from sim.worlds import make_world
env = make_world("pusht_reference")
env.reset(env.sample_condition(0), np.random.default_rng(0))
print(env.render(64, 64).mean() > 100)
"""


def test_a_process_that_forgets_to_close_ends_quietly() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGETFUL],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "True", "")


def test_a_broken_opengl_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> None:
        raise RuntimeError("gladLoadGL error")

    monkeypatch.setattr("sim.rendering.mujoco.MjrContext", fail)
    env = make_world("pusht_reference")
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    with pytest.raises(RenderError, match=r"gladLoadGL error.*libegl1 libgl1"):
        env.render(64, 64)
    env.close()


@pytest.mark.parametrize("size", [(0, 10), (10, -1), (5000, 10)])
def test_impossible_sizes(size: tuple[int, int]) -> None:
    env = SceneEnv(load_scene("pusht_reference"))
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    with pytest.raises(RenderError, match="1 to 4096"):
        env.render(*size)


def test_without_egl_the_message_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "mujoco.egl":
            raise ImportError("no libEGL.so.1")
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "mujoco.egl", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    env = make_world("pusht_reference")
    env.reset(Condition("a", 0, POSES), np.random.default_rng(0))
    with pytest.raises(RenderError, match="apt-get install libegl1"):
        env.render(64, 64)
    argv = ["scene", "view", "pusht_reference", "--out", str(tmp_path / "a.png")]
    assert main(argv) == 2
    assert "libegl1" in capsys.readouterr().err
