"""What a hand does becomes commands; nothing that it does makes an arm jump."""

import dataclasses
import math
import time

import numpy as np
import pytest

from hardware.teleop.config import MappingConfig
from hardware.teleop.device import DeviceReading, HandPose, JointAngles, Rate, Steps, TablePoint
from hardware.teleop.filters import OneEuro, PoseFilter
from hardware.teleop.mapping import Mapping, require_drivable
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.geometry import pose, quat_from_rotation, rot_x, rot_z, yaw_of
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from tests import mocks
from tests.mocks import observation

RATE_HZ, DT = 20.0, 0.05
DOWN = rot_x(math.pi)
TABLE = dataclasses.replace(mocks.SPEC, rate_hz=RATE_HZ)


def embodiment(action, size, mode="absolute", low=(), high=()):
    signals = (SignalSpec("tool/pose", (7,)), SignalSpec("gripper/width", (1,), "m"))
    arm = ActionSpec(action, (size,), mode=mode, low=low, high=high)
    grip = ActionSpec("gripper/width", (1,), "m", low=(0.0,), high=(0.08,))
    return EmbodimentSpec("arm", signals, (arm, grip), RATE_HZ)


XYZ_YAW = embodiment("tool/xyz_yaw", 4, low=(-0.25, -0.4, 0.005, -3.2), high=(0.25, 0.4, 0.5, 3.2))
POSE = embodiment("tool/pose", 7)
DELTA = embodiment("tool/delta_pose", 6, "relative", (-0.05,) * 6, (0.05,) * 6)
LEADER = EmbodimentSpec(
    "follower",
    (SignalSpec("arm/joint_position", (3,), "rad"),),
    (ActionSpec("arm/joint_position", (3,), "rad", low=(-1.5,) * 3, high=(1.5,) * 3),),
    RATE_HZ,
)


class Arm:
    """An arm that does at once what it is told, and the hand that drives it by a mapping."""

    def __init__(self, spec=XYZ_YAW, at=(0.0, 0.0, 0.2), width=0.08, follows=True, **config):
        self.spec, self.follows = spec, follows
        self.T, self.width = pose(DOWN, at), width
        self.q, self.xy = np.zeros(3), np.array([0.1, 0.2])
        self.mapping = Mapping(MappingConfig(**config), spec, 0.5)
        self.mapping.reset(self.seen())

    def seen(self):
        values = np.concatenate([self.T[:3, 3], quat_from_rotation(self.T[:3, :3])])
        named = {"tool__pose": values, "gripper__width": np.array([self.width])}
        return observation(0, arm__joint_position=self.q, tool__xy_table=self.xy, **named)

    def tick(self, motion, *, clutch=True, present=True, age_s=0.0, gripper=None):
        t_ns = time.monotonic_ns() - round(age_s * 1e9)
        reading = DeviceReading(t_ns, present, clutch, motion, gripper)
        mapped = self.mapping.command(reading, self.seen(), DT)
        name = self.spec.actions[0].name
        self.value = mapped.action[name]
        if self.follows:
            self._go(name)
        return mapped

    def _go(self, name):
        if name == "tool/xyz_yaw":
            self.T = pose(rot_z(self.value[3]) @ DOWN, self.value[:3])
        elif name == "arm/joint_position":
            self.q = self.value
        elif name == "tool/xy_table":
            self.xy = self.value


def rate(*twist):
    return Rate(np.array([*twist, *[0.0] * (6 - len(twist))], dtype=np.float64))


def hand(x=0.0, y=0.0, z=0.0, yaw=0.0):
    return HandPose(pose(rot_z(yaw), (x, y, z)))


class TestRates:
    def test_full_deflection_is_the_speed_that_was_set(self):
        arm = Arm(ramp_s=DT)
        assert arm.tick(rate()).engaged
        for _ in range(10):
            assert arm.tick(rate(1.0, -0.5)).engaged
        # (0.5 - 0.1) / 0.9, to the power of 1.5
        assert arm.value[:3] == pytest.approx([0.125, -0.5 * 0.25 * (4 / 9) ** 1.5, 0.2])
        for _ in range(4):
            arm.tick(rate(0, 0, -1, 1, 1, 1))
        assert arm.value[2:] == pytest.approx([0.15, 4 * 0.6 * DT])

    def test_it_starts_and_ends_softly_and_goes_on_from_what_was_commanded(self):
        arm = Arm(follows=False)
        arm.tick(rate())
        speeds = []
        for wanted in (1, 1, 1, 1, 0, 0, 0, 0):
            before = arm.mapping.command(_now(rate(wanted)), arm.seen(), 0.0).action
            arm.tick(rate(wanted))
            speeds.append((arm.value - before["tool/xyz_yaw"])[0] / DT)
        assert speeds[:3] == pytest.approx([0.25 / 3, 0.5 / 3, 0.25], abs=1e-6)
        assert speeds[-1] == 0.0

    def test_a_deflected_stick_takes_no_hold(self):
        arm = Arm()
        mapped = arm.tick(rate(1.0))
        assert not mapped.engaged
        assert "let go" in mapped.note
        assert arm.value[:3].tolist() == [0.0, 0.0, 0.2]
        assert arm.tick(rate(0.05)).engaged

    def test_the_command_stays_near_what_is_measured(self):
        arm = Arm(follows=False)
        arm.tick(rate())
        for _ in range(40):
            mapped = arm.tick(rate(1.0, 0, 0, 0, 0, 1))
        assert np.linalg.norm(arm.value[:3] - [0, 0, 0.2]) == pytest.approx(0.03)
        assert arm.value[3] == pytest.approx(0.2)
        assert mapped.limited == ("lead",)
        # No wind-up: turning back moves at once.
        for _ in range(7):
            arm.tick(rate(-1.0))
        assert arm.value[0] < 0.015

    def test_who_lets_go_of_an_arm_that_moves_does_not_send_it_back(self):
        arm = Arm(follows=False)
        arm.tick(rate())
        for x in (0.0, 0.0, 0.001, 0.002):
            arm.T = pose(DOWN, (x, 0.0, 0.2))
            arm.tick(rate(1.0))
        sent = arm.value[0]
        # 1 mm in 50 ms: 4 mm on in the next 200.
        arm.T = pose(DOWN, (0.003, 0.0, 0.2))
        assert arm.tick(rate(1.0), clutch=False).note
        assert arm.value[:3] == pytest.approx([0.007, 0.0, 0.2])
        assert arm.value[0] < sent
        # There it stays, whatever the arm does.
        arm.T = pose(DOWN, (0.005, 0.0, 0.2))
        arm.tick(rate(1.0), clutch=False)
        assert arm.value[:3] == pytest.approx([0.007, 0.0, 0.2])

    @pytest.mark.parametrize(
        "last",
        [
            pytest.param((0.0, 0.0, 0.2), id="blocked: nothing is pushed on"),
            pytest.param((-0.002, 0.0, 0.2), id="pushed away from where it was sent"),
            pytest.param((0.0, 0.004, 0.2), id="across"),
        ],
    )
    def test_an_arm_that_does_not_go_where_it_was_sent_is_kept_where_it_is(self, last):
        arm = Arm(follows=False)
        arm.tick(rate())
        for _ in range(6):
            arm.tick(rate(1.0))
        assert arm.value[0] > 0.02
        arm.T = pose(DOWN, last)
        arm.tick(rate(1.0), clutch=False)
        assert arm.value[:3] == pytest.approx(last)

    def test_a_pointer_takes_the_tool_where_it_is_seen_also_while_it_coasts(self):
        """Let go of and taken hold of again at once, the other way: the tool is not yet where it
        was sent, and a pointer that keys lead on begins at the tool.
        """
        arm = Arm(TABLE, follows=False)
        for x in (0.1, 0.12, 0.16, 0.2):
            assert arm.tick(TablePoint(np.array([x, 0.2]))).engaged
            arm.xy = np.array([x - 0.02, 0.2])
        arm.tick(TablePoint(np.array([0.2, 0.2])), clutch=False)
        assert arm.value[0] - arm.xy[0] > 0.015
        arm.xy = arm.value - [0.035, 0.0]
        assert arm.tick(TablePoint(arm.xy.copy())).engaged

    def test_a_fast_arm_goes_no_further_than_it_was_sent(self):
        arm = Arm(follows=False)
        arm.tick(rate())
        for _ in range(6):
            arm.tick(rate(1.0))
        sent = arm.value[0]
        arm.T = pose(DOWN, (0.9 * sent, 0.0, 0.2))
        arm.tick(rate(1.0), clutch=False)
        assert arm.value[0] == pytest.approx(sent)

    def test_it_stays_in_the_range_and_in_the_workspace(self):
        arm = Arm(workspace_low=(-1.0, -1.0, 0.1), workspace_high=(1.0, 0.02, 1.0))
        arm.tick(rate())
        for _ in range(60):
            mapped = arm.tick(rate(1, 1, -1, 0, 0, 0))
        assert arm.value[:3] == pytest.approx([0.25, 0.02, 0.1])
        assert "range" in mapped.limited
        for _ in range(140):
            arm.tick(rate(0, 0, 0, 0, 0, 1))
        assert abs(arm.value[3]) <= math.pi + 1e-9

    def test_frames(self):
        turned = Arm(heading_rad=math.pi / 2, ramp_s=DT)
        in_tool = Arm(frame="tool", ramp_s=DT)
        in_tool.T = pose(rot_z(math.pi / 2) @ DOWN, (0.0, 0.0, 0.2))
        in_tool.mapping.reset(in_tool.seen())
        flat = Arm(TABLE, ramp_s=DT)
        for arm in (turned, in_tool, flat):
            arm.tick(rate())
            arm.tick(rate(1.0, 0, 1.0))
        for arm in (turned, in_tool):
            assert arm.value[:3] == pytest.approx([0, 0.0125, 0.2125])
        # Seen from above: forward is up the picture, left is left.
        assert flat.value == pytest.approx([0.1, 0.2125])
        flat.tick(rate(0, 1.0))
        flat.tick(rate(0, 1.0))
        assert flat.value[0] < 0.1

    def test_one_axis_alone(self):
        arm = Arm(one_axis=True)
        arm.tick(rate())
        arm.tick(rate(0.5, -0.9, 0.3))
        assert np.flatnonzero(arm.value - [0, 0, 0.2, 0]).tolist() == [1]


def _now(motion):
    return DeviceReading(time.monotonic_ns(), True, True, motion)


def test_poses_and_changes_of_poses():
    arm = Arm(POSE, ramp_s=DT, follows=False)
    arm.tick(rate())
    arm.tick(rate(0, 0, 1, 0, 0, 1))
    assert arm.value[:3] == pytest.approx([0, 0, 0.2125])
    assert arm.value[3:] == pytest.approx(quat_from_rotation(rot_z(0.03) @ DOWN))
    arm = Arm(DELTA, ramp_s=DT, follows=False, max_lead_m=1.0, translation_m_s=4.0)
    arm.tick(rate())
    assert not arm.value.any()
    mapped = arm.tick(rate(1.0, 0, 0, 1.0))
    assert arm.value == pytest.approx([0.05, 0, 0, 0.03, 0, 0])
    assert mapped.limited == ("range",)
    # The rest of a step that was too long is not owed.
    for _ in range(3):
        arm.tick(rate())
    assert not arm.value.any()


def test_steps_are_counted_once_however_late_they_are_read():
    arm = Arm()
    before = np.array([9.0, 9.0, 0, 0, 0, 0])
    arm.tick(Steps(before))
    assert arm.value[:3].tolist() == [0, 0, 0.2]
    arm.tick(Steps(np.add(before, (0.01, 0, -0.005, 0, 0, 0.1))))
    arm.tick(Steps(np.add(before, (0.01, 0, -0.005, 0, 0, 0.1))))
    assert arm.value == pytest.approx([0.01, 0, 0.195, 0.1])
    # Steps while nobody was there do not count.
    arm.tick(Steps(before + 1), present=False)
    arm.tick(Steps(before + 1))
    assert arm.value[:3] == pytest.approx([0.01, 0, 0.195])


class TestHands:
    def test_the_clutch_may_close_anywhere(self):
        arm = Arm(min_cutoff_hz=1e3, scale=0.5)
        arm.tick(hand(1.0, 2.0, 3.0, yaw=1.0))
        assert arm.value == pytest.approx([0, 0, 0.2, 0])
        arm.tick(hand(1.04, 2.0, 3.0, yaw=1.1))
        assert arm.value == pytest.approx([0.02, 0, 0.2, 0.1], abs=1e-3)
        held = arm.value
        arm.tick(hand(5.0, 5.0, 5.0), clutch=False)
        mapped = arm.tick(hand(-5.0, 0.0, 1.0, yaw=3.0))
        assert mapped.engaged
        assert arm.value == pytest.approx(held)

    def test_a_tracker_that_jumps_has_lost_the_hand(self):
        arm = Arm()
        arm.tick(hand())
        mapped = arm.tick(hand(0.5))
        assert not mapped.engaged
        assert "jump" in mapped.note
        assert arm.value[:3].tolist() == [0, 0, 0.2]
        assert arm.tick(hand(0.5)).engaged

    def test_what_the_hand_does_beyond_a_limit_is_not_owed(self):
        arm = Arm(follows=False, min_cutoff_hz=1e3)
        arm.tick(hand())
        for k in range(1, 21):
            arm.tick(hand(0.02 * k))
        assert arm.value[0] == pytest.approx(0.03)
        arm.tick(hand(0.38))
        assert arm.value[0] < 0.025

    def test_half_a_turn_and_more(self):
        arm = Arm(POSE, min_cutoff_hz=1e3, max_lead_rad=10.0)
        arm.tick(hand())
        for k in range(1, 41):
            arm.tick(hand(yaw=0.1 * k))
            x, y, z, w = arm.value[4], arm.value[5], arm.value[6], arm.value[3]
            arm.T = pose(_rotation(w, x, y, z), arm.value[:3])
        assert yaw_of(arm.T[:3, :3]) == pytest.approx(4.0 - 2 * math.pi, abs=0.02)


def _rotation(w, x, y, z):
    from robolearn.geometry import rotation_from_quat

    return rotation_from_quat(np.array([w, x, y, z]))


class TestLeaders:
    def joints(self, *q):
        return JointAngles(np.array(q, dtype=np.float64))

    def test_a_leader_that_stands_elsewhere_moves_nothing(self):
        arm = Arm(LEADER)
        mapped = arm.tick(self.joints(0, 1.0, 0))
        assert not mapped.engaged
        assert "joint 2 is 1.00 rad away" in mapped.note
        assert arm.value.tolist() == [0, 0, 0]

    def test_it_is_caught_up_with_slowly_and_then_followed(self):
        arm = Arm(LEADER)
        values = [arm.tick(self.joints(0.7, 0, -0.2)) and arm.value for _ in range(20)]
        steps = np.abs(np.diff(values, axis=0))
        assert steps.max() <= 0.05 + 1e-9
        assert arm.value == pytest.approx([0.7, 0, -0.2])
        arm.tick(self.joints(0.7, 0.3, -0.2))
        assert arm.value == pytest.approx([0.7, 0.3, -0.2])

    def test_a_jump_of_the_leader_stops_the_arm(self):
        arm = Arm(LEADER)
        for _ in range(3):
            arm.tick(self.joints(0, 0, 0))
        assert not arm.tick(self.joints(0, -0.6, 0)).engaged
        assert arm.value.tolist() == [0, 0, 0]
        # It is near enough to be taken anew, and is caught up with slowly.
        assert arm.tick(self.joints(0, -0.6, 0)).engaged
        assert arm.value[1] == pytest.approx(-0.05)

    def test_it_needs_as_many_joints(self):
        with pytest.raises(SpecMismatchError, match="has 2 joints, the arm that follows 3"):
            Arm(LEADER).tick(self.joints(0, 0))


NONSENSE = [
    rate(math.nan),
    rate(math.inf),
    rate(1e300),
    Steps(np.full(6, 1e12)),
    hand(math.nan),
    hand(1e200),
    TablePoint(np.array([math.inf, 0.0])),
]


@pytest.mark.parametrize("motion", NONSENSE)
def test_nonsense_counts_as_let_go(motion):
    arm = Arm(TABLE if isinstance(motion, TablePoint) else XYZ_YAW)
    mapped = arm.tick(motion)
    assert not mapped.engaged
    assert "no sense" in mapped.note
    assert np.isfinite(arm.value).all()


@pytest.mark.parametrize(
    ("lost", "note"),
    [
        ({"present": False}, "away"),
        ({"clutch": False}, "nobody holds"),
        ({"age_s": 0.6}, "silent"),
    ],
)
def test_what_is_lost_stops_where_the_arm_is_and_starts_from_rest(lost, note):
    arm = Arm(follows=False)
    arm.tick(rate())
    for _ in range(4):
        arm.tick(rate(1.0))
    assert arm.value[0] > 0.02
    mapped = arm.tick(rate(1.0), **lost)
    assert not mapped.engaged
    assert note in mapped.note
    # The arm had not moved yet: there it stays, and the held key does not move it on its return.
    assert arm.value[0] == 0.0
    assert not arm.tick(rate(1.0)).engaged
    assert arm.value[0] == 0.0
    assert arm.tick(rate()).engaged


def test_a_device_that_changes_how_it_moves_is_taken_hold_of_anew():
    arm = Arm()
    arm.tick(Steps(np.zeros(6)))
    assert not arm.tick(rate(1.0)).engaged
    assert arm.tick(rate()).engaged
    assert arm.tick(Steps(np.ones(6))).engaged
    assert arm.value[:3].tolist() == [0, 0, 0.2]


class TestGripper:
    def width(self, arm, opening, **more):
        return float(arm.tick(rate(), gripper=opening, **more).action["gripper/width"][0])

    def test_it_follows_its_control(self):
        arm = Arm()
        assert self.width(arm, 1.0) == 0.08
        assert self.width(arm, 0.25) == pytest.approx(0.02)
        assert self.width(arm, None) == pytest.approx(0.02)
        assert self.width(arm, 7.0) == 0.08
        assert self.width(arm, math.nan) == 0.08
        assert arm.mapping.opening == 1.0

    def test_taking_hold_neither_drops_nor_crushes(self):
        arm = Arm(width=0.04)
        # A trigger that nobody touches says open: what is held stays held until it is moved.
        assert self.width(arm, 1.0) == pytest.approx(0.04)
        assert self.width(arm, 1.0) == pytest.approx(0.04)
        assert self.width(arm, 0.9) == pytest.approx(0.072)
        assert self.width(arm, 0.2, clutch=False) == pytest.approx(0.072)
        assert self.width(arm, 0.2) == pytest.approx(0.072)
        assert self.width(arm, 0.3) == pytest.approx(0.024)


def test_what_no_hand_can_give_is_refused():
    require_drivable(XYZ_YAW)
    require_drivable(LEADER)
    two = dataclasses.replace(XYZ_YAW, actions=XYZ_YAW.actions + LEADER.actions)
    for spec in (
        two,
        embodiment("tool/xyz_yaw", 4, "relative"),
        embodiment("tool/delta_pose", 6),
        embodiment("left_tool/xyz_yaw", 4),
        embodiment("tool/pose", 6),
    ):
        with pytest.raises(SpecMismatchError, match="no person can drive 'arm'"):
            require_drivable(spec)
    with pytest.raises(SpecMismatchError, match="no signal 'tool/pose'"):
        require_drivable(dataclasses.replace(XYZ_YAW, signals=XYZ_YAW.signals[1:]))


@pytest.mark.parametrize(
    ("spec", "motion"),
    [(XYZ_YAW, JointAngles(np.zeros(3))), (LEADER, rate()), (XYZ_YAW, TablePoint(np.zeros(2)))],
)
def test_a_device_of_another_kind_is_refused(spec, motion):
    with pytest.raises(SpecMismatchError, match="cannot be driven by"):
        Arm(spec).tick(motion)


@pytest.mark.parametrize(
    "wrong",
    [
        {"translation_m_s": 0.0},
        {"translation_m_s": math.nan},
        {"dead_zone": 1.0},
        {"beta": -1.0},
        {"heading_rad": math.nan},
        {"workspace_low": (0.0, 0.0)},
        {"workspace_low": (0.0, 0.0), "workspace_high": (1.0, 0.0)},
    ],
)
def test_settings_without_sense_are_refused(wrong):
    with pytest.raises(ConfigError, match="mapping"):
        MappingConfig(**wrong)


def test_the_filter_is_steady_at_rest_and_prompt_in_motion():
    rng, rate_hz = np.random.default_rng(0), 100.0
    steady, sine = OneEuro(2.0, 30.0), OneEuro(2.0, 30.0)
    noise = rng.normal(0.0, 5e-4, (400, 3))
    rest = np.array([steady(n, 1 / rate_hz) for n in noise])
    assert rest[100:].std() < 0.4 * noise.std()
    t = np.arange(400) / rate_hz
    moved = np.array([sine(np.array([0.1 * math.sin(math.pi * s)]), 1 / rate_hz)[0] for s in t])
    lag = [np.abs(0.1 * np.sin(math.pi * (t[100:] - d)) - moved[100:]).max() for d in (0.03, 0.1)]
    assert lag[0] < lag[1]


def test_where_no_time_has_passed_a_filter_stays_and_loses_nothing():
    smooth = PoseFilter(2.0, 30.0)
    first = smooth(pose(rot_z(0.0), (0.0, 0.0, 0.0)), 0.01)
    moved = pose(rot_z(0.3), (0.1, 0.0, 0.0))
    for dt_s in (0.0, -1.0):
        assert smooth(moved, dt_s) == pytest.approx(first)
    for _ in range(400):
        last = smooth(moved, 0.01)
    assert last == pytest.approx(moved, abs=1e-4)


def test_a_filtered_rotation_arrives_whole_turns_included():
    smooth = PoseFilter(2.0, 30.0)
    for k in range(200):
        T = smooth(pose(rot_z(min(k, 120) * 0.05)), 0.01)
    assert yaw_of(T[:3, :3]) == pytest.approx(6.0 - 2 * math.pi, abs=1e-3)
