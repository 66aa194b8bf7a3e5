"""A scripted person does the task through the device's own input: bytes in, episodes out."""

import contextlib

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import Surroundings
from hardware.teleop.devices.browser import BrowserDevice
from hardware.teleop.devices.gamepad import Gamepad
from hardware.teleop.devices.keyboard import KeyboardDevice
from hardware.teleop.devices.spacemouse import SpaceMouse, SpaceMouseConfig
from hardware.teleop.operator import Operator
from hardware.teleop.page.layout import layout_of
from robolearn.runtime import run_episode
from sim.worlds import build_operator, make_world
from tests.hardware.teleop.inputs import KeysInput, Pad, PadInput, PageInput, Puck, PuckInput
from tests.hardware.teleop.pages import ARM, open_page
from tests.hardware.teleop.terminals import EmulatedTerminal
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
def pad():
    with Pad() as pad:
        device = Gamepad(pad.open)
        yield device, PadInput(pad, device)
        device.close()


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
@pytest.mark.parametrize("opened", [keyboard, puck, pad, browser])
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
