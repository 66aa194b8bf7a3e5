"""The env contract over the lab's physics in process."""

from __future__ import annotations

import numpy as np
import pytest

from robolearn.contracts import Env
from robolearn.errors import DataError
from robolearn.pusht import BLOCK, TOOL, tee_polygons, transform_points
from robolearn.types import Command, Condition
from sim.adapters.pusht.bullet import PyBulletEnv
from sim.plants.pusht import PlantConfig
from sim.plants.urdf import RIM_HIGH_M, RIM_LOW_M
from sim.tasks.pusht import PushT
from sim.worlds import make_world
from tests.contracts import EnvContract


class TestPyBulletEnv(EnvContract):
    exact = 1e-6

    def make(self) -> Env:
        return make_world("pusht_pybullet")

    def condition(self, seed: int) -> Condition:
        return PushT().sample_condition(seed)


def test_a_push_moves_the_block_where_the_tool_goes():
    env = PyBulletEnv()
    start = Condition("push", 0, {TOOL: (0.256, 0.4), BLOCK: (0.256, 0.36, 0.0)})
    env.reset(start, np.random.default_rng(0))
    for seq in range(10):
        command = Command(seq, {TOOL: np.array([0.256, 0.3])}, env.now_ns(), "test")
        env.apply(command)
        env.advance()
    np.testing.assert_allclose(env.observe().value(TOOL), (0.256, 0.3), atol=0.003)
    assert env.observe().value(BLOCK)[1] == pytest.approx(0.285, abs=0.005)
    assert env.render(48, 48).shape == (48, 48, 3)
    env.close()


def test_another_seed_is_another_world():
    a, b = PyBulletEnv(seed=0), PyBulletEnv(PlantConfig(), seed=1)
    assert a.scene_hash != b.scene_hash
    a.close()
    b.close()


def test_bad_starts_and_early_ticks_are_refused():
    env = PyBulletEnv()
    with pytest.raises(DataError, match="reset"):
        env.observe()
    with pytest.raises(DataError, match="settable"):
        env.reset(Condition("x", 0, {"arm/joint_position": (0.0,)}), np.random.default_rng(0))
    env.close()


@pytest.mark.parametrize(
    ("block", "target"),
    [
        ((0.256, 0.15, 0.3), (0.256, 0.0)),
        ((0.256, 0.45, 0.0), (0.256, 0.512)),
        ((0.12, 0.3, 1.0), (0.0, 0.3)),
        ((0.4, 0.3, np.pi / 2), (0.512, 0.27)),
    ],
)
def test_the_rim_keeps_the_block_and_lets_the_tool_pass(block, target):
    env, ends = PyBulletEnv(), []
    for _ in range(2):
        env.reset(
            Condition("edge", 0, {TOOL: (0.256, 0.27), BLOCK: block}), np.random.default_rng(0)
        )
        rows = []
        for seq in range(15):
            env.apply(Command(seq, {TOOL: np.array(target)}, env.now_ns(), "test"))
            env.advance()
            rows.append(np.concatenate([s.value for s in env.observe().samples.values()]))
            corners = np.concatenate(
                [transform_points(c, env.observe().value(BLOCK)) for c in tee_polygons()]
            )
            # Jammed by the servos' full force it goes into the rim by up to 4 mm; how deep, the
            # last bits decide.
            assert np.all(corners > np.array(RIM_LOW_M) - 0.006)
            assert np.all(corners < np.array(RIM_HIGH_M) + 0.006)
        ends.append(np.array(rows))
    assert np.abs(ends[0][-1, 2:5] - block).max() > 0.01, "the block was pushed"
    assert np.isfinite(ends[0]).all()
    np.testing.assert_array_equal(ends[0], ends[1])
    env.close()


def test_the_tool_works_over_the_rim():
    env = PyBulletEnv()
    start = Condition("out", 0, {TOOL: (0.45, 0.45), BLOCK: (0.2, 0.2, 0.0)})
    env.reset(start, np.random.default_rng(0))
    for seq in range(15):
        env.apply(Command(seq, {TOOL: np.array([0.512, 0.512])}, env.now_ns(), "test"))
        env.advance()
    np.testing.assert_allclose(env.observe().value(TOOL), (0.512, 0.512), atol=0.002)
    env.close()
