"""A cell with an arm and a gripper behind ``RealEnv``: episodes, recordings, resets, faults."""

import dataclasses
import time

import numpy as np
import pytest

from hardware.cell.spec import cell_spec
from hardware.devices.gripper_config import WIDTH, GripperCellConfig
from hardware.drivers.fakes.gripper import FakeGripperFault
from hardware.env.gripper_stream import GripperStream
from hardware.env.real_env import RealEnv
from hardware.env.shadow_env import ShadowEnv
from hardware.supervisor.shared_memory import Ring
from robolearn.agents.chunk import ChunkAgent
from robolearn.arms.joint_path import JointLimits
from robolearn.contracts import PolicySpec
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, GripperError, RobotError
from robolearn.inference.local import InProcessInference
from robolearn.learning import BatchSpec
from robolearn.runtime import run_episode
from robolearn.types import Command, Condition, PolicyOutput
from tests.hardware.buses import START, BusArm
from tests.hardware.env.test_real_env_joints import HOME, cell
from tests.hardware.joint_wave import NoTask
from tests.waiting import paced

JOINTS = "arm/joint_position"
OBJECT_M = 0.04
BEGIN = Condition("c", 1, {WIDTH: (0.07,)})


@pytest.fixture(scope="module")
def rings():
    faults, trace = Ring.create(4, 1), Ring.create(256, 1)
    yield faults, trace
    for ring in (faults, trace):
        ring.unlink()
        ring.close()


@pytest.fixture(scope="module")
def env(rings):
    driver = {"kind": "fake", "speed_m_s": 0.5, "object_m": OBJECT_M}
    faults, trace = (dataclasses.asdict(ring.handle) for ring in rings)
    driver |= {"faults": faults, "trace": trace}
    gripper = GripperCellConfig(
        driver, high_m=0.08, max_age_s=1.0, rate_hz=50.0, release_on_reset=True
    )
    config = dataclasses.replace(cell(), gripper=gripper)
    made = RealEnv(config, place=lambda _: "", scorer=NoTask())
    yield made
    made.close()


class Grasp:
    """A policy: the arm stays, the fingers close. Its actions are in the other order."""

    def __init__(self, spec):
        self.spec, self.requests = spec, []

    def sample(self, request, n=1):
        self.requests.append(request)
        count = self.spec.horizon
        actions = np.zeros((1, n, count, 7))
        width = request.observations[WIDTH][0, -1, 0]
        actions[0, :, :, 0] = np.clip(width - 0.01 * np.arange(count), 0.0, 0.08)
        actions[0, :, :, 1:] = HOME
        return PolicyOutput(actions, np.zeros((1, n)), request.t_ns)


def test_what_a_cell_with_a_gripper_offers_is_known_without_it():
    made = dataclasses.replace(cell(), gripper=GripperCellConfig({"kind": "fake"}, 0.08))
    spec = cell_spec(made)
    assert [(a.name, a.unit, a.low, a.high) for a in spec.actions[1:]] == [
        (WIDTH, "m", (0.0,), (0.08,))
    ]
    assert spec.signal(WIDTH).shape == (1,)
    assert WIDTH not in [s.name for s in cell_spec(cell()).signals]


def test_a_recorded_grasp_reads_back_what_the_policy_saw_and_what_was_sent(env, tmp_path):
    space = env.spec.task_space([WIDTH, JOINTS], [WIDTH, JOINTS])
    policy = Grasp(PolicySpec(space, n_obs=2, horizon=8, execute=4))
    agent = ChunkAgent(policy.spec, env.spec, name="grasp", execute=3, lead_ticks=1)
    store = EpisodeStore.create(tmp_path / "store")
    with EpisodeRecorder(store, spec=env.spec, kind="deployment") as recorder:
        inference = InProcessInference(policy, delay_ticks=1)
        result = run_episode(env, agent, inference, [recorder], BEGIN, max_steps=24, task="grasp")
    env.hold()
    assert result.reset.achieved[WIDTH][0] == pytest.approx(0.07, abs=0.003)
    assert "gripper/width off by" in result.reset.note
    episode = store.read(recorder.saved[0])
    width = episode.streams[WIDTH]
    assert np.all(np.diff(width.t_ns) > 0)
    # The fingers stopped at the object, though they were told to close further.
    assert width.value[-1, 0] == pytest.approx(OBJECT_M, abs=1e-6)
    commanded = np.asarray(episode.action[WIDTH])[:, 0]
    assert commanded.min() < OBJECT_M - 0.005
    sent = episode.sent
    assert len(sent.action[WIDTH]) == len(sent.action[JOINTS]) == len(sent.t_ns)
    assert sent.action[WIDTH].min() == pytest.approx(commanded.min())
    names = DataConfig((WIDTH, JOINTS), (WIDTH, JOINTS), kinds=("deployment",))
    source = StoreSource(store, names)
    dataset = EpisodeDataset(flatten(source), BatchSpec(2, 8, 4), seed=0)
    assert len(policy.requests) >= 4
    for request in policy.requests:
        row = int(np.flatnonzero(episode.tick_t_ns == request.t_ns[0])[0])
        batch = dataset.gather(np.array([row]))
        for name in (WIDTH, JOINTS):
            seen = request.observations[name].astype(np.float32)
            assert np.array_equal(batch.observations[name].numpy(), seen)


def test_what_is_held_is_not_let_go_by_a_reset_unless_the_cell_allows_it(env):
    assert env.supervisor.gripper_state().holding
    careful = dataclasses.replace(env.config.gripper, release_on_reset=False)
    resets = GripperStream(careful, env.supervisor)
    with pytest.raises(RobotError, match="the gripper holds something"):
        resets.make_ready(BEGIN)
    assert env.supervisor.gripper_state().holding
    env.release()
    assert env.supervisor.gripper_state().width_m == pytest.approx(0.08, abs=0.003)
    resets.make_ready(BEGIN)
    env.reset(BEGIN, np.random.default_rng(0))


def test_a_shadow_compares_the_width_too_and_sends_nothing(env, rings):
    env.reset(BEGIN, np.random.default_rng(0))
    env.hold()
    before = rings[1].count
    shadow = ShadowEnv(env)
    shadow.reset(BEGIN, np.random.default_rng(0))
    shadow.observe()
    shadow.apply(Command(0, {JOINTS: np.array(HOME), WIDTH: np.array([0.02])}, 0, "policy"))
    assert shadow.deviations[0].shape == (7,)
    assert abs(shadow.deviations[0][6]) == pytest.approx(0.05, abs=0.004)
    assert rings[1].count == before


def test_wrong_shapes_are_refused_and_a_policy_of_the_arm_alone_leaves_the_gripper(env):
    env.reset(BEGIN, np.random.default_rng(0))
    q = np.array(HOME)
    with pytest.raises(DataError, match="shape"):
        env.apply(Command(0, {JOINTS: q, WIDTH: np.zeros(2)}, env.now_ns(), "x"))
    bad = Command(0, {JOINTS: q}, env.now_ns(), "x", plan=np.zeros((2, 3)))
    with pytest.raises(DataError, match=r"plan of shape \(k, 7\)"):
        env.apply(bad)
    for seq in range(3):
        env.apply(Command(seq, {JOINTS: q}, env.now_ns(), "x", plan=np.tile(q, (2, 1))))
        env.advance()
    sent = env.drain().sent.action[WIDTH]
    np.testing.assert_allclose(sent, 0.07, atol=1e-9)
    assert env.supervisor.gripper_state().width_m == pytest.approx(0.07, abs=0.003)


def watch(env, seconds):
    for _ in paced(100, round(100 * seconds)):
        env.observe()


def test_a_fault_of_the_gripper_is_one_typed_error_until_the_operator_clears(env, rings):
    env.reset(BEGIN, np.random.default_rng(0))
    rings[0].put(time.monotonic_ns(), [float(FakeGripperFault.REFUSES)])
    with pytest.raises(GripperError, match="gripper_fault"):
        watch(env, 5.0)
    with pytest.raises(RobotError):
        env.clear_stop()
    rings[0].put(time.monotonic_ns(), [float(FakeGripperFault.NONE)])
    env.clear_stop()
    env.reset(BEGIN, np.random.default_rng(0))
    assert env.observe().value(WIDTH)[0] == pytest.approx(0.07, abs=0.003)


def test_the_servo_on_the_bus_of_an_arm_is_a_gripper_of_the_cell(tmp_path):
    with BusArm("feetech", tmp_path) as arm:
        five = cell().joints
        limits = JointLimits((-1.0,) * 5, (1.0,) * 5, (2.0,) * 5, (20.0,) * 5)
        bus = arm.config
        driver = {"kind": "feetech", "port": bus.port, "calibration": str(bus.calibration)}
        driver |= {"joints": list(bus.joints), "gripper": "gripper", "reply_slack_s": 0.3}
        config = dataclasses.replace(
            cell(),
            driver={**driver, "silence_s": 2.0},
            # The emulated bus shares this process.
            supervisor=dataclasses.replace(
                cell().supervisor, late_s=1.0, state_late_s=1.0, state_stale_s=3.0
            ),
            arm="",
            collision=None,
            joints=dataclasses.replace(
                five,
                home=tuple(START[:5]),
                limits=limits,
                table_height_m=None,
                max_tool_speed=None,
            ),
            gripper=GripperCellConfig(
                {"kind": "servo", "stroke_m": 0.06}, high_m=0.06, max_age_s=2.0
            ),
        )
        env = RealEnv(config, place=lambda _: "", scorer=NoTask())
        try:
            env.reset(Condition("c", 0, {}), np.random.default_rng(0))
            assert env.observe().value(WIDTH)[0] == pytest.approx(0.06, abs=0.004)
            close_to(env, 0.02)
            assert env.interventions == []
            env.estop()
            with pytest.raises(RobotError):
                env.observe()
            # The arm's driver connects anew, and its gripper with it.
            env.clear_stop()
            assert env.supervisor.gripper_state().width_m == pytest.approx(0.02, abs=0.004)
        finally:
            env.close()


def close_to(env, width, ticks=40):
    for seq in range(ticks):
        action = {JOINTS: np.array(START[:5]), WIDTH: np.array([width])}
        env.apply(Command(seq, action, env.now_ns(), "x"))
        env.advance()
        env.observe()
        if abs(env.supervisor.gripper_state().width_m - width) < 0.004:
            return
    raise AssertionError("the fingers did not arrive")
