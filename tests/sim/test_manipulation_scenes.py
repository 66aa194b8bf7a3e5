"""The manipulation scenes: what they are made of, and that their experts solve them."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from robolearn.contracts import Env
from robolearn.runtime import run_episode
from robolearn.types import Condition
from sim.experts import build_expert
from sim.scene import SCENES, load_scene
from sim.tasks import drawer, insertion, pick_place, stacking
from sim.worlds import make_world
from tests.contracts import AgentContract, EnvContract
from tests.mocks import Listener

NAMES = ("pick_place", "stacking", "drawer", "insertion_loose", "insertion_tight")


def box(model, name):
    geom = model.geom(name)
    assert geom.type[0] == mujoco.mjtGeom.mjGEOM_BOX
    return geom.size


@pytest.mark.parametrize("name", NAMES)
def test_shared_parts_are_the_same_everywhere(name):
    for part, master in (("panda.xml", "panda_table"), ("cell.xml", "pick_place")):
        assert (SCENES / name / part).read_bytes() == (SCENES / master / part).read_bytes(), part


def test_objects_have_the_sizes_that_tasks_count_with():
    cubes = [("pick_place", "cube", pick_place.SIDE_M), ("stacking", "red", stacking.SIDE_M)]
    for scene, name, side in [*cubes, ("stacking", "green", stacking.SIDE_M)]:
        model = load_scene(scene).compile()
        assert box(model, name) == pytest.approx([side / 2] * 3)
        assert model.body(name).mass[0] == pytest.approx(0.06)
    model = load_scene("drawer").compile()
    handle = model.geom("handle")
    # The task's frame looks into the cabinet, the handle stands out of it.
    reach = -handle.pos[0] + np.array([-1, 1]) * handle.size[0]
    assert reach[0] == pytest.approx(0.0, abs=1e-9)
    assert reach[0] < drawer.HANDLE_X_M < reach[1]
    assert handle.pos[2] == pytest.approx(drawer.HANDLE_Z_M)
    assert model.joint("drawer").range == pytest.approx([0.0, drawer.TRAVEL_M])


@pytest.mark.parametrize(("kind", "clearance"), [("loose", 0.002), ("tight", 0.0005)])
def test_the_hole_has_the_clearance_that_its_name_says(kind, clearance):
    scene = load_scene(f"insertion_{kind}")
    model = scene.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    peg = box(model, "peg")
    assert 2 * peg == pytest.approx([insertion.PEG_SIDE_M] * 2 + [insertion.PEG_LENGTH_M])
    assert scene.config.task.params["clearance_m"] == clearance
    hole = data.body("hole").xpos
    group, body = np.ones(6, np.uint8), model.body("peg").id

    def free(height, direction):
        geom = np.zeros(1, np.int32)
        at = hole + np.array([0.0, 0.0, height])
        return mujoco.mj_ray(model, data, at, np.array(direction), group, 1, body, geom)

    top = insertion.BLOCK_HEIGHT_M
    for direction in ([1.0, 0, 0], [-1.0, 0, 0], [0, 1.0, 0], [0, -1.0, 0]):
        assert free(top / 2, direction) == pytest.approx(peg[0] + clearance, abs=1e-9)
        # The chamfer widens the upper 2 mm by 45 degrees.
        above = free(top - 0.0005, direction)
        assert above == pytest.approx(peg[0] + clearance + 0.0015, abs=1e-6)


class TestPickPlaceEnv(EnvContract):
    def make(self) -> Env:
        return make_world("pick_place")

    def condition(self, seed: int) -> Condition:
        return pick_place.PickPlace(((-0.1, 0.1),) * 2, ((-0.3, 0.3),) * 2).sample_condition(seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_expert_solves_it(name):
    env = make_world(name)
    agent = build_expert(env.task, env.spec)
    for seed in range(2):
        listener = Listener()
        condition = env.sample_condition(seed)
        result = run_episode(env, agent, None, [listener], condition, max_steps=env.max_steps)
        assert result.outcome.success, (seed, result.outcome)
        assert result.outcome.reason == "success"
        assert result.score == 1.0
        assert result.steps < env.max_steps / 2
        progress = [t.outcome.progress for t in listener.ticks]
        assert progress[0] < 0.3
        assert len({round(p, 2) for p in progress}) > 10
        assert agent.name == f"scripted:{env.task}"
    env.close()


def test_a_useless_expert_fails_and_says_why():
    env = make_world("insertion_tight")
    agent = build_expert(env.task, env.spec, 1.0)
    condition = env.sample_condition(0)
    result = run_episode(env, agent, None, [], condition, max_steps=env.max_steps)
    assert not result.outcome.success
    assert result.outcome.reason in ("missed_grasp", "dropped", "jammed", "out_of_reach")
    assert agent.name == "scripted:insertion:noise=1"
    env.close()


class Ready:
    """The world at one of its own starts, whatever condition the contract names."""

    def __init__(self, name):
        self.world = make_world(name)

    def __getattr__(self, name):
        return getattr(self.world, name)

    def reset(self, condition, rng):
        return self.world.reset(self.world.sample_condition(condition.seed), rng)


class TestPickPlaceExpert(AgentContract):
    scene, noise = "pick_place", 0.0

    def make(self):
        world = make_world(self.scene)
        return build_expert(world.task, world.spec, self.noise)

    def env(self):
        return Ready(self.scene)


class TestStackingExpert(TestPickPlaceExpert):
    scene = "stacking"


class TestDrawerExpert(TestPickPlaceExpert):
    scene = "drawer"


class TestClumsyInsertionExpert(TestPickPlaceExpert):
    scene, noise = "insertion_loose", 0.5
