"""A person at a device takes over from a policy: every kind of device, no jump at either edge."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import (
    DeviceReading,
    HandPose,
    JointAngles,
    Key,
    Motion,
    Rate,
    Steps,
    TablePoint,
    View,
)
from hardware.teleop.session.attended import AttendedEnv
from hardware.teleop.session.config import Corrected, SessionConfig
from hardware.teleop.session.session import TeleopSession
from hardware.teleop.touch import Touching
from robolearn.agents.chunk import ChunkAgent
from robolearn.agents.easing import EasingConfig
from robolearn.agents.take_over import Person, TakeOver, TakeOverConfig
from robolearn.data.episode import drivers
from robolearn.inference.local import InProcessInference
from robolearn.runtime import run_episode
from robolearn.types import Tick
from tests.mocks import (
    CONDITION,
    POLICY_SPEC,
    SPEC,
    TOOL,
    Listener,
    PointEnv,
    WalkPolicy,
    observation,
)

CONFIG = MappingConfig()


def rate(x: float) -> Rate:
    return Rate(np.array([x, 0.0, 0.0, 0.0, 0.0, 0.0]))


@dataclass
class Device:
    """Says ``readings`` one by one, a tick each."""

    readings: list[DeviceReading]
    keys: dict[int, Key] = field(default_factory=dict)
    name: str = "device"
    lease_s: float = 1e9
    tick: int = -1

    def begin(self, opening: float | None) -> None:
        del opening

    def poll(self) -> DeviceReading:
        return self.readings[min(max(self.tick, 0), len(self.readings) - 1)]

    def pressed(self) -> tuple[Key, ...]:
        # Asked once at every tick.
        self.tick += 1
        return (self.keys[self.tick],) if self.tick in self.keys else ()

    def show(self, view: View) -> None:
        del view

    def close(self) -> None:
        pass


def readings(*motions: Motion | None, clutch: bool = True) -> list[DeviceReading]:
    now = time.monotonic_ns()
    return [DeviceReading(now, present=True, clutch=clutch, motion=m) for m in motions]


class _Keys(Listener):
    """Reads the keys at the end of every tick, as a session does."""

    def __init__(self, device: Device, person: TeleopAgent) -> None:
        super().__init__()
        self.device, self.person = device, person

    def on_tick(self, tick: Tick) -> None:
        super().on_tick(tick)
        for key in self.device.pressed():
            self.person.press(key)


class Keeper(Listener):
    def spare(self) -> None:
        """It is kept anyway."""

    def keep(self) -> str:
        return "ep_000001"

    def discard(self) -> None:
        raise AssertionError("this one is kept")


def test_in_a_session_the_policy_drives_until_the_device_is_touched() -> None:
    """The session reads all keys, and tells the agent of its two."""
    device = Device(readings(*[rate(0.0)] * 30), {1: "start", 4: "takeover", 7: "handback"})
    config = SessionConfig(1, 9, 3, "walk", "point", lambda seed: CONDITION, {}, 0.001)
    env = PointEnv()
    env.capabilities = dataclasses.replace(env.capabilities, faster_than_real_time=False)
    policy = ChunkAgent(POLICY_SPEC, SPEC, name="walk")
    keeper = Keeper()
    corrected = Corrected(policy, InProcessInference(WalkPolicy()))
    device.keys |= {20: "keep"}
    assert TeleopSession(AttendedEnv(env), device, keeper, config, corrected).run() == (
        "ep_000001",
    )
    assert keeper.headers[0].agent == "walk corrected by human:device"
    said = {"policy": "p", "human": "h", "nobody": "-"}
    text = "".join(said[d] for d in drivers([t.command.source for t in keeper.ticks]))
    assert text == "ppphhh-pp"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (TakeOverConfig(), "pph-----"),
        (TakeOverConfig(samples=1, hold_s=0.0), "phh-pppp"),
        (TakeOverConfig(dead_zone=0.7), "pppppppp"),
    ],
    ids=["usual", "at once", "a firm hand"],
)
def test_what_counts_as_a_touch_in_a_session_is_said_by_its_config(
    config: TakeOverConfig, said: str
) -> None:
    motions = [0.0, 0.0, 0.5, 0.5, *[0.0] * 20]
    device = Device(readings(*[rate(v) for v in motions]), {1: "start"})
    settings = SessionConfig(
        *(1, 12, 3, "walk", "point", lambda seed: CONDITION, {}, 0.001), takeover=config
    )
    env = PointEnv()
    env.capabilities = dataclasses.replace(env.capabilities, faster_than_real_time=False)
    policy = ChunkAgent(POLICY_SPEC, SPEC, name="walk")
    device.keys |= {20: "keep"}
    keeper = Keeper()
    corrected = Corrected(policy, InProcessInference(WalkPolicy()))
    TeleopSession(AttendedEnv(env), device, keeper, settings, corrected).run()
    letters = {"policy": "p", "human": "h", "nobody": "-"}
    text = "".join(letters[d] for d in drivers([t.command.source for t in keeper.ticks]))
    assert text[: len(said)] == said


def drive(device: Device, ticks: int) -> tuple[str, np.ndarray]:
    person = TeleopAgent(device, SPEC, CONFIG)
    config = TakeOverConfig(easing=EasingConfig(speed_m_s=0.05))
    agent = TakeOver(ChunkAgent(POLICY_SPEC, SPEC, name="walk"), person, SPEC, config)
    listener = _Keys(device, person)
    run_episode(
        PointEnv(), agent, InProcessInference(WalkPolicy()), [listener], CONDITION, max_steps=ticks
    )
    said = {"policy": "p", "human": "h", "nobody": "-"}
    text = "".join(said[d] for d in drivers([t.command.source for t in listener.ticks]))
    return text, np.array([t.command.action[TOOL] for t in listener.ticks])


def test_a_deflection_takes_over_at_once_and_letting_go_hands_back() -> None:
    """Forward is up the table: y. A tick is a tenth of a second."""
    motions = [rate(0.05)] * 4 + [rate(1.0)] * 8 + [rate(0.0)] * 12
    text, places = drive(Device(readings(*motions)), 24)
    # Only the second sample counts as a touch, and the hold is taken at once.
    assert text == "pppppp" + "h" * 7 + "-----" + "-" + "p" * 5
    by_hand = places[6:13, 1]
    assert (np.diff(by_hand) > 0).all()
    # Full speed, between two ramps.
    assert by_hand[-2] - by_hand[-3] == pytest.approx(0.025)
    moved = np.linalg.norm(np.diff(places[5:], axis=0), axis=1)
    assert moved.max() <= 0.025 + 0.005 + 1e-6
    np.testing.assert_array_equal(places[18], places[17])


def test_keys_take_over_and_hand_back_whatever_the_device() -> None:
    still = readings(*[rate(0.0)] * 12)
    text, _ = drive(Device(still, {2: "takeover", 9: "handback"}), 12)
    # A key counts at the tick after.
    assert text == "ppp" + "h" * 7 + "-p"


def test_what_counts_as_a_touch() -> None:
    at = observation(0, tool__xy_table=np.array([0.1, 0.2]))
    touching = Touching(CONFIG, 1e9)

    def level(motion: Motion | None, clutch: bool = True) -> float:
        return touching.touch(readings(motion, clutch=clutch)[0], (), at).level

    assert level(rate(-0.7)) == pytest.approx(0.7)
    assert level(rate(float("nan"))) == 0.0
    assert level(HandPose(np.eye(4))) == 1.0
    assert level(HandPose(np.eye(4)), clutch=False) == level(None) == 0.0
    assert level(TablePoint(np.array([0.11, 0.2]))) == 1.0
    assert level(TablePoint(np.array([0.3, 0.2]))) == 0.0
    # Steps since the device was opened are no touch; another one is, for a moment.
    total = np.full(6, 3.0)
    assert level(Steps(total)) == 0.0
    assert level(Steps(total + 0.005)) == level(Steps(total + 0.005)) == 1.0
    touching.reset()
    assert level(Steps(total)) == 0.0


def test_a_leader_arm_takes_over_where_it_stands_beside_the_arm() -> None:
    at = observation(0, arm__joint_position=np.zeros(3))
    touching = Touching(CONFIG, 1e9)
    for q, aligned in ((np.full(3, 0.7), True), (np.full(3, 0.9), False), (np.zeros(6), False)):
        found = touching.touch(readings(JointAngles(q))[0], ("marker", "takeover"), at)
        assert (found.level, found.wish, found.aligned) == (0.0, "take_over", aligned)
    assert touching.touch(readings(None)[0], ("takeover", "handback"), at).wish == "hand_back"


def test_a_device_that_is_silent_or_away_is_not_there() -> None:
    at = observation(0, tool__xy_table=np.zeros(2))
    here = readings(rate(1.0))[0]
    assert Touching(CONFIG, 1.0).touch(here, (), at).present
    away = dataclasses.replace(here, present=False)
    silent = dataclasses.replace(here, t_ns=here.t_ns - 2_000_000_000)
    assert not Touching(CONFIG, 1.0).touch(away, (), at).present
    assert not Touching(CONFIG, 1.0).touch(silent, (), at).present
    assert isinstance(TeleopAgent(Device(readings(None)), SPEC), Person)
