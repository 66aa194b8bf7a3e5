"""The unmodified ur_rtde against the emulated controller."""

import os
import signal
import socket
import struct
import time

import numpy as np
import pytest

from hardware.drivers.ur.threads import leave
from hardware.emulators.lab.launch import LabProcess
from hardware.wire import rtde
from robolearn.arms.models import UR5E
from robolearn.errors import RobotError
from robolearn.geometry import rotvec_from_rotation
from tests.hardware.lab import HOME, joint_offset, kinematic_lab
from tests.hardware.real_cell import in_child
from tests.waiting import paced, pass_time, wait_until

rtde_control = pytest.importorskip("rtde_control")
rtde_receive = pytest.importorskip("rtde_receive")


class Arm:
    """Both interfaces of ur_rtde, and the side door."""

    def __init__(self, lab):
        self.lab = lab
        self.door = lab.where.connect()
        self.receive = rtde_receive.RTDEReceiveInterface(lab.where.address)
        self.control = rtde_control.RTDEControlInterface(lab.where.address)
        self.start_ns = time.monotonic_ns()

    def q(self):
        return np.array(self.receive.getActualQ())

    def servo(self, q):
        return self.control.servoJ(list(q), 0.0, 0.0, 0.002, 0.03, 300.0)

    def stream(self, angle, ticks):
        """A smooth move of joint 0 to home + ``angle`` and what was sent."""
        start = self.q()
        sent = []
        for i in paced(500, ticks):
            s = (i + 1) / ticks
            q = start + (3 * s**2 - 2 * s**3) * (joint_offset(0, angle) - start)
            sent.append(q)
            assert self.servo(q)
        return np.array(sent)

    def running(self, wanted):
        return wait_until(lambda: self.control.isProgramRunning() == wanted)

    def recover(self):
        """As an operator: unlock, load the program again, go home."""
        self.door.fault("unlock")
        assert self.control.reuploadScript()
        assert self.running(True)
        assert self.control.moveJ(list(HOME), 3.0, 10.0)

    def events(self, kind):
        return [e for e in self.door.log(self.start_ns).events if e.kind == kind]

    def close(self):
        self.door.close()
        leave(self.control)
        leave(self.receive)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with kinematic_lab(tmp_path_factory.mktemp("lab"), 1) as lab:
        yield lab


@pytest.fixture(scope="module")
def connected(lab):
    arm = Arm(lab)
    yield arm
    arm.close()


@pytest.fixture
def arm(connected):
    """At home, program running; what a test breaks it need not repair."""
    if not connected.control.isProgramRunning() or connected.receive.isProtectiveStopped():
        connected.recover()
    connected.control.moveJ(list(HOME), 3.0, 10.0)
    connected.start_ns = time.monotonic_ns()
    return connected


def test_healthy_arm_reads_as_such(arm):
    before = arm.receive.getTimestamp()
    np.testing.assert_allclose(arm.q(), HOME, atol=1e-12)
    assert (arm.receive.getRobotMode(), arm.receive.getSafetyMode()) == (7, 1)
    assert arm.control.isProgramRunning()
    assert not arm.receive.isProtectiveStopped()
    wait_until(lambda: arm.receive.getTimestamp() > before)


def test_servo_moves_the_plant_and_every_setpoint_is_logged_exactly(arm):
    sent = arm.stream(0.05, 60)
    wait_until(lambda: np.allclose(arm.q(), sent[-1], atol=1e-4))
    log = arm.door.log(arm.start_ns)
    np.testing.assert_array_equal(log.setpoint_q, sent)
    assert np.all(np.diff(log.setpoint_t_ns) >= 0)
    assert arm.control.servoStop()
    wait_until(lambda: not arm.door.log().moving)
    assert [e.kind for e in arm.door.log(arm.start_ns).events] == ["moving", "rest"]


def test_speed_moves_and_stops(arm):
    assert arm.control.speedJ([0.5, 0, 0, 0, 0, 0], 5.0, 0.0)
    wait_until(lambda: arm.q()[0] > HOME[0] + 0.02)
    assert arm.control.speedStop(5.0)
    # States come by another link, maybe a packet behind the stop's answer.
    wait_until(lambda: not np.any(arm.receive.getActualQd()), what="rest")
    at_rest = arm.q()
    pass_time(0.02, "it stays at rest")
    np.testing.assert_allclose(arm.q(), at_rest, atol=1e-9)


def test_move_reaches_the_target_and_stop_returns(arm):
    target = joint_offset(1, 0.1)
    assert arm.control.moveJ(list(target), 3.0, 10.0)
    wait_until(lambda: np.allclose(arm.q(), target, atol=1e-12))
    arm.control.stopJ(2.0)
    assert arm.control.isProgramRunning()


def test_silence_trips_the_watchdog_and_the_arm_comes_to_rest(arm):
    assert arm.control.setWatchdog(20.0)
    sent = arm.stream(0.05, 30)
    assert arm.running(False)
    assert not arm.servo(sent[-1])
    wait_until(lambda: not arm.door.log().moving)
    [stop] = arm.events("program_stopped")
    assert "watchdog" in stop.detail
    last = arm.door.log(arm.start_ns).setpoint_t_ns.max()
    assert stop.t_ns - last >= 50_000_000


def test_a_jump_is_a_protective_stop_and_does_not_move_the_arm(arm):
    arm.servo(joint_offset(1, 0.5))
    wait_until(arm.receive.isProtectiveStopped)
    assert arm.receive.getSafetyMode() == 3
    np.testing.assert_allclose(arm.q(), HOME, atol=1e-9)
    assert "sudden change" in arm.events("protective_stop")[0].detail
    assert not arm.control.moveJ(list(HOME), 1.0, 1.0)


def test_protective_stop_on_command_stops_a_moving_arm_until_unlocked(arm):
    arm.control.speedJ([0.5, 0, 0, 0, 0, 0], 5.0, 0.0)
    wait_until(lambda: arm.q()[0] > HOME[0] + 0.02)
    arm.door.fault("protective_stop")
    wait_until(arm.receive.isProtectiveStopped)
    wait_until(lambda: not arm.door.log().moving)
    arm.recover()
    assert not arm.receive.isProtectiveStopped()
    np.testing.assert_allclose(arm.q(), HOME, atol=1e-6)


def flange(arm):
    return UR5E.fk(arm.q())[:3, 3]


@pytest.mark.parametrize("way", ["TeachMode", "FreedriveMode"])
def test_a_hand_guides_the_arm_in_freedrive_and_only_there(arm, way):
    control = arm.control
    free = {"TeachMode": control.teachMode, "FreedriveMode": control.freedriveMode}[way]
    stiff = {"TeachMode": control.endTeachMode, "FreedriveMode": control.endFreedriveMode}[way]
    place = UR5E.fk(joint_offset(0, 0.1))[:3, 3]
    arm.door.call("hand", to=place.tolist(), force=40.0)
    wait_until(lambda: np.linalg.norm(arm.receive.getActualTCPForce()[:3]) > 39.0)
    np.testing.assert_allclose(arm.q(), HOME, atol=1e-9)
    assert free()
    wait_until(lambda: np.linalg.norm(flange(arm) - place) < 0.002, 6.0)
    assert stiff()
    arm.door.call("hand")
    here = arm.q()
    assert arm.servo(here)
    assert arm.servo(here)
    np.testing.assert_allclose(arm.q(), here, atol=1e-4)
    assert control.servoStop()
    assert not arm.events("protective_stop")


def test_freedrive_and_set_points_together_end_the_program(arm):
    # A move that is under way: a servoJ alone may have ended before a late teachMode arrives.
    assert arm.control.moveJ(list(joint_offset(0, 0.5)), 0.2, 1.0, True)
    assert not arm.control.teachMode() or arm.running(False)
    assert "while the program moves" in arm.events("program_stopped")[0].detail
    arm.recover()
    arm.start_ns = time.monotonic_ns()
    assert arm.control.teachMode()
    arm.servo(HOME)
    assert arm.running(False)
    assert "in freedrive" in arm.events("program_stopped")[0].detail


def test_servo_in_tool_space_takes_the_same_path(arm):
    ends = []
    for tool in (False, True):
        for i in paced(500, 60):
            q = HOME + np.array([0.05, 0.02, -0.03, 0.0, 0.04, 0.1]) * ((i + 1) / 60)
            if tool:
                T = UR5E.fk(q)
                pose = [*T[:3, 3], *rotvec_from_rotation(T[:3, :3])]
                assert arm.control.servoL(pose, 0.0, 0.0, 0.002, 0.03, 300.0)
            else:
                assert arm.servo(q)
        wait_until(lambda: abs(arm.q()[0] - HOME[0] - 0.05) < 1e-4)
        assert arm.control.servoStop()
        log = arm.door.log(arm.start_ns)
        ends.append(log.setpoint_q)
        assert arm.control.moveJ(list(HOME), 3.0, 10.0)
        arm.start_ns = time.monotonic_ns()
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-8)


def ask_dashboard(lab, *lines):
    with socket.create_connection((lab.where.address, 29999), timeout=2) as raw:
        talk = raw.makefile("rw")
        talk.readline()
        replies = []
        for line in lines:
            talk.write(line + "\n")
            talk.flush()
            replies.append(talk.readline().strip())
        return replies


def test_power_and_brakes_at_the_dashboard(lab, arm):
    assert ask_dashboard(lab, "power off", "robotmode") == ["Powering off", "Robotmode: POWER_OFF"]
    wait_until(lambda: arm.receive.getRobotMode() == 3)
    assert not arm.control.isProgramRunning()
    assert ask_dashboard(lab, "power on", "robotmode")[1] == "Robotmode: IDLE"
    ask_dashboard(lab, "brake release")
    wait_until(lambda: arm.receive.getRobotMode() == 7)


def test_side_door_refuses_what_a_person_could_not_do(arm):
    with pytest.raises(RobotError, match="Did you mean 'block'"):
        arm.door.place("blok", (0.1, 0.1, 0.0))
    with pytest.raises(RobotError, match="x, y, yaw"):
        arm.door.place("block", (0.1, float("nan"), 0.0))
    with pytest.raises(RobotError, match="beyond the room"):
        arm.door.place("block", (5.0, 0.1, 0.0))
    with pytest.raises(RobotError, match="no renderer"):
        arm.door.picture()
    with pytest.raises(RobotError, match="Known"):
        arm.door.fault("earthquake")
    arm.control.speedJ([0.3, 0, 0, 0, 0, 0], 5.0, 0.0)
    wait_until(lambda: arm.door.log().moving)
    with pytest.raises(RobotError, match="the arm moves"):
        arm.door.place("block", (0.1, 0.1, 0.0))
    arm.control.speedStop(10.0)
    wait_until(lambda: not arm.door.log().moving)
    arm.door.place("block", (0.1, 0.2, 0.3))
    np.testing.assert_allclose(arm.door.truth().poses["block"], (0.1, 0.2, 0.3))


def test_side_door_needs_the_token(lab):
    with socket.create_connection((lab.where.address, lab.where.admin_port), timeout=2) as raw:
        raw.sendall(b'{"op": "truth"}\n')
        assert b"wrong token" in raw.recv(4096)
        assert raw.recv(4096) == b""


def garbage(rng):
    """One hostile message: noise, a frame of noise, a lying size, a script, half a line."""
    size = int(rng.integers(1, 200))
    noise = rng.bytes(size)
    kind = int(rng.integers(0, 6))
    return (
        noise,
        rtde.frame(int(rng.integers(0, 256)), noise),
        struct.pack(">HB", int(rng.integers(0, 65536)), 85) + noise,
        rtde.frame(rtde.DATA, bytes([1]) + noise),
        b"def " + noise + b"\nend\n",
        noise + b"\n",
    )[kind]


def flood(lab, connections):
    """Ten hostile messages on each of many connections; returns how much the lab grew [byte]."""
    import psutil

    process = psutil.Process(lab.pid)
    rng = np.random.default_rng(0)
    ports = (30004, 29999, 30003, lab.where.admin_port)
    before = process.memory_info().rss
    for i in range(connections):
        with socket.create_connection((lab.where.address, ports[i % 4]), timeout=5) as raw:
            try:
                for _ in range(10):
                    raw.sendall(garbage(rng))
            except OSError:
                continue
    return process.memory_info().rss - before


@pytest.mark.slow
def test_a_hundred_thousand_hostile_messages(lab, arm):
    assert flood(lab, 10_000) < 30 << 20
    assert arm.receive.isConnected()
    assert arm.door.call("stats")["ticks"] > 0


def test_garbage_on_every_port_does_not_disturb_the_controller(lab, arm):
    assert flood(lab, 200) < 30 << 20
    assert arm.receive.isConnected()
    assert arm.control.reuploadScript()  # a script of ours may have replaced the client's
    assert arm.running(True)
    recipe = b"input_int_register_0,input_double_register_0,"
    # Inputs have one writer: the client's connection makes room, and with it its program ends.
    arm.control.disconnect()
    with socket.create_connection((lab.where.address, 30003), timeout=2) as script:
        script.sendall(b"def program():\nend\n")
        wait_until(lambda: arm.receive.getRuntimeState() == 2)
    with socket.create_connection((lab.where.address, 30004), timeout=2) as raw:
        raw.sendall(rtde.frame(rtde.INPUTS, recipe))
        assert b"INT32,DOUBLE" in raw.recv(4096)
        # Not a number in every register of a set-point: the controller protects itself.
        names = ["input_int_register_0", *[f"input_double_register_{i}" for i in range(11)]]
        raw.sendall(rtde.frame(rtde.INPUTS, ",".join(names).encode()))
        raw.recv(4096)
        raw.sendall(rtde.frame(rtde.DATA, struct.pack(">Bi11d", 2, 11, *[np.nan] * 11)))
        wait_until(arm.receive.isProtectiveStopped)
    assert np.isfinite(arm.q()).all()


def broken_links(folder):
    """A controller that hangs, drops its links, dies, and starts again."""
    # Mostly the receive interface: the control interface of ur_rtde 1.6.5 ends the whole process
    # when its dashboard link is closed under it.
    with kinematic_lab(folder, 2) as lab, lab.where.connect() as door:
        receive = rtde_receive.RTDEReceiveInterface(lab.where.address)
        os.kill(lab.pid, signal.SIGSTOP)
        pass_time(0.03, "what is on its way arrives")
        frozen = receive.getTimestamp()
        pass_time(0.05, "its clock stands")
        assert receive.getTimestamp() == frozen
        os.kill(lab.pid, signal.SIGCONT)
        wait_until(lambda: receive.getTimestamp() > frozen)
        door.fault("drop_links")
        wait_until(lambda: not receive.isConnected())
        assert receive.reconnect()
        wait_until(lambda: np.allclose(receive.getActualQ(), HOME))
        control = rtde_control.RTDEControlInterface(lab.where.address)
        assert control.isProgramRunning()
        control.disconnect()
        os.kill(lab.pid, signal.SIGKILL)
        wait_until(lambda: not receive.isConnected())
    with kinematic_lab(folder, 2):
        assert receive.reconnect()
        wait_until(lambda: receive.getTimestamp() > 0)
        receive.disconnect()


def test_a_controller_that_hangs_drops_its_links_or_dies_is_found_again(tmp_path):
    in_child(broken_links, tmp_path)


def test_a_busy_port_is_one_line_that_says_what_to_do(lab, tmp_path):
    with pytest.raises(RobotError, match=r"exit code 2.*30004.*in use.*ss -ltnp.*--address"):
        kinematic_lab(tmp_path, 1)


def test_sigterm_ends_the_lab_with_exit_code_zero(tmp_path):
    lab: LabProcess = kinematic_lab(tmp_path, 3)
    assert lab.stop() == 0
