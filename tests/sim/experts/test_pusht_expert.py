import numpy as np
import pytest
from shapely import Point, Polygon, union_all

from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.pusht import BLOCK, GOAL, TOOL, TOOL_RADIUS_M, tee_polygons
from robolearn.runtime import run_episode
from robolearn.types import Command, Condition
from sim.experts.pusht import model
from sim.experts.pusht.expert import PushTExpert
from sim.experts.pusht.follow import Follower
from sim.experts.pusht.plan import OUTLINE, OUTWARD, PlanConfig, Planner, draw, way_round
from sim.experts.pusht.play import PushTPlay
from sim.experts.registry import EXPERTS, PLAYERS, build_expert, build_player
from sim.tasks.pusht import PushT
from sim.tasks.starts import draw_start
from sim.worlds import make_world
from tests.contracts import AgentContract
from tests.mocks import SPEC as POINT

QUICK = PlanConfig(candidates=60, branches=16, beam=10, depth=2, refine=32, rounds=2)


@pytest.fixture(scope="module")
def world():
    env = make_world("pusht_reference")
    yield env
    env.close()


def start(env, tool, block):
    poses = {TOOL: tuple(map(float, tool)), BLOCK: tuple(map(float, block))}
    env.reset(Condition("start", 0, poses), np.random.default_rng(0))


class TestPushTExpert(AgentContract):
    def make(self):
        return PushTExpert(make_world("pusht_reference").spec, plan=QUICK)

    def env(self):
        env = make_world("pusht_reference")
        start(env, (0.1, 0.1), (0.3, 0.3, 1.0))
        return Settled(env)


class TestClumsyExpert(TestPushTExpert):
    def make(self):
        return PushTExpert(make_world("pusht_reference").spec, 1.0, QUICK)


class TestPlay(TestPushTExpert):
    def make(self):
        return PushTPlay(make_world("pusht_reference").spec, plan=QUICK)


class Settled:
    """A Push-T world that starts where it stands, whatever condition the contract names."""

    def __init__(self, env):
        self._env = env

    def reset(self, condition, rng):
        del condition, rng

    def __getattr__(self, name):
        return getattr(self._env, name)


def test_distances_are_those_of_the_two_rectangles():
    shape = union_all([Polygon(p - model.CENTRE) for p in tee_polygons()])
    points = np.random.default_rng(0).uniform(-0.12, 0.12, (200, 2))
    wanted = [shape.distance(Point(p)) for p in points]
    assert np.allclose(model.distance_to_block(points), wanted, atol=1e-12)
    assert Polygon(OUTLINE).symmetric_difference(shape).area < 1e-12
    middle = 0.5 * (OUTLINE + np.roll(OUTLINE, -1, axis=0))
    assert np.allclose(model.distance_to_block(middle + 0.004 * OUTWARD), 0.004)


def test_the_model_pushes_as_the_reference_scene_does(world):
    rng = np.random.default_rng(3)
    for _ in range(12):
        block = np.array([0.25, 0.25, rng.uniform(-np.pi, np.pi)])
        centre, angle = model.to_centre(block), rng.uniform(-np.pi, np.pi)
        direction = np.array([np.cos(angle), np.sin(angle)])
        tool = centre[:2] + rng.uniform(-0.03, 0.03, 2) - 0.12 * direction
        start(world, tool, block)
        for k in range(24):
            target = tool + 0.12 * min(1.0, (k + 1) / 12) * direction
            world.apply(Command(k, {TOOL: target}, world.now_ns(), "test"))
            world.advance()
        end = world.observe().value(TOOL)
        track = model.push(centre[None], tool[None], (end - tool)[None] / 80, 80)
        error = model.pose_error(track[-1, 0], model.to_centre(world.observe().value(BLOCK)))
        assert error < 1e-3
        world.drain()


def test_centre_and_origin_of_the_block_are_converted_both_ways():
    poses = np.random.default_rng(1).uniform(-1, 1, (20, 3))
    assert np.allclose(model.from_centre(model.to_centre(poses)), poses, atol=1e-15)
    points = np.random.default_rng(2).uniform(-1, 1, (20, 2))
    assert np.allclose(model.to_world(model.to_body(points, poses), poses), points)
    assert model.pose_error(model.to_centre(np.array(GOAL))) == 0.0
    assert model.outside(np.array([[0.25, 0.25, 0.0], [0.02, 0.25, 0.0]])).tolist()[0] == 0.0
    assert model.outside(np.array([[0.02, 0.25, 0.0]]))[0] == pytest.approx(0.047)


def test_the_follower_knows_the_law_of_the_tool_and_walks_a_path(world):
    start(world, (0.05, 0.05), (0.4, 0.4, 0.0))
    follower = Follower(0.1, (0.0, 0.0), (0.512, 0.512))
    follower.reset(np.array([0.05, 0.05]))
    follower.go([np.array([0.25, 0.05]), np.array([0.25, 0.15])], 0.3, 0.1)
    places = []
    for k in range(60):
        target = follower.step()
        follower.sent(target)
        world.apply(Command(k, {TOOL: target}, world.now_ns(), "test"))
        world.advance()
        places.append(world.observe().value(TOOL))
        assert np.allclose(places[-1], follower.tool, atol=2e-4)
        if follower.left == 0.0 and k > 5:
            break
    assert k < 35
    assert np.linalg.norm(places[-1] - [0.25, 0.15]) < 2e-3
    away = [min(abs(p[1] - 0.05), abs(p[0] - 0.25)) for p in places]
    assert max(away) < 8e-3


def test_the_follower_believes_the_clock():
    slow = make_world("pusht_reference~control_rate=1")
    start(slow, (0.05, 0.05), (0.4, 0.4, 0.0))
    follower = Follower(0.1, (0.0, 0.0), (0.512, 0.512))
    follower.reset(np.array([0.05, 0.05]))
    follower.see(np.array([0.05, 0.05]), 0.2)
    follower.go([np.array([0.25, 0.05])], 0.3)
    for k in range(6):
        target = follower.step()
        follower.sent(target)
        slow.apply(Command(k, {TOOL: target}, slow.now_ns(), "test"))
        slow.advance()
        assert np.allclose(slow.observe().value(TOOL), follower.tool, atol=2e-4)
    slow.close()


def test_ways_keep_clear_of_the_block():
    rng = np.random.default_rng(5)
    pose = np.array([0.256, 0.256, 0.7])
    pushes = draw(rng, 200)
    starts = model.to_world(pushes.starts(), pose)
    clear = model.distance_to_block(pushes.starts()) > TOOL_RADIUS_M + 4e-3
    for goal in starts[clear][:12]:
        tool = rng.choice(starts[clear])
        way = way_round(tool, goal, pose)
        assert np.array_equal(way[-1], goal)
        for a, b in zip([tool, *way], way, strict=False):
            between = a + np.linspace(0, 1, 40)[:, None] * (b - a)
            gap = model.distance_to_block(model.to_body(between, pose)).min()
            assert gap > TOOL_RADIUS_M + 2e-3
    # A pocket of the T that the table's edge shuts off.
    pose = np.array([0.485, 0.25, 0.0])
    pocket = model.to_world(np.array([0.035, -0.01]), pose)
    assert way_round(np.array([0.25, 0.1]), pocket, pose) == []


def test_a_plan_ends_at_the_goal_in_the_model():
    condition = draw_start("pusht", PushT().sample_condition, 5, 3)
    pose = model.to_centre(np.array(condition.poses[BLOCK]))
    tool = np.array(condition.poses[TOOL])
    pushes = Planner(PlanConfig()).plan(pose, tool, np.random.default_rng(0))
    assert 1 <= len(pushes) <= 3
    for push in pushes:
        step = push.direction * push.length / 100
        pose = model.push(pose[None], push.start[None], step[None], 100)[-1, 0]
        assert model.pose_error(pose, push.result) < 1.5e-3
    assert model.pose_error(pose) < 4e-3


@pytest.mark.parametrize(("name", "index"), [("pusht_reference", 5), ("gym_pusht", 6)])
def test_the_expert_succeeds(name, index):
    env = make_world(name)
    result = run_episode(
        env,
        build_expert("pusht", env.spec),
        None,
        [],
        draw_start("pusht", PushT().sample_condition, 77, index),
        max_steps=300,
    )
    env.close()
    assert result.outcome.success
    assert result.steps < 200


def actions(env, agent, seed, ticks=25):
    start(env, (0.1, 0.1), (0.3, 0.3, 1.0))
    agent.reset(seed)
    out = []
    for _ in range(ticks):
        command = agent.decide(env.observe(), None)
        env.apply(command)
        env.advance()
        out.append(command.action[TOOL])
    return np.array(out)


def test_the_seed_decides_the_route(world):
    agent = PushTExpert(world.spec, plan=QUICK)
    first = actions(world, agent, 1)
    assert np.array_equal(first, actions(world, PushTExpert(world.spec, plan=QUICK), 1))
    routes = [first, *(actions(world, agent, s) for s in (2, 3, 4))]
    apart = [np.linalg.norm(a - b, axis=1).max() for a in routes for b in routes]
    assert max(apart) > 0.1


def test_the_dial_makes_it_clumsy(world):
    assert PushTExpert(world.spec, noise=0.5).name == "scripted:pusht:noise=0.5"
    rough = [
        np.abs(np.diff(actions(world, PushTExpert(world.spec, n, QUICK), 1), 2, axis=0)).mean()
        for n in (0.0, 1.0)
    ]
    assert rough[1] > 1.2 * rough[0]


def test_play_has_goals_of_its_own(world):
    agent = PushTPlay(world.spec, plan=QUICK)
    start(world, (0.1, 0.1), (0.3, 0.3, 1.0))
    agent.reset(4)
    goals, places = set(), []
    for _ in range(120):
        world.apply(agent.decide(world.observe(), None))
        world.advance()
        goals.add(tuple(agent.goal))
        places.append(world.observe().value(BLOCK))
    assert len(goals) >= 2
    assert np.ptp(np.array(places)[:, :2], axis=0).max() > 0.03
    assert agent.name == "play:pusht"


def test_experts_are_refused_where_they_do_not_fit():
    with pytest.raises(ConfigError, match=r"no scripted expert for task 'pushd'\. Did you mean"):
        build_expert("pushd", POINT)
    with pytest.raises(ConfigError, match="no play generator for task 'none'"):
        build_player("none", POINT)
    with pytest.raises(ConfigError, match="noise of an expert is 0 to 1"):
        build_expert("pusht", POINT, 1.5)
    with pytest.raises(SpecMismatchError, match="block/pose"):
        build_expert("pusht", POINT)
    assert set(PLAYERS) <= set(EXPERTS)
