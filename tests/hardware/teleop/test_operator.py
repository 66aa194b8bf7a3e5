"""A scripted person does the task through the device's own input: bytes in, episodes out."""

import contextlib
import math

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import Surroundings
from hardware.teleop.devices.browser import BrowserDevice
from hardware.teleop.devices.freedrive import FreedriveConfig
from hardware.teleop.devices.gamepad import Gamepad
from hardware.teleop.devices.keyboard import KeyboardDevice
from hardware.teleop.devices.leader import LeaderConfig
from hardware.teleop.devices.spacemouse import SpaceMouse, SpaceMouseConfig
from hardware.teleop.operator import LeaderOperator, Operator
from hardware.teleop.page.layout import layout_of
from hardware.teleop.session.attended import AttendedEnv
from hardware.teleop.session.config import SessionConfig
from hardware.teleop.session.measured_actions import MeasuredActions
from hardware.teleop.session.session import TeleopSession
from robolearn.arms.models import UR5E
from robolearn.geometry import rotation_from_quat, yaw_of
from robolearn.runtime import run_episode
from robolearn.types import Command, Condition
from sim.worlds import build_operator, make_world
from tests.hardware.buses import JOINTS, BusArm
from tests.hardware.teleop.guided_arm import HOME, GuidedArm
from tests.hardware.teleop.inputs import (
    GrippedArm,
    KeysInput,
    Pad,
    PadInput,
    PageInput,
    Puck,
    PuckInput,
    ServoArm,
    TiltInput,
)
from tests.hardware.teleop.pages import ARM, open_page
from tests.hardware.teleop.terminals import EmulatedTerminal
from tests.hardware.teleop.test_teleop import Keeper
from tests.mocks import Listener
from tests.waiting import wait_until

CUBE = "cube/pose"


@contextlib.contextmanager
def keyboard():
    with EmulatedTerminal(kitty=True) as terminal:
        device = KeyboardDevice(terminal.written.append, terminal.slave)
        wait_until(lambda: device.tells_releases)
        yield device, KeysInput(terminal, device)
        device.close()


@contextlib.contextmanager
def puck():
    with Puck() as puck:
        device = SpaceMouse(SpaceMouseConfig(), puck.open)
        yield device, PuckInput(puck, device)
        device.close()


@contextlib.contextmanager
def browser():
    with contextlib.closing(BrowserDevice(layout_of(Surroundings(spec=ARM)))) as device:
        device.begin(1.0)
        # Simulated time runs faster than that of pages, up to what a page may say.
        with open_page(device.url, beat_s=0.008) as opened:
            wait_until(lambda: device.poll().clutch)
            yield device, PageInput(opened, device)


@contextlib.contextmanager
def phone():
    with contextlib.closing(BrowserDevice(layout_of(Surroundings(spec=ARM)))) as device:
        device.begin(1.0)
        with open_page(device.url, beat_s=0.008) as opened:
            wait_until(lambda: device.poll().clutch)
            yield device, TiltInput(opened, device, 1.0 / 20.0, 0.6)


@contextlib.contextmanager
def pad():
    with Pad() as pad:
        device = Gamepad(pad.open)
        yield device, PadInput(pad, device)
        device.close()


class Wants:
    """Somebody who wants the tool at one place, and then closed fingers there."""

    name = "wants"

    def __init__(self, goal):
        self._goal = goal

    def reset(self, seed): ...

    def request(self, observation): ...

    def decide(self, observation, reply):
        away = np.linalg.norm(observation.value("tool/pose")[:3] - self._goal[:3])
        width = np.array([0.0 if away < 0.012 else 0.08])
        action = {"tool/xyz_yaw": self._goal, "gripper/width": width}
        return Command(0, action, observation.t_ns, source="script")


class Driven(Listener):
    """Lets the operator look after every tick, and keeps what was commanded."""

    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def on_tick(self, tick):
        super().on_tick(tick)
        self.operator.look(tick.observation)


def drive(opened, max_steps, seed=3):
    with contextlib.closing(make_world("pick_place")) as env, opened() as (device, touched):
        expert = build_operator(env, "scripted", 0.0)
        expert.reset(seed)
        operator = Operator(expert, touched, env.spec.rate_hz, np.random.default_rng(seed))
        driven = Driven(operator)
        run_episode(
            env,
            TeleopAgent(device, env.spec),
            None,
            [driven],
            env.sample_condition(seed),
            max_steps=max_steps,
            task=env.task,
            env_name=env.spec.name,
        )
    return driven


@pytest.mark.slow
@pytest.mark.parametrize("opened", [keyboard, puck, pad, browser, phone])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_person_puts_the_cube_on_the_square(opened, seed):
    driven = drive(opened, 1200, seed)
    outcome = driven.ends[0]
    print(f"{opened.__name__}, start {seed}: {outcome.reason} after {len(driven.ticks) / 20:.1f} s")
    assert outcome.success


@pytest.mark.parametrize(
    "opened",
    [
        keyboard,
        pytest.param(puck, marks=pytest.mark.slow),
        pytest.param(pad, marks=pytest.mark.slow),
        pytest.param(browser, marks=pytest.mark.slow),
        pytest.param(phone, marks=pytest.mark.slow),
    ],
)
def test_a_person_brings_the_hand_to_the_cube(opened):
    driven = drive(opened, 110)
    ticks = driven.ticks
    commands = np.array([t.command.action["tool/xyz_yaw"] for t in ticks])
    assert "human" in ticks[-1].command.source
    # 0.25 m/s at 20 Hz along each axis, and no jump anywhere.
    assert np.abs(np.diff(commands[:, :3], axis=0)).max() <= 0.25 / 20 + 1e-6
    first, last = ticks[0].observation, ticks[-1].observation
    cube = first.value(CUBE)[:2]
    away = [np.linalg.norm(o.value("tool/pose")[:2] - cube) for o in (first, last)]
    assert away[1] < 0.02 < away[0]


def test_a_person_turns_the_tool_by_turning_a_phone():
    """A whole attempt by the page's messages: pads to move, the phone's orientation to turn."""
    goal = np.array([0.04, -0.03, 0.2, 0.5])
    with contextlib.closing(make_world("pick_place")) as env, phone() as (device, touched):
        operator = Operator(Wants(goal), touched, env.spec.rate_hz, np.random.default_rng(5))
        driven = Driven(operator)
        run_episode(
            *(env, TeleopAgent(device, env.spec), None, [driven], env.sample_condition(5)),
            max_steps=160,
            task=env.task,
            env_name=env.spec.name,
        )
    last = driven.ticks[-1].observation.value("tool/pose")
    assert np.linalg.norm(last[:3] - goal[:3]) < 0.015
    yaw = yaw_of(rotation_from_quat(last[3:]))
    assert abs(math.remainder(yaw - goal[3], 2 * math.pi)) < 0.12
    commands = np.array([t.command.action["tool/xyz_yaw"] for t in driven.ticks])
    # Turned by the phone, at the speed of the hand, without a jump where hand and pads change.
    assert touched.turned > 5
    assert np.abs(np.diff(commands[:, 3])).max() < 0.1
    assert np.abs(np.diff(commands[:, :3], axis=0)).max() <= 0.25 / 20 + 1e-6


def test_a_person_reaches_with_a_leader_arm(tmp_path):
    """Through the servos' own protocol, paired by signs; the follower never jumps."""
    signs = (1.0, -1.0, 1.0, 1.0, 1.0)
    with contextlib.closing(make_world("so101_reach")) as env, BusArm("feetech", tmp_path) as arm:
        arm.whole_tick()
        config = LeaderConfig(
            port=arm.config.port,
            calibration=arm.config.calibration,
            joints=JOINTS[:5],
            signs=signs,
            reply_slack_s=arm.config.reply_slack_s,
        )
        with contextlib.closing(config.build(Surroundings())) as device:
            expert = build_operator(env, "scripted", 0.0)
            expert.reset(4)
            rng = np.random.default_rng(4)
            touched = ServoArm(arm, device, signs)
            driven = Driven(LeaderOperator(expert, touched, env.spec.rate_hz, rng))
            run_episode(
                *(env, TeleopAgent(device, env.spec), None, [driven], env.sample_condition(4)),
                max_steps=200,
                task=env.task,
                env_name=env.spec.name,
            )
    assert driven.ends[0].success
    sources = [t.command.source for t in driven.ticks]
    assert sources[-1] == "human:leader"
    commands = np.array([t.command.action["arm/joint_position"] for t in driven.ticks])
    # The ramp at first, then the hand's speed and its trembling.
    assert np.abs(np.diff(commands, axis=0)).max() < 0.15


def test_a_person_guides_the_arm_itself_and_grips_by_a_key():
    """A whole session of freedrive: terminal, hand, session, recorded actions."""
    arm, keeper = GuidedArm(), Keeper()
    goal = arm.tool + np.array([0.06, -0.08, 0.05])
    with EmulatedTerminal(kitty=True) as terminal:
        device = FreedriveConfig(terminal.slave).build(Surroundings(write=terminal.written.append))
        yaw = yaw_of(UR5E.fk(HOME)[:3, :3])
        touched = GrippedArm(arm, terminal, device)
        operator = Operator(
            Wants(np.array([*goal, yaw])), touched, arm.spec.rate_hz, np.random.default_rng(6)
        )
        pressed = []

        def answer(view):
            key = {"ready": "space", "review": "enter"}.get(view.phase)
            if key is not None and pressed[-1:] != [key]:
                pressed.append(key)
                terminal.press(key)
                terminal.release(key)

        session = TeleopSession(
            AttendedEnv(arm, arm, guided=True),
            device,
            MeasuredActions(keeper, arm.spec),
            SessionConfig(
                episodes=1,
                max_steps=400,
                seed=1,
                task="place",
                env_name="guided",
                condition=lambda seed: Condition(
                    f"c{seed}", seed, {"goal/place": tuple(map(float, goal))}
                ),
                poll_s=0.002,
                on_view=answer,
            ),
            watching=[Driven(operator)],
        )
        assert len(session.run()) == 1
        device.close()
    assert pressed == ["space", "enter"]
    assert keeper.verdicts == ["keep"]
    assert keeper.ends[0].success
    assert arm.said[:3] == ["reset", "hold", "gives way"]
    ticks = keeper.ticks
    assert {t.command.source for t in ticks} == {"human:freedrive"}
    # What is recorded is where the hand brought the arm by the next tick.
    actions = np.array([t.command.action["tool/pose"] for t in ticks])
    seen = np.array([t.observation.value("tool/pose") for t in ticks])
    np.testing.assert_allclose(actions[:-1], seen[1:], atol=1e-9)
    assert np.linalg.norm(actions[-1][:3] - goal) < 0.02
    widths = [float(t.command.action["gripper/width"][0]) for t in ticks]
    assert (widths[0], widths[-1]) == (0.08, 0.0)
