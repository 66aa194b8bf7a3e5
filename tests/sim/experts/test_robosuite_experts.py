"""Scripted experts of robosuite's Lift and Can."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from robolearn.geometry import quat_from_rotation, rot_x, rot_z
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from robolearn.types import Observation, Sample
from sim.experts.registry import build_expert
from sim.experts.robosuite import DELTA, GRIPPER, Steps
from sim.experts.script import TOOL, Target
from sim.worlds import make_world

needs_robosuite = pytest.mark.skipif(
    importlib.util.find_spec("robosuite") is None, reason="robosuite is not installed (an extra)"
)


def solved(world: str, noise: float, starts: int) -> int:
    env = make_world(world)
    agent = build_expert(env.task, env.spec, noise)
    count = 0
    for k in range(starts):
        start = env.sample_condition(child_seed(7, "experts", k))
        count += run_episode(env, agent, None, [], start, max_steps=env.max_steps).outcome.success
    env.close()
    return count


@pytest.mark.parametrize("width", [0.08, 0.03])
def test_a_step_goes_several_times_the_way_that_is_missing(width: float) -> None:
    pose = np.concatenate([[0.1, 0.2, 0.9], quat_from_rotation(rot_z(0.3) @ rot_x(np.pi))])
    view = Observation(0, {TOOL: Sample(0, pose)})
    action = Steps(gain=3.0).action(Target((0.11, 0.2, 0.88), 0.5, width), view)
    np.testing.assert_allclose(action[DELTA], [0.03, 0, -0.06, 0, 0, 0.6], atol=1e-9)
    assert action[GRIPPER].tolist() == [1.0 if width < 0.06 else -1.0]


@needs_robosuite
def test_the_cube_is_lifted() -> None:
    assert solved("robosuite/Lift", 0.0, 2) == 2


@needs_robosuite
@pytest.mark.slow
@pytest.mark.parametrize("world", ["robosuite/Lift", "robosuite/Can"])
def test_experts_succeed_from_random_starts(world: str) -> None:
    assert solved(world, 0.0, 50) >= 48
