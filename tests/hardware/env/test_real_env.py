"""RealEnv over the emulated arm: one loop, one store, typed errors, and an arm that stops."""

import contextlib
import dataclasses
import os
import signal
import time

import numpy as np
import pytest

from hardware.cell.motion import JOINT_POSITION, JOINT_SETPOINT, tool_xy_rows
from hardware.cell.spec import EVENT
from hardware.env.real_env import RealEnv
from hardware.streams.signal_buffer import SignalBuffer
from hardware.streams.tracker_streams import TrackedConfig
from hardware.supervisor.link import Cause, Mode
from robolearn.agents.chunk import ChunkAgent
from robolearn.arms.models import UR5E
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import (
    ConfigError,
    DataError,
    InferenceError,
    RobotError,
    SafetyStopError,
    StaleSignalError,
)
from robolearn.inference.local import InProcessInference, WorkerInference
from robolearn.pusht import BLOCK, TOOL
from robolearn.runtime import run_episode
from robolearn.spec import SignalSpec
from robolearn.types import Command, Condition
from tests.hardware.real_cell import (
    CONDITION,
    StillScorer,
    cell_at,
    largest_speed,
    prompt_lab,
)
from tests.hardware.workcell import WORKCELL, joints_at
from tests.mocks import POLICY_SPEC, BuildWalk, Listener, WalkPolicy
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with prompt_lab(tmp_path_factory.mktemp("lab"), 23) as made:
        yield made


class Hand:
    """Places the block, and takes away what an arm presses on."""

    def __init__(self, door) -> None:
        self.door, self.made_way = door, 0

    def __call__(self, condition: Condition) -> str:
        self.door.place("block", condition.poses[BLOCK])
        return "placed"

    def make_way(self) -> None:
        self.made_way += 1
        self.door.fault("overload", amount=0.0)


@pytest.fixture(scope="module")
def hand(lab):
    with lab.where.connect() as door:
        yield Hand(door)


@pytest.fixture(scope="module")
def cell(lab, hand):
    """An env over the module's lab, whose block is placed by the lab."""
    made = RealEnv(cell_at(lab.where.address), place=hand, scorer=StillScorer())
    yield made
    made.close()
    made.close()


@pytest.fixture
def env(cell):
    """At rest and without a latched stop."""
    with contextlib.suppress(Exception):
        cell.clear_stop()
    return cell


def command(seq, xy, due_ns):
    return Command(seq, {TOOL: np.array(xy, dtype=np.float64)}, due_ns, "test")


def lab_log(lab, start_ns):
    with lab.where.connect() as door:
        return door.log(start_ns)


def _setpoints(episode):
    spec = episode.meta.embodiment.signal(JOINT_SETPOINT)
    assert (spec.shape, spec.unit, spec.rate_hz) == ((6,), "rad", 500.0)
    return episode.streams[JOINT_SETPOINT]


def test_an_episode_runs_is_recorded_and_reads_back(env, lab, tmp_path):
    start_ns = time.monotonic_ns()
    agent = ChunkAgent(POLICY_SPEC, env.spec, name="walk", lead_ticks=1)
    inference = WorkerInference(BuildWalk(0.003))
    store = EpisodeStore.create(tmp_path / "store")
    with EpisodeRecorder(store, spec=env.spec, kind="deployment", autosave=False) as recorder:
        result = run_episode(env, agent, inference, [recorder], CONDITION, max_steps=10)
        env.hold()
        episode = store.read(recorder.keep())
    inference.close()
    assert result.reset.note.startswith("placed; ")
    np.testing.assert_allclose(result.reset.achieved[TOOL], CONDITION.poses[TOOL], atol=1e-3)
    np.testing.assert_allclose(result.reset.achieved[BLOCK], CONDITION.poses[BLOCK], atol=0.02)
    # The tracker's word of how exact that is; the arm gives none.
    assert result.reset.standard_errors == {BLOCK: (0.0003, 0.0017)}
    assert episode.steps == 10
    assert episode.observed(TOOL)[-1, 0] > 0.2
    assert len(episode.streams[JOINT_POSITION].t_ns) > 3 * episode.steps
    assert len(episode.sent.seq) > 3 * episode.steps
    assert set(episode.sent.seq.tolist()) <= set(range(10))
    assert episode.streams[EVENT.name].value.shape[1] == 4
    setpoints, log = _setpoints(episode), lab_log(lab, start_ns)
    # Every set-point of the episode, at the servo's rate and the times of sending: what the
    # controller received is what is recorded.
    assert len(setpoints.t_ns) > 0.8 * 0.9 * 500
    received = {q.tobytes() for q in log.setpoint_q}
    assert np.mean([q.tobytes() in received for q in setpoints.value]) > 0.99
    assert float(np.abs(np.diff(setpoints.value, axis=0)).max()) > 0.0
    assert episode.tick_t_ns[-1] - episode.tick_t_ns[0] > 0.8e9, "ticks are never made up for"
    assert largest_speed(log) < 1.02 * env.config.limits.max_joint_speed


def test_a_killed_policy_is_a_typed_error_and_the_arm_rests(env, lab):
    start_ns = time.monotonic_ns()
    inference = WorkerInference(BuildWalk(0.01))

    class Killer(Listener):
        def on_tick(self, tick):
            if tick.index == 3:
                os.kill(inference.pid, signal.SIGKILL)

    agent = ChunkAgent(POLICY_SPEC, env.spec, name="walk", execute=2, lead_ticks=1)
    with pytest.raises(InferenceError, match="-9"):
        run_episode(env, agent, inference, [Killer()], CONDITION, max_steps=40)
    inference.close()
    with lab.where.connect() as door:
        wait_until(lambda: not door.log(start_ns).moving)
        assert largest_speed(door.log(start_ns)) < 1.02 * env.config.limits.max_joint_speed
    assert env.status().mode is Mode.FOLLOW
    assert env.status().cause is Cause.NONE
    env.hold()


def test_bad_commands_never_reach_the_arm(env, lab):
    env.reset(CONDITION, np.random.default_rng(0))
    start_ns = time.monotonic_ns()
    with pytest.raises(DataError, match="shape"):
        env.apply(command(0, [0.1, 0.2, 0.3], env.now_ns()))
    with pytest.raises(DataError, match="lacks"):
        env.apply(Command(0, {"arm/joint_position": np.zeros(6)}, env.now_ns(), "test"))
    for seq, xy in enumerate([(np.nan, 0.1), (1e6, -1e6), (0.25, 0.38)]):
        env.apply(command(seq, xy, env.now_ns()))
        env.advance()
    env.apply(command(3, (0.3, 0.38), env.now_ns() - 10**10))
    env.advance()
    causes = [e.cause for e in env.interventions]
    assert {Cause.NOT_FINITE, Cause.FAR_OUTSIDE, Cause.STALE_COMMAND} <= set(causes)
    env.drain()
    with lab.where.connect() as door:
        log = door.log(start_ns)
    assert np.isfinite(log.setpoint_q).all()
    assert largest_speed(log) < 1.02 * env.config.limits.max_joint_speed
    env.hold()


def test_a_policy_that_aims_two_metres_away_moves_nothing_and_is_stopped(env, lab):
    policy = WalkPolicy(step=0.0)

    class Astray(WalkPolicy):
        def sample(self, request, n=1):
            output = policy.sample(request, n)
            return dataclasses.replace(output, actions=output.actions + 2.0)

    start_ns = time.monotonic_ns()
    agent = ChunkAgent(POLICY_SPEC, env.spec, name="astray", execute=4)
    with pytest.raises(SafetyStopError, match="far_agent"):
        run_episode(env, agent, InProcessInference(Astray()), [], CONDITION, max_steps=40)
    causes = [e.cause for e in env.interventions]
    # At least two, however seldom a busy machine lets the agent speak.
    assert causes.count(Cause.FAR_OUTSIDE) >= 2
    assert causes[-1] is Cause.FAR_AGENT
    with lab.where.connect() as door:
        wait_until(lambda: not door.log(start_ns).moving)
        last = door.log(start_ns).setpoint_q[-1]
    np.testing.assert_allclose(WORKCELL.xy(UR5E, last), CONDITION.poses[TOOL], atol=2e-3)
    env.clear_stop()


def test_every_observation_is_in_the_drain_of_its_tick(env):
    env.reset(CONDITION, np.random.default_rng(0))
    for seq in range(3):
        observation = env.observe()
        env.apply(command(seq, (0.2, 0.38), observation.t_ns))
        env.advance()
        drained = env.drain()
        for name in (TOOL, BLOCK, JOINT_POSITION):
            assert observation.samples[name].t_ns in drained.signals[name].t_ns
    env.hold()


def test_an_arm_that_presses_on_something_is_given_way_before_its_stop_is_cleared(env, lab, hand):
    """Cleared as it stands it would stop again at once, as often as it is cleared."""
    env.reset(CONDITION, np.random.default_rng(0))
    before = hand.made_way
    with lab.where.connect() as door:
        door.fault("overload", amount=3.0)
        wait_until(lambda: env.status().mode is Mode.STOPPED)
        assert env.status().cause is Cause.OVERLOAD
        wait_until(lambda: not door.log().moving)
    env.clear_stop()
    assert hand.made_way == before + 1
    env.hold()
    assert env.status().mode is Mode.HOLD
    # Of a stop that somebody asked for it is not.
    env.estop()
    env.clear_stop()
    assert hand.made_way == before + 1
    # The arm's own protection, which the arm has to be released from, too.
    with lab.where.connect() as door:
        door.fault("protective_stop")
        wait_until(lambda: env.status().cause is Cause.ROBOT_FAULT)
        with pytest.raises(RobotError, match="refused 'clear'"):
            env.clear_stop()
        assert hand.made_way == before + 2
        door.fault("unlock")
        wait_until(lambda: not door.log().moving)
    env.clear_stop()
    assert env.status().mode is Mode.HOLD


def test_whoever_waits_sees_what_there_is_and_nothing_of_it_is_kept(env):
    env.reset(CONDITION, np.random.default_rng(0))
    env.hold()
    first = env.look().samples[JOINT_POSITION].t_ns
    wait_until(lambda: env.look().samples[JOINT_POSITION].t_ns > first)
    assert set(env.look().samples) == {s.name for s in env.spec.signals}
    assert len(env.drain().signals[JOINT_POSITION].t_ns) < 100
    env.estop()
    assert BLOCK in env.look().samples
    env.clear_stop()


def test_a_blind_tracker_stops_the_loop_with_a_typed_error(lab):
    config = cell_at(lab.where.address)
    udp = dataclasses.replace(config.trackers[BLOCK].udp, port=30999, max_age_s=0.2)
    other = RealEnv(
        dataclasses.replace(config, trackers={BLOCK: TrackedConfig(udp)}, driver={"kind": "fake"}),
        place=lambda condition: "",
        scorer=StillScorer(),
    )
    with pytest.raises(StaleSignalError, match="no measurement yet"):
        other.observe()
    other.close()


def test_tool_positions_of_many_states_at_once():
    q = np.array([joints_at(xy) for xy in ((0.1, 0.2), (0.3, 0.4), (0.5, 0.05))])
    one_by_one = [WORKCELL.xy(UR5E, row) for row in q]
    np.testing.assert_allclose(tool_xy_rows(UR5E, WORKCELL, q), one_by_one, atol=1e-12)


def test_unknown_drivers_and_keys_are_named():
    config = cell_at("127.0.0.1", watch_dog=3)
    with pytest.raises(ConfigError, match="watchdog_hz"):
        config.driver_config()
    with pytest.raises(ConfigError, match="Did you mean 'ur'"):
        dataclasses.replace(config, driver={"kind": "urr"}).driver_config()


def test_a_buffer_hands_out_what_was_shown_and_keeps_what_came_after():
    buffer = SignalBuffer(SignalSpec("a/b", (1,)))
    with pytest.raises(StaleSignalError):
        buffer.newest()
    for t in (1, 2, 3):
        buffer.add(t, [t])
    assert buffer.newest().t_ns == 3
    buffer.add(4, [4])
    buffer.add(4, [5])
    assert buffer.drain().t_ns.tolist() == [1, 2, 3]
    assert buffer.newest().t_ns == 4
    assert buffer.drain().t_ns.tolist() == [4]
    assert buffer.drain().value.shape == (0, 1)
