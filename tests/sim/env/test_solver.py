"""The engine's solver is given as long as it needs.

With an elliptic cone its line search was cut off at 20 evaluations in one of a hundred solves. What
it returned then moved a box by 1.4 mm that lay at rest while the arm began to move beside it.
"""

from __future__ import annotations

import numpy as np
import pytest

from sim.env.scene_env import SceneEnv
from sim.experts.registry import build_expert
from sim.scene.load import load_scene, packaged_scenes

TICKS = 90


def episode(name: str, times: int) -> np.ndarray:
    """The state at every tick of the expert's way, the solver's caps ``times`` as high."""
    env = SceneEnv(load_scene(name))
    env.model.opt.iterations *= times
    env.model.opt.ls_iterations *= times
    agent = build_expert(env.task, env.spec, noise=0.4)
    env.reset(env.sample_condition(3), np.random.default_rng(0))
    agent.reset(3)
    states = []
    for _ in range(TICKS):
        command = agent.decide(env.observe(), None)
        env.apply(command)
        env.advance()
        states.append(env.data.qpos.copy())
    env.close()
    return np.array(states)


@pytest.mark.parametrize("name", ["pick_place_ur5e", "stacking"])
def test_more_time_for_the_solver_changes_nothing(name: str) -> None:
    assert np.array_equal(episode(name, 1), episode(name, 4))


@pytest.mark.parametrize("name", packaged_scenes())
def test_no_scene_cuts_its_solver_shorter_than_the_engine_does(name: str) -> None:
    opt = load_scene(name).compile().opt
    assert (opt.iterations, opt.ls_iterations) >= (100, 50)
