"""ur_rtde's own examples, and its kinematics, against the emulated controller."""

import time

import numpy as np
import pytest

from hardware.drivers.ur.threads import leave
from robolearn.arms.models import UR5E
from robolearn.geometry import (
    pose,
    pose_error,
    rotation_from_rotvec,
    rotvec_from_rotation,
)
from tests.hardware.lab import HOME
from tests.hardware.real_cell import prompt_lab
from tests.waiting import wait_until

rtde_control = pytest.importorskip("rtde_control")
rtde_receive = pytest.importorskip("rtde_receive")
dashboard_client = pytest.importorskip("dashboard_client")


def matrix(vector):
    v = np.array(vector)
    return pose(rotation_from_rotvec(v[3:]), v[:3])


def apart(one, two):
    return pose_error(matrix(one), matrix(two))


class Both:
    """The two interfaces, at home and with a program that runs."""

    def __init__(self, lab):
        self.lab, address = lab, lab.where.address
        with lab.where.connect() as door:
            door.fault("unlock")
        self.receive = rtde_receive.RTDEReceiveInterface(address)
        self.control = rtde_control.RTDEControlInterface(address)
        wait_until(self.control.isProgramRunning)
        assert self.control.setTcp([0.0] * 6)
        assert self.control.moveJ(list(HOME), 3.0, 10.0)

    def pose(self):
        return self.receive.getActualTCPPose()

    def close(self):
        leave(self.control)
        leave(self.receive)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with prompt_lab(tmp_path_factory.mktemp("lab"), 38, 30138) as made:
        yield made


@pytest.fixture
def arm(lab):
    made = Both(lab)
    yield made
    made.close()


def test_the_example_of_asynchronous_moves(arm):
    """``move_async_example.py``: moveL and back, then moveJ, each stopped on its way."""
    target = list(arm.pose())
    start = target[2]
    target[2] += 0.10
    # Slower than the example's: on a late machine the stop must still come on the way.
    assert arm.control.moveL(target, 0.05, 0.5, True)
    wait_until(lambda: arm.pose()[2] > start + 0.02)
    arm.control.stopL(0.5)
    assert start + 0.02 < arm.pose()[2] < start + 0.099
    target[2] -= 0.10
    assert arm.control.moveL(target, 0.25, 0.5, False)
    off_m, off_rad = apart(arm.pose(), target)
    assert off_m < 1e-4
    assert off_rad < 1e-3
    q = arm.receive.getActualQ()
    wanted = [q[0] + 0.2, *q[1:]]
    assert arm.control.moveJ(wanted, 1.05, 1.4, True)
    wait_until(lambda: arm.receive.getActualQ()[0] > q[0] + 0.01)
    arm.control.stopJ(2.0)
    assert 0.0 < arm.receive.getActualQ()[0] - q[0] < 0.2


def test_a_straight_move_is_straight_and_keeps_its_speed(arm):
    goal = np.array(arm.pose()) + np.array([0.0, 0.12, 0.05, 0.0, 0.0, 0.0])
    begin_ns = time.monotonic_ns()
    assert arm.control.moveL(goal.tolist(), 0.2, 1.0)
    with arm.lab.where.connect() as door:
        _, q = door.reference(begin_ns)
    tips = np.array([UR5E.fk(row)[:3, 3] for row in q])
    tips = tips[np.linalg.norm(tips - tips[0], axis=1) > 1e-4]
    way = (goal[:3] - tips[0]) / np.linalg.norm(goal[:3] - tips[0])
    beside = (tips - tips[0]) - ((tips - tips[0]) @ way)[:, None] * way
    assert np.linalg.norm(beside, axis=1).max() < 1e-4
    speeds = np.linalg.norm(np.diff(tips, axis=0), axis=1) * 500.0
    assert speeds.max() == pytest.approx(0.2, rel=0.02)
    assert np.abs(np.diff(speeds)).max() * 500.0 < 1.2


def test_kinematics_and_the_tool_centre_point(arm):
    q = arm.receive.getActualQ()
    tcp = [0.0, 0.0, 0.12, 0.0, 0.0, 0.3]
    flange = arm.control.getForwardKinematics()
    assert arm.control.setTcp(tcp)
    assert arm.control.getTCPOffset() == pytest.approx(tcp)
    here = arm.control.getForwardKinematics()
    np.testing.assert_allclose(matrix(here), matrix(flange) @ matrix(tcp), atol=1e-9)
    wait_until(lambda: apart(arm.pose(), here)[0] < 1e-6)
    np.testing.assert_allclose(matrix(here), UR5E.fk(np.array(q)) @ matrix(tcp), atol=1e-6)
    up = [*here[:2], here[2] + 0.05, *here[3:]]
    found = arm.control.getInverseKinematics(up)
    assert apart(arm.control.getForwardKinematics(found, tcp), up)[0] < 1e-4
    assert np.abs(np.array(found) - q).max() < 0.5
    near = arm.control.getInverseKinematics(up, q)
    np.testing.assert_allclose(near, found, atol=1e-4)
    assert arm.control.moveJ_IK(up, 1.0, 2.0)
    assert apart(arm.pose(), up)[0] < 1e-4
    turned = rotvec_from_rotation(matrix(up)[:3, :3])
    np.testing.assert_allclose(turned, up[3:], atol=1e-9)


def test_limits_steadiness_and_payload(arm):
    assert arm.control.isJointsWithinSafetyLimits(list(HOME))
    assert not arm.control.isJointsWithinSafetyLimits([9.0, *HOME[1:]])
    assert arm.control.isPoseWithinSafetyLimits(list(arm.pose()))
    assert not arm.control.isPoseWithinSafetyLimits([5.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert arm.control.isSteady()
    assert arm.control.setPayload(1.5, [0.0, 0.0, 0.04])
    wait_until(lambda: arm.receive.getPayload() == pytest.approx(1.5))
    assert arm.receive.getPayloadCog() == pytest.approx([0.0, 0.0, 0.04])


def test_a_way_that_the_tool_cannot_go_ends_the_program(arm):
    assert not arm.control.moveL([5.0, 0.0, 0.5, 0.0, 0.0, 0.0], 0.2, 0.5)
    wait_until(lambda: not arm.control.isProgramRunning())


def test_force_mode_is_refused_as_a_run_time_error(arm):
    before = arm.receive.getActualQ()
    arm.control.forceMode(
        [0.0] * 6, [0, 0, 1, 0, 0, 0], [0.0, 0.0, -10.0, 0.0, 0.0, 0.0], 2, [2.0] * 3 + [0.3] * 3
    )
    wait_until(lambda: not arm.control.isProgramRunning())
    np.testing.assert_allclose(arm.receive.getActualQ(), before, atol=1e-6)


def test_the_dashboard_loads_plays_pauses_and_restarts_safety(arm):
    board = dashboard_client.DashboardClient(arm.lab.where.address)
    board.connect()
    arm.control.stopScript()
    wait_until(lambda: not board.running())
    with pytest.raises(RuntimeError, match="play"):
        board.play()
    board.loadURP("cell.urp")
    assert "cell.urp" in board.getLoadedProgram()
    board.play()
    wait_until(board.running)
    board.pause()
    assert "PAUSED" in board.programState()
    board.play()
    assert "PLAYING" in board.programState()
    board.stop()
    board.restartSafety()
    assert "POWER_OFF" in board.robotmode()
    board.powerOn()
    board.brakeRelease()
    wait_until(lambda: "RUNNING" in board.robotmode())
    board.disconnect()
