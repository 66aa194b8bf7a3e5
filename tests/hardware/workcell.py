"""A supervisor over a fake robot with a virtual clock: no time passes but what a test says."""

import dataclasses
from dataclasses import dataclass, field

import numpy as np

from hardware.drivers.fakes.gripper import FakeGripper
from hardware.drivers.fakes.robot import FakeRobot
from hardware.supervisor.gripper_keeper import GripperKeeper, NoGripper
from hardware.supervisor.joint_follower import JointFollowerConfig, JointSpace
from hardware.supervisor.link import (
    Cause,
    Event,
    Link,
    Mode,
    Request,
    Status,
    SupervisorConfig,
    Target,
)
from hardware.supervisor.loop import Supervisor
from hardware.supervisor.table_follower import FollowerConfig
from robolearn.arms.joint_path import JointLimits
from robolearn.arms.limiter import PathLimits, TableMapping
from robolearn.arms.models import ARMS, UR5E

WORKCELL = TableMapping.level(
    (-0.806, 0.256, 0.0),
    -np.pi / 2,
    tool_length_m=0.12,
    tip_height_m=0.005,
    tool_yaw=np.pi,
    home=(-0.3345, -1.3191, 2.4190, -2.6707, -1.5708, -0.3345),
)
FOLLOWER = FollowerConfig(arm="ur5e", mapping=WORKCELL, limits=PathLimits())
RATE_HZ = 500.0
TICK_NS = 2_000_000
CONFIG = SupervisorConfig()


def in_joint_space(arm, **space):
    """Half of an arm's own joint speeds, 0.05 rad inside its range, 8 rad/s^2, no tool speed."""
    known = ARMS[arm]
    limits = JointLimits(
        tuple(v + 0.05 for v in known.low),
        tuple(v - 0.05 for v in known.high),
        tuple(0.5 * v for v in known.max_speed),
        (8.0,) * known.dof,
    )
    given = {"max_tool_speed": None, **space}
    return JointFollowerConfig(JointSpace((0.0,) * known.dof, limits, **given), arm)


def changed(recipe, **space):
    """The same recipe with other values of its joint space."""
    return dataclasses.replace(recipe, space=dataclasses.replace(recipe.space, **space))


def joints_at(xy, lift_m=0.0):
    """Joint positions with the tool over ``xy`` of the table."""
    return UR5E.ik(WORKCELL.flange(xy, lift_m), np.array(WORKCELL.home))


@dataclass
class ListInbox:
    """Requests from a list."""

    waiting: list = field(default_factory=list)
    closed: Cause = Cause.NONE

    def read(self):
        out, self.waiting = self.waiting, []
        return out


class Cell:
    """Everything of one supervised arm, stepped by :meth:`run`."""

    def __init__(self, start=(0.256, 0.3), config=CONFIG, recipe=FOLLOWER, q=None, gripper=None):
        self.now_ns = 10_000_000_000
        self.recipe = recipe
        at = joints_at(start) if q is None else np.array(q)
        self.robot = FakeRobot(at, RATE_HZ, clock=lambda: self.now_ns)
        self.robot.connect()
        self.follower = recipe.build(RATE_HZ)
        self.grip = None
        self.link = Link.create(recipe.joints, recipe.width, grips=0 if gripper is None else 1)
        self.keeper = NoGripper()
        if gripper is not None:
            self.grip = FakeGripper(gripper.driver_config(), lambda: self.now_ns)
            self.keeper = GripperKeeper(
                self.grip, gripper, self.link.grips, clock=lambda: self.now_ns
            )
            self.keeper.connect(mounted=False)
        self.inbox = ListInbox()
        self.supervisor = Supervisor(
            *(self.robot, self.follower, config, self.link, self.inbox, lambda: self.now_ns),
            guard=recipe.guard(RATE_HZ),
            keeper=self.keeper,
        )
        self.beating = self.exchanging = True
        self.seq = -1
        self.number = 0

    @property
    def generator(self):
        """The follower's own, which makes the set-points; nothing but a test looks at it."""
        return self.follower._generator

    def run(self, seconds):
        for _ in range(round(seconds * RATE_HZ)):
            self.now_ns += TICK_NS
            if self.beating:
                self.link.heartbeat.put(self.now_ns, [0.0])
            if self.grip is not None and self.exchanging:
                self.keeper.exchange()
            self.supervisor.tick(self.now_ns)

    def ask(self, kind, waypoints=()):
        self.number += 1
        self.inbox.waiting.append(
            Request(self.number, kind, tuple(tuple(float(v) for v in w) for w in waypoints))
        )

    def command(self, xy, plan=(), due_ns=None, seq=None, width=None):
        self.seq = self.seq + 1 if seq is None else seq
        due = self.now_ns if due_ns is None else due_ns
        rest = np.array(plan, float).reshape(-1, self.recipe.width)
        grip = np.zeros(0) if width is None else np.array([width], float)
        target = Target(self.seq, due, np.array(xy, float), rest, grip)
        self.link.commands.put(self.now_ns, target.pack())

    def follow(self):
        self.ask("follow")
        self.run(0.004)
        assert self.mode is Mode.FOLLOW

    def drive(self, targets, period=0.1):
        """One command per period."""
        for xy in targets:
            self.command(xy)
            self.run(period)

    @property
    def mode(self):
        return self.supervisor.mode

    @property
    def xy(self):
        return WORKCELL.xy(UR5E, self.robot.state().joint_position)

    @property
    def status(self):
        return Status.unpack(self.link.status.latest())

    @property
    def causes(self):
        rows = self.link.events.since(0)
        return [Cause(int(v[0])) for v in rows.value]

    @property
    def events(self):
        rows = self.link.events.since(0)
        return [
            Event(int(t), Cause(int(v[0])), float(v[1]), float(v[2]), int(v[3]))
            for t, v in zip(rows.t_ns, rows.value, strict=True)
        ]

    def speeds(self, since_ns=0):
        """Joint speeds of consecutive set-points [rad/s]."""
        sent = [(t, q) for t, q in self.robot.sent if t >= since_ns]
        q = np.array([q for _, q in sent])
        return np.abs(np.diff(q, axis=0)) * RATE_HZ

    def assert_within_limits(self):
        """What the device received never left the limits, whatever was commanded."""
        limits = FOLLOWER.limits
        q = np.array([q for _, q in self.robot.sent])
        assert np.all(np.isfinite(q))
        assert np.all(self.speeds() <= 1.02 * limits.max_joint_speed)
        steps = np.diff(q, n=2, axis=0) * RATE_HZ**2
        assert np.all(np.abs(steps) <= 1.3 * limits.max_joint_acceleration)
        xy = np.array([WORKCELL.xy(UR5E, row) for row in q[:: max(1, len(q) // 200)]])
        margin = limits.workspace_margin
        assert np.all(xy >= np.array(limits.workspace_low) - margin)
        assert np.all(xy <= np.array(limits.workspace_high) + margin)

    def close(self):
        self.link.unlink()
        self.link.close()
