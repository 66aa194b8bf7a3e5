"""Hidden delays of an arm under the supervisor: found by calibration, stored, and worth it.

Set-points pass the emulated controller's filter and a drivetrain with delays; time is the tests'
virtual clock. How late anything is, is judged from the plant itself by a search over shifts that
shares nothing with the estimator.
"""

import dataclasses

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.commissioning.latencies import measured, store_latencies
from hardware.commissioning.latency_motions import Swing, _wave
from hardware.drivers.fakes.robot import FakeRobot
from hardware.emulators.drivetrain import Drivetrain, DrivetrainConfig
from hardware.emulators.plant import KinematicPlant
from hardware.emulators.ur.motion import JointMotion, MotionLimits
from robolearn.agents.chunk import ChunkAgent
from robolearn.arms.models import UR5E
from robolearn.contracts import PolicySpec
from robolearn.pusht import TOOL
from robolearn.types import Observation, PolicyOutput, Sample
from tests.hardware.commissioning.test_latencies import cell_with
from tests.hardware.lab import CONFIG
from tests.hardware.workcell import RATE_HZ, WORKCELL, Cell

DT, PERIOD_S, PERIOD_NS = 1 / RATE_HZ, 0.1, 100_000_000
HIDDEN = DrivetrainConfig(command_delay_s=0.07, state_delay_s=0.02)
# The emulated servoJ behind a ramp: its look-ahead time, shorter at a higher gain.
COMMAND_S = 0.03 * (300 / 500) ** 0.5 + HIDDEN.command_delay_s
CENTRE = np.array([0.256, 0.3])


class LateArm(FakeRobot):
    """The emulated controller's filter, a drivetrain with delays, and joints that follow it."""

    def __init__(self, q, rate_hz, clock):
        super().__init__(q, rate_hz, clock=clock)
        self.plant = KinematicPlant(q)
        self.drive = Drivetrain(self.plant, HIDDEN, 0)
        self.motion = JointMotion(q, MotionLimits())

    def state(self):
        told = {"joint_position": self.drive.joint_positions()}
        return dataclasses.replace(super().state(), **told)

    def servo(self, q):
        super().servo(q)
        assert not self.motion.servo(q, DT, 0.03, 500.0, DT)

    def turn(self):
        self.motion.step(DT)
        self.drive.set_joint_targets(self.motion.q, self.motion.qd)
        self.drive.step(DT)


class LateCell(Cell):
    """A cell with such an arm; remembers where the tool really was."""

    def __init__(self):
        self.true_ns, self.true_q = [], []
        super().__init__(CENTRE)

    def run(self, seconds):
        for _ in range(round(seconds * RATE_HZ)):
            super().run(DT)
            self.robot.turn()
            self.true_ns.append(self.now_ns)
            self.true_q.append(self.robot.plant.joint_positions())

    def told(self):
        """Times [s] and tool positions: the truth, what was sent, and what the arm said."""
        sent, states = self.link.sent.since(0), self.link.states.since(0)
        mine = sent.value[:, 0] >= 0
        q = states.value[:, 4:10]
        rows = (
            (np.array(self.true_ns), over_table(np.array(self.true_q))),
            (sent.t_ns[mine], sent.value[mine, 2:4]),
            (states.t_ns, over_table(q)),
        )
        return [(t_ns * 1e-9, xy) for t_ns, xy in rows]


def over_table(q):
    return np.array([WORKCELL.xy(UR5E, row) for row in q])


def behind_s(t_s, xy, at_s, wanted):
    """The shift at which ``xy`` at ``t_s`` is nearest to ``wanted`` at ``at_s`` [s]."""
    shifts = np.arange(-0.05, 0.45, 0.001)
    moved = [np.stack([np.interp(at_s + s, t_s, v) for v in xy.T], axis=1) for s in shifts]
    cost = np.array([((m - wanted) ** 2).mean() for m in moved])
    i = int(cost.argmin())
    a, b, c = cost[i - 1 : i + 2]
    return shifts[i] + 0.5e-3 * (a - c) / (a - 2 * b + c)


@pytest.fixture(autouse=True)
def _late(monkeypatch):
    monkeypatch.setattr("tests.hardware.workcell.FakeRobot", LateArm)


def pictures(t_s, x):
    """A bright bar where the tool is."""
    # Moved by less than its width: then brightness follows the position.
    at = 32 + 400 * (x - CENTRE[0])
    bar = np.clip(9 - np.abs(np.arange(64)[None] - at[:, None]), 0, 1)
    grey = np.repeat(60 + 120 * bar[:, None, :], 24, axis=1)
    noise = np.random.default_rng(0).normal(0, 2, grey.shape)
    return np.repeat(np.clip(grey + noise, 0, 255).astype(np.uint8)[..., None], 3, axis=3)


def swung(seconds=6.0):
    """What ``calibrate latency`` records: small known motions, and a camera with right times."""
    cell = LateCell()
    cell.follow()
    for k in range(round(seconds / PERIOD_S)):
        cell.command(CENTRE + np.array([0.012 * _wave(k * PERIOD_S, seconds), 0.0]))
        cell.run(PERIOD_S)
    (true_s, true_xy), (sent_s, sent_xy), (state_s, state_xy) = cell.told()
    cell.close()
    seen_s = np.arange(true_s[0] + 0.01, true_s[-1], 0.05)
    seen = pictures(seen_s, np.interp(seen_s, true_s, true_xy[:, 0]))
    return Swing(
        *(sent_s, sent_xy[:, 0], state_s, state_xy[:, 0]),
        *({"top/image": seen_s}, {"top/image": seen}),
    )


@pytest.mark.slow
def test_calibration_finds_the_hidden_delays_within_its_error(tmp_path):
    swing, cell = swung(), cell_with("monotonic")
    found = measured(swing, cell, "top")
    for row, true_s in ((found.command, COMMAND_S), (found.state, HIDDEN.state_delay_s)):
        assert abs(row.latency_s - true_s) < max(2 * row.error_s, 2e-3)
    # Without a reference the sum of both is the command's.
    alone = measured(swing, cell).command
    whole_s = COMMAND_S + HIDDEN.state_delay_s
    assert abs(alone.latency_s - whole_s) < max(2 * alone.error_s, 2e-3)
    path = tmp_path / "cell.yaml"
    path.write_text(CONFIG.read_text())
    store_latencies(path, found)
    stored = load_cell(path)
    assert stored.command_latency_s == pytest.approx(found.command.latency_s, abs=1e-5)
    assert stored.state_latency_s == pytest.approx(found.state.latency_s, abs=1e-5)


def meant(t_s):
    """Where the tool is meant to be: ``[n, 2]``."""
    t = np.atleast_1d(t_s)
    x = 0.04 * np.sin(2 * np.pi * 0.31 * t) + 0.02 * np.sin(2 * np.pi * 0.53 * t)
    return CENTRE + np.stack([x, 0.04 * np.sin(2 * np.pi * 0.4 * t)], axis=1)


def followed(command_s, state_s, seconds=4.5):
    """Lags [s] of tool and set-points behind the path, and of observations behind the truth."""
    cell, env = LateCell(), cell_spec(load_cell(CONFIG))
    policy = PolicySpec(env.task_space([TOOL], [TOOL]), n_obs=1, horizon=16, execute=8)
    agent = ChunkAgent(policy, env, name="path", lead_ticks=0, command_latency_s=command_s)
    cell.follow()
    for _ in range(round(seconds / PERIOD_S)):
        now_ns = cell.now_ns
        xy = WORKCELL.xy(UR5E, cell.robot.state().joint_position)
        seen = Observation(now_ns, {TOOL: Sample(now_ns - round(1e9 * state_s), xy)})
        request, reply = agent.request(seen), None
        if request is not None:
            times = 1e-9 * (request.t_ns[0] + PERIOD_NS * np.arange(policy.horizon))
            reply = PolicyOutput(meant(times)[None, None], np.zeros((1, 1)), request.t_ns)
        command = agent.decide(seen, reply)
        cell.command(command.action[TOOL], () if command.plan is None else command.plan)
        cell.run(PERIOD_S)
    (true_s, true_xy), (sent_s, sent_xy), (state_t, state_xy) = cell.told()
    cell.close()
    # The first part is the way from the start onto the path.
    at_s = np.arange(sent_s[0] + 1.5, sent_s[-1] - 0.4, 0.01)
    truth = np.stack([np.interp(at_s, true_s, v) for v in true_xy.T], axis=1)
    return (
        behind_s(true_s, true_xy, at_s, meant(at_s)),
        behind_s(sent_s, sent_xy, at_s, meant(at_s)),
        behind_s(state_t - state_s, state_xy, at_s, truth),
    )


@pytest.mark.slow
def test_with_what_was_found_the_tool_is_in_time_and_observations_too():
    with_it, without = followed(COMMAND_S, HIDDEN.state_delay_s), followed(0.0, 0.0)
    # The law by which set-points approach their targets is a part of what an action means; the
    # virtual clock's tick adds up to 2 ms.
    law_s = without[1]
    assert without[0] - law_s == pytest.approx(COMMAND_S, abs=3e-3)
    assert abs(with_it[0] - law_s) < 5e-3
    assert without[2] == pytest.approx(HIDDEN.state_delay_s, abs=3e-3)
    assert abs(with_it[2]) < 3e-3
