import dataclasses

import numpy as np
import pytest

from robolearn.agents.actions import clip_action, clip_slight, hold_action
from robolearn.agents.chunk import ChunkAgent, StandingTime, policy_input
from robolearn.errors import ConfigError, InferenceError, SpecMismatchError
from robolearn.inference.local import InProcessInference
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from robolearn.spec import ActionSpec
from robolearn.types import PolicyOutput
from tests.contracts import AgentContract
from tests.mocks import (
    ACTION,
    CONDITION,
    PERIOD_NS,
    POLICY_SPEC,
    SPEC,
    TOOL,
    Listener,
    PointEnv,
    WalkPolicy,
    observation,
)


def drive(*, delay: int, lead: int, execute: int = 8, ticks: int = 40):
    env, listener = PointEnv(), Listener()
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk", execute=execute, lead_ticks=lead)
    policy = WalkPolicy()
    run_episode(
        env,
        agent,
        InProcessInference(policy, delay_ticks=delay),
        [listener],
        CONDITION,
        max_steps=ticks,
    )
    return policy, listener.ticks


def test_without_delay_every_tick_is_decided_by_the_policy():
    policy, ticks = drive(delay=0, lead=0)
    assert len(policy.batches) == 5
    assert {t.command.source for t in ticks} == {"policy"}
    x = [t.command.action[TOOL][0] for t in ticks]
    assert np.allclose(np.diff(x), 0.001)


@pytest.mark.parametrize(("delay", "lead"), [(1, 1), (3, 3), (3, 4), (7, 7)])
def test_lead_hides_the_delay(delay, lead):
    policy, ticks = drive(delay=delay, lead=lead)
    sources = [t.command.source for t in ticks]
    assert sources == ["hold"] * delay + ["policy"] * (40 - delay)
    assert len(policy.batches) == pytest.approx(5, abs=1)


def test_late_reply_is_bridged_by_the_rest_of_the_chunk_then_held():
    _, ticks = drive(delay=10, lead=0, ticks=30)
    sources = [t.command.source for t in ticks]
    # The reply for tick 0 comes at tick 10 and is followed to its end (25); the next request goes
    # out at tick 18 (8 actions are over) and is answered at tick 28.
    assert sources == ["hold"] * 10 + ["policy"] * 16 + ["hold"] * 2 + ["policy"] * 2
    x = [t.command.action[TOOL][0] for t in ticks[25:]]
    # Held where the plan ended; what follows goes on there: its request saw 8 actions less.
    np.testing.assert_allclose(x, [0.116, 0.116, 0.116, 0.117, 0.118])


def test_stale_actions_are_skipped_not_caught_up_with():
    """The walk goes on as if there were no delay, from the first reply, which begins at its 0."""
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk", lead_ticks=3)
    env, listener = PointEnv(), Listener()
    policy = WalkPolicy(step=0.0)
    shown = list[np.ndarray]()

    def numbered(request, n=1):
        # Action i of chunk k is 0.1 k + 0.01 i.
        output = WalkPolicy.sample(policy, request, n)
        output.actions[0, 0, :, 0] = 0.1 * len(shown) + 0.01 * np.arange(16)
        shown.append(output.actions)
        return output

    policy.sample = numbered
    inference = InProcessInference(policy, delay_ticks=3)
    run_episode(env, agent, inference, [listener], CONDITION, max_steps=20)
    x = [t.command.action[TOOL][0] for t in listener.ticks[3:]]
    # Asked at tick 11 (8 actions are over), answered at 14: three were executed meanwhile.
    np.testing.assert_allclose(x, np.r_[0.01 * np.arange(11), 0.1 + 0.01 * np.arange(3, 9)])


def test_standing_time_by_hand():
    """A tick late (35), held from the start; what is sent takes effect a tick later."""
    stood = StandingTime(1, 10)
    stood.tick(0)
    stood.mark()
    stood.sent(held=True)
    stood.tick(10)
    stood.sent(held=True)
    stood.tick(20)
    # A tick before the episode, and two of it.
    assert stood.since_mark_ns == 30
    stood.sent(held=False)
    stood.tick(35)
    # What was sent at 20 takes effect now, with the request.
    stood.mark()
    assert stood.since_mark_ns == 0
    stood.sent(held=False)
    stood.tick(45)
    assert stood.since_mark_ns == 0


def test_plan_is_what_follows():
    _, ticks = drive(delay=0, lead=0, ticks=3)
    first, second = ticks[0].command, ticks[1].command
    assert first.plan is not None
    assert first.plan.shape == (15, 2)
    assert np.array_equal(first.plan[0], second.action[TOOL])


def test_seeds_are_children_of_the_episode_seed():
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk")
    agent.reset(42)
    first = agent.request(observation(0, tool__xy_table=np.zeros(2)))
    assert first is not None
    assert first.seed.tolist() == [child_seed(42, 0)]
    assert agent.request(observation(PERIOD_NS, tool__xy_table=np.zeros(2))) is None


def test_reset_forgets_everything():
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk")
    start = observation(5 * PERIOD_NS, tool__xy_table=np.ones(2))
    agent.reset(1)
    before = agent.request(start)
    agent.decide(start, WalkPolicy().sample(before))
    agent.reset(1)
    again = agent.request(start)
    assert np.array_equal(before.observations[TOOL], again.observations[TOOL])
    assert before.seed == again.seed
    assert agent.decide(start, None).source == "hold"
    assert agent.decide(start, None).seq == 1


def test_history_pads_with_the_first_observation_and_shows_what_ticks_showed():
    spec = dataclasses.replace(POLICY_SPEC, n_obs=3)
    seen = [observation(i * PERIOD_NS, tool__xy_table=np.full(2, i)) for i in range(4)]
    assert policy_input(seen[:1], spec, 0).observations[TOOL][0, :, 0].tolist() == [0, 0, 0]
    assert policy_input(seen[:2], spec, 0).observations[TOOL][0, :, 0].tolist() == [0, 0, 1]
    full = policy_input(seen, spec, 0)
    assert full.observations[TOOL][0, :, 0].tolist() == [1, 2, 3]
    assert full.t_ns.tolist() == [3 * PERIOD_NS]


def reply_to(agent, now, value):
    """Let the agent ask at ``now`` and answer with constant actions."""
    request = agent.request(now)
    assert request is not None
    return PolicyOutput(np.full((1, 1, 16, 2), value), np.zeros((1, 1)), request.t_ns)


@pytest.mark.parametrize("stale_ns", [0, 7 * PERIOD_NS, 9 * PERIOD_NS])
def test_only_the_request_in_flight_is_answered(stale_ns):
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk")
    now = observation(8 * PERIOD_NS, tool__xy_table=np.zeros(2))
    new = reply_to(agent, now, 0.3)
    # For instance the answer to the last request of the episode before.
    stale = dataclasses.replace(new, actions=new.actions - 0.1, t_ns=np.array([stale_ns]))
    assert agent.decide(now, stale).source == "hold"
    assert agent.decide(now, new).action[TOOL][0] == 0.3
    assert agent.decide(now, stale).action[TOOL][0] == 0.3


JUDGED = dataclasses.replace(ACTION, tolerance=0.05)


def test_what_is_far_outside_is_left_for_the_robot_to_refuse():
    values = {TOOL: np.array([[-0.04, 0.3], [0.2, 2.3], [-0.06, 0.2], [0.1, 0.2]])}
    slight = clip_slight([JUDGED], values)[TOOL]
    np.testing.assert_array_equal(slight, [[0.0, 0.3], [0.2, 2.3], [-0.06, 0.2], [0.1, 0.2]])
    # In simulation, where no tolerance is declared, all are clipped.
    np.testing.assert_array_equal(
        clip_slight([ACTION], values)[TOOL], clip_action([ACTION], values)[TOOL]
    )
    assert clip_slight([JUDGED], {TOOL: np.array([2.3, 0.2])})[TOOL].tolist() == [2.3, 0.2]


@pytest.mark.parametrize("ensemble", [None, 0.01])
def test_a_chunk_two_metres_away_is_not_hidden_by_clipping_or_averaging(ensemble):
    robot = dataclasses.replace(SPEC, actions=(JUDGED,))
    agent = ChunkAgent(POLICY_SPEC, robot, name="walk", execute=1, ensemble=ensemble)
    for k, value in enumerate((0.3, 2.3, 0.55)):
        now = observation(k * PERIOD_NS, tool__xy_table=np.zeros(2))
        sent = agent.decide(now, reply_to(agent, now, value)).action[TOOL]
        if value == 2.3:
            assert sent.tolist() == [2.3, 2.3]
        else:
            assert np.all(sent <= np.array(ACTION.high))


def test_a_continuation_of_what_the_robot_refuses_stays_in_range():
    robot = dataclasses.replace(SPEC, actions=(JUDGED,))
    agent = ChunkAgent(POLICY_SPEC, robot, name="walk", execute=1, realtime=True)
    now = observation(0, tool__xy_table=np.zeros(2))
    agent.decide(now, reply_to(agent, now, 9.0))
    asked = agent.request(observation(PERIOD_NS, tool__xy_table=np.zeros(2)))
    assert asked is not None
    assert np.all(asked.prefix <= max(ACTION.high))


def test_non_finite_plan_is_refused():
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk")
    now = observation(0, tool__xy_table=np.zeros(2))
    bad = reply_to(agent, now, np.nan)
    with pytest.raises(InferenceError, match="non-finite"):
        agent.decide(now, bad)


@pytest.mark.parametrize("execute_lead", [(0, 0), (16, 1), (8, 9), (8, -1)])
def test_impossible_horizons_are_refused(execute_lead):
    execute, lead = execute_lead
    with pytest.raises(ConfigError, match="horizon"):
        ChunkAgent(POLICY_SPEC, SPEC, name="walk", execute=execute, lead_ticks=lead)


def test_another_task_space_is_refused_with_a_diff():
    other = dataclasses.replace(SPEC, rate_hz=25.0)
    with pytest.raises(SpecMismatchError, match=r"wanted 10, got 25"):
        ChunkAgent(POLICY_SPEC, other, name="walk")


def test_hold_is_zero_for_relative_actions_and_needs_an_observed_signal_otherwise():
    relative = dataclasses.replace(ACTION, mode="relative")
    here = observation(0, tool__xy_table=np.array([0.1, 0.2]))
    assert hold_action([relative], here)[TOOL].tolist() == [0, 0]
    assert hold_action([ACTION], here)[TOOL].tolist() == [0.1, 0.2]
    # A tool that points down (half a turn about x) and is turned by 0.6 rad.
    pose = np.array([0.1, 0.2, 0.3, 0.0, np.cos(0.3), np.sin(0.3), 0.0])
    down = ActionSpec("left_tool/xyz_yaw", (4,), low=(0.0,) * 4, high=(1.0,) * 4)
    held = hold_action([down], observation(0, left_tool__pose=pose))["left_tool/xyz_yaw"]
    assert held == pytest.approx([0.1, 0.2, 0.3, 0.6])
    with pytest.raises(SpecMismatchError, match="cannot hold"):
        hold_action([ACTION], observation(0, other__thing=np.ones(2)))


def test_actions_stay_in_the_range_of_the_robot_at_hand():
    assert clip_action([ACTION], {TOOL: np.array([-1.0, 0.3])})[TOOL].tolist() == [0, 0.3]
    free = dataclasses.replace(ACTION, low=(), high=())
    assert clip_action([free], {TOOL: np.array([-1.0, 0.3])})[TOOL].tolist() == [-1, 0.3]
    small = dataclasses.replace(ACTION, high=(0.1, 0.15))
    agent = ChunkAgent(POLICY_SPEC, dataclasses.replace(SPEC, actions=(small,)), name="walk")
    now = observation(0, tool__xy_table=np.zeros(2))
    command = agent.decide(now, reply_to(agent, now, 9.0))
    assert command.action[TOOL].tolist() == [0.1, 0.15]
    assert command.plan is not None
    assert (command.plan <= [0.1, 0.15]).all()


class TestChunkAgent(AgentContract):
    def make(self):
        return ChunkAgent(POLICY_SPEC, SPEC, name="walk", lead_ticks=2)

    def inference(self):
        return InProcessInference(WalkPolicy(), delay_ticks=2)
