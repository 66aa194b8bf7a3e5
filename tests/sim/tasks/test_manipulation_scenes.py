"""The manipulation scenes: what they are made of, and that their experts solve them."""

from __future__ import annotations

import dataclasses
import shutil

import mujoco
import numpy as np
import pytest

from robolearn.contracts import Env
from robolearn.errors import SceneError
from robolearn.runtime import run_episode
from robolearn.types import Condition
from sim.experts.registry import build_expert, build_player, play_condition
from sim.scene.load import SCENES, load_scene
from sim.tasks import drawer, insertion, pick_place, play_table, stacking
from sim.tasks.play_table import SUBGOALS, WANTED
from sim.worlds import make_world
from tests.contracts import AgentContract, EnvContract
from tests.mocks import Listener

PANDA = ("pick_place", "stacking", "drawer", "insertion_loose", "insertion_tight")
SHORT = (*PANDA, "pick_place_ur5e")
NAMES = (*PANDA, "play_table")


def box(model, name):
    geom = model.geom(name)
    assert geom.type[0] == mujoco.mjtGeom.mjGEOM_BOX
    return geom.size


@pytest.mark.parametrize("name", NAMES)
def test_shared_parts_are_the_same_everywhere(name):
    for part, master in (("panda.xml", "panda_table"), ("cell.xml", "pick_place")):
        assert (SCENES / name / part).read_bytes() == (SCENES / master / part).read_bytes(), part


def test_objects_have_the_sizes_that_tasks_count_with():
    cubes = [(name, "cube", pick_place.SIDE_M) for name in ("pick_place", "pick_place_ur5e")]
    cubes.append(("stacking", "red", stacking.SIDE_M))
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


class TestPlayTableEnv(EnvContract):
    def make(self) -> Env:
        return make_world("play_table")

    def condition(self, seed: int) -> Condition:
        area = ((-0.18, 0.1), (-0.24, 0.03))
        return play_table.PlayTable(area, ((-0.3, 0.3),) * 2).sample_condition(seed)


def lifted(friction: float) -> tuple[float, float]:
    """How high the cube comes [m] when the expert lifts it with such pads, and how deep the pads
    are in it at most [m]."""
    env = make_world("pick_place")
    for pad in ("pad_left", "pad_right"):
        env.model.geom(pad).friction[0] = friction
    env.reset(env.sample_condition(1), np.random.default_rng(0))
    agent = build_expert(env.task, env.spec)
    agent.reset(0)
    heights, depths = [], [0.0]
    for _ in range(60):
        env.apply(agent.decide(env.observe(), None))
        env.advance()
        heights.append(float(env.observe().value("cube/pose")[2]))
        pads = {env.model.geom(p).id for p in ("pad_left", "pad_right")}
        contacts = zip(env.data.contact.geom, env.data.contact.dist, strict=True)
        depths += [-float(d) for pair, d in contacts if pads & set(pair.tolist())]
    env.close()
    return max(heights), max(depths)


def test_friction_alone_holds_a_cube():
    height, depth = lifted(1.5)
    assert height > 0.1
    assert depth < 0.001
    slippery, _ = lifted(0.002)
    assert slippery < 0.04
    model = make_world("pick_place").model
    kinds = [mujoco.mjtEq.mjEQ_WELD, mujoco.mjtEq.mjEQ_CONNECT]
    assert not set(model.eq_type.tolist()) & {int(k) for k in kinds}


@pytest.mark.parametrize("name", SHORT)
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


def run_play(agent, env, condition, steps):
    listener = Listener()
    result = run_episode(env, agent, None, [listener], condition, max_steps=steps)
    return result, listener


def test_the_expert_reaches_the_sub_goals_that_a_condition_names():
    env = make_world("play_table")
    condition = env.sample_condition(2)
    wanted = (0.0, 1.0, 1.0, 0.0, 0.0)
    condition = dataclasses.replace(condition, poses={**condition.poses, WANTED: wanted})
    agent = build_expert(env.task, env.spec)
    result, listener = run_play(agent, env, condition, env.max_steps)
    assert result.outcome.success
    assert result.outcome.metrics["reached"] == 2.0
    assert result.steps < 250
    seen = np.array([t.observation.value("goal/achieved") for t in listener.ticks])
    assert (seen[0] == 0.0).all()
    # The episode ends with the button; the slider stays where it was put.
    assert seen[-1].tolist() == [0.0, 1.0, 0.0, 0.0, 0.0]
    shown = listener.ticks[0].observation.value("goal/wanted")
    assert shown.tolist() == list(wanted)
    env.close()


def test_play_is_diverse_repeatable_and_wants_nothing():
    env = make_world("play_table")
    agent = build_player(env.task, env.spec)
    commands = []
    for seed in (1, 2, 1):
        condition = play_condition(dataclasses.replace(env.sample_condition(1), seed=seed))
        assert condition.poses[WANTED] == (0.0,) * 5
        result, listener = run_play(agent, env, condition, 150)
        assert not result.outcome.terminal
        commands.append([t.command.action["tool/xyz_yaw"] for t in listener.ticks])
        assert {t.command.source for t in listener.ticks} == {"play"}
    assert np.array_equal(commands[0], commands[2])
    assert np.abs(np.array(commands[0]) - np.array(commands[1])).max() > 0.05
    assert agent.name == "play:play_table"
    env.close()


def test_sub_goals_are_the_components_of_the_goal_signals():
    config = load_scene("play_table").config
    for signal in config.signals:
        if signal.name in ("goal/wanted", "goal/achieved"):
            assert signal.of == SUBGOALS
    spec = make_world("play_table").spec
    assert spec.signal("goal/achieved").components == SUBGOALS
    model = load_scene("play_table").compile()
    assert model.joint("drawer").range[1] == play_table.TRAVEL_M
    assert model.joint("slider").range[1] == play_table.TRAVEL_M
    assert model.joint("button").range[1] == play_table.BUTTON_TRAVEL_M
    assert box(model, "red") == pytest.approx([play_table.SIDE_M / 2] * 3)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("name: goal/achieved", "name: goal/achieves", "derives no signal 'goal/achieves'"),
        ("rate_hz: 20}\nactions", "rate_hz: 100}\nactions", "has the control rate"),
    ],
)
def test_bad_goal_signals_are_explained(tmp_path, old, new, text):
    shutil.copytree(SCENES / "play_table", tmp_path / "scene")
    path = tmp_path / "scene" / "scene.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(SceneError, match=text):
        load_scene(tmp_path / "scene")


def test_given_signals_need_user_data(tmp_path):
    shutil.copytree(SCENES / "play_table", tmp_path / "scene")
    path = tmp_path / "scene" / "scene.xml"
    path.write_text(path.read_text().replace('<size nuserdata="5"/>', ""))
    with pytest.raises(SceneError, match=r'need <size nuserdata="5"/>'):
        load_scene(tmp_path / "scene")


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


class TestPlayer(TestPickPlaceExpert):
    scene = "play_table"

    def make(self):
        world = make_world(self.scene)
        return build_player(world.task, world.spec, 0.1)
