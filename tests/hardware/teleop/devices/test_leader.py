"""A leader arm: emulated servos on a pty, without torque, moved by the test."""

import dataclasses
import math

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import Surroundings
from hardware.teleop.devices.leader import LeaderConfig
from robolearn.errors import ConfigError, RobotConnectionError, RobotError
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from tests.hardware.buses import JOINTS, START, BusArm
from tests.mocks import observation
from tests.waiting import wait_until

SIGNS = (1.0, -1.0, 1.0, 1.0, 1.0)
FOLLOWER = EmbodimentSpec(
    "follower",
    (SignalSpec("arm/joint_position", (5,), "rad"), SignalSpec("gripper/width", (1,), "m")),
    (
        ActionSpec("arm/joint_position", (5,), "rad", low=(-2.0,) * 5, high=(2.0,) * 5),
        ActionSpec("gripper/width", (1,), "m", low=(0.0,), high=(0.1,)),
    ),
    50.0,
)


@pytest.fixture(params=["feetech", "dynamixel"])
def arm(request, tmp_path):
    with BusArm(request.param, tmp_path) as arm:
        # The first of everything takes its time.
        arm.whole_tick()
        yield request.param, arm


def leader(kind, arm, **more):
    config = arm.config
    return LeaderConfig(
        port=config.port,
        calibration=config.calibration,
        joints=JOINTS[:5],
        family=kind,
        reply_slack_s=config.reply_slack_s,
        **more,
    )


def test_the_follower_comes_slowly_and_then_follows(arm):
    kind, arm = arm
    device = leader(kind, arm, gripper="gripper", signs=SIGNS).build(Surroundings())
    wanted = START[:5] * SIGNS
    assert device.poll().motion.q == pytest.approx(wanted, abs=2e-3)
    agent, q, steps = TeleopAgent(device, FOLLOWER), wanted + 0.3, []
    for k in range(60):
        width = np.array([0.05])
        seen = observation(20_000_000 * k, arm__joint_position=q, gripper__width=width)
        command = agent.decide(seen, None)
        steps.append(np.abs(command.action["arm/joint_position"] - q).max())
        q = command.action["arm/joint_position"]
        assert agent.engaged
    assert max(steps[:10]) <= 0.02 + 1e-9
    assert q == pytest.approx(wanted, abs=2e-3)
    arm.do(lambda: arm.plant.set_joints(np.add(START, (0.0, 0.2, 0, 0, 0, 0))))
    there = wanted - [0, 0.2, 0, 0, 0]
    wait_until(lambda: np.allclose(device.poll().motion.q, there, atol=2e-3))
    command = agent.decide(observation(10**10, arm__joint_position=q, gripper__width=width), None)
    assert command.action["arm/joint_position"] == pytest.approx(there, abs=2e-3)
    # One that stands 1 rad away is not followed.
    agent.reset(0)
    far = observation(0, arm__joint_position=np.add(there, (1, 0, 0, 0, 0)), gripper__width=width)
    assert agent.decide(far, None).source == "hold"
    assert "joint 1 is 1.00 rad away" in agent.note
    device.close()
    device.close()


def test_ranges_are_stretched(arm):
    kind, arm = arm
    low, high = (-1.0,) * 5, (1.0,) * 5
    device = leader(kind, arm, low_rad=low, high_rad=high).build(Surroundings())
    own = np.array([s.range_rad() for s in arm.calibration.servos[:5]])
    share = (START[:5] - own[:, 0]) / (own[:, 1] - own[:, 0])
    assert device.poll().motion.q == pytest.approx(2 * share - 1, abs=2e-3)
    with pytest.raises(RobotConnectionError, match="is in use by process"):
        leader(kind, arm).build(Surroundings())
    device.close()


def test_a_leader_that_is_unplugged_is_nobodys(arm):
    kind, arm = arm
    device = leader(kind, arm).build(Surroundings())
    assert device.poll().present
    arm.line.unplug()
    wait_until(lambda: not device.poll().present)
    device.close()


def test_a_leader_with_torque_is_refused(arm):
    kind, arm = arm
    arm.make().connect()
    arm.robots.pop().close()
    with pytest.raises(RobotError, match="robolearn servos release"):
        leader(kind, arm).build(Surroundings())


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"signs": (1.0,)}, "signs has 2 numbers"),
        ({"signs": (1.0, 0.5)}, "signs are 1 or -1"),
        ({"rate_hz": math.inf}, "rate_hz is positive"),
        ({"offsets_rad": (0.0, math.nan)}, "are angles"),
        ({"low_rad": (0.0, 0.0)}, "go together"),
        (
            {"low_rad": (0.0, 0.0), "high_rad": (1.0, 1.0), "offsets_rad": (0.0, 1.0)},
            "not by both",
        ),
    ],
)
def test_pairings_without_sense_are_refused(tmp_path, wrong, told):
    config = LeaderConfig(port="/dev/null", calibration=tmp_path / "arm.yaml", joints=("a", "b"))
    with pytest.raises(ConfigError, match=told):
        dataclasses.replace(config, **wrong)
