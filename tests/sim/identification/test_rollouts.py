"""Open-loop batches: the same bits as stepping one after the other, whatever the threads."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robolearn.errors import DataError
from sim.identification.batch_rollouts import Rollouts

ARM = """<mujoco><option timestep="0.002"/><worldbody>
  <geom type="plane" size="1 1 .1"/>
  <body pos="0 0 .3"><joint name="a" axis="0 1 0" damping=".1"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .2 0 0"/>
    <body pos=".2 0 0"><joint name="b" axis="0 1 0" damping=".1"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .2 0 0"/></body></body>
  <body pos=".1 0 .05"><freejoint/><geom type="box" size=".04 .04 .04"/></body>
  </worldbody>
  <actuator><position joint="a" kp="20"/><position joint="b" kp="20"/></actuator>
  <sensor><jointpos joint="a"/></sensor></mujoco>"""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(ARM)


def test_rollouts_equal_stepping_bit_for_bit_with_any_number_of_threads(
    model: mujoco.MjModel,
) -> None:
    rng = np.random.default_rng(0)
    controls = rng.uniform(-1, 1, (5, 6, 2))
    data = mujoco.MjData(model)
    with Rollouts([model], substeps=10) as one, Rollouts([model], substeps=10, threads=2) as two:
        states = np.tile(one.state(data), (5, 1))
        states[:, 1:3] = rng.uniform(-0.5, 0.5, (5, 2))
        rolled, again = one.roll(states, controls), two.roll(states, controls)
        assert np.array_equal(rolled.state, again.state)
        for k in range(5):
            data = mujoco.MjData(model)
            mujoco.mj_setState(model, data, states[k], mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
            for tick in range(6):
                data.ctrl[:] = controls[k, tick]
                mujoco.mj_step(model, data, nstep=10)
                assert np.array_equal(data.qpos, rolled.qpos[k, tick])
                assert np.array_equal(data.qvel, rolled.qvel[k, tick])
                assert np.array_equal(one.state(data), rolled.state[k, tick])
    assert rolled.sensors.shape == (5, 6, 1)
    assert not rolled.diverged.any()


def test_one_start_many_plans_and_one_plan_many_models(model: mujoco.MjModel) -> None:
    heavy = mujoco.MjModel.from_xml_string(ARM.replace('kp="20"', 'kp="40"'))
    start = np.zeros((1, 0))
    with Rollouts([model], substeps=5) as rollouts:
        start = rollouts.state(mujoco.MjData(model))[None]
        plans = np.random.default_rng(1).uniform(-1, 1, (3, 2, 2))
        many = rollouts.roll(start, plans)
        assert many.qpos.shape == (3, 2, model.nq)
        assert np.array_equal(rollouts.roll(start, plans[1:2]).qpos[0], many.qpos[1])
    with Rollouts([model, heavy], substeps=5) as rollouts:
        both = rollouts.roll(start, plans[:1])
    assert np.array_equal(both.qpos[0], many.qpos[0])
    assert not np.array_equal(both.qpos[1], many.qpos[0])


@pytest.mark.parametrize("reset", [True, False])
def test_divergence_is_marked_for_the_rollout_that_diverges(reset: bool) -> None:
    model = mujoco.MjModel.from_xml_string(ARM)
    if not reset:
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    with Rollouts([model], substeps=5) as rollouts:
        states = np.tile(rollouts.state(mujoco.MjData(model)), (2, 1))
        states[1, 1 + model.nq] = 1e6
        rolled = rollouts.roll(states, np.zeros((1, 2, 2)))
    assert rolled.diverged.tolist() == [False, True]


@pytest.mark.parametrize(
    ("states", "controls"),
    [((2, 3), (2, 4, 2)), ((2, 0), (2, 4, 3)), ((2, 0), (3, 4, 2)), ((2, 0), (2, 0, 2)),
     ((0, 0), (1, 4, 2))],
)  # fmt: skip
def test_wrong_shapes_say_what_is_needed(
    model: mujoco.MjModel, states: tuple[int, int], controls: tuple[int, int, int]
) -> None:
    with Rollouts([model], substeps=5) as rollouts:
        size = states[1] or rollouts.state_size
        with pytest.raises(DataError, match=r"states \[n or 1, \d+\] and controls"):
            rollouts.roll(np.zeros((states[0], size)), np.zeros(controls))
        with pytest.raises(DataError, match="finite"):
            rollouts.roll(np.full((1, rollouts.state_size), np.nan), np.zeros((1, 1, 2)))


def test_impossible_settings(model: mujoco.MjModel) -> None:
    with pytest.raises(DataError, match="at least 1"):
        Rollouts([model], substeps=0)
    with pytest.raises(DataError, match="at least one model"):
        Rollouts([], substeps=1)
