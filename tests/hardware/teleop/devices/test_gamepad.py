"""A gamepad's events, as the kernel writes them, on a pipe."""

import numpy as np
import pytest

from hardware.teleop.device import Surroundings
from hardware.teleop.devices.gamepad import (
    ABS,
    DROPPED,
    EAST,
    EVENT,
    HAT_Y,
    KEY,
    RX,
    RY,
    RZ,
    SELECT,
    SOUTH,
    START,
    SYN,
    TL,
    TR,
    Gamepad,
    GamepadConfig,
    X,
    Y,
    find_gamepad,
)
from robolearn.errors import ConfigError
from tests.hardware.teleop.inputs import Pad
from tests.waiting import wait_until


@pytest.fixture
def pad():
    with Pad() as pad:
        device = Gamepad(pad.open)
        yield pad, device
        device.close()
        device.close()


def deflected(device, *twist):
    wait_until(lambda: np.allclose(device.poll().motion.twist, twist, atol=1e-3), what=str(twist))


def test_sticks_move_while_a_bumper_is_held(pad):
    pad, device = pad
    reading = device.poll()
    assert reading.present
    assert not reading.clutch
    assert np.abs(reading.motion.twist).max() < 1e-4
    pad.press(TL)
    wait_until(lambda: device.poll().clutch)
    pad.stick(Y, -1.0)
    pad.stick(X, -0.5)
    pad.stick(RY, -1.0)
    pad.stick(RX, 0.25)
    pad.event(ABS, HAT_Y, -1)
    deflected(device, 1, 0.5, 1, 0, -1, -0.25)
    pad.press(TR)
    pad.release(TL)
    pad.release(TR)
    wait_until(lambda: not device.poll().clutch)


def test_trigger_and_buttons(pad):
    pad, device = pad
    assert device.poll().gripper is None
    device.begin(1.0)
    assert device.poll().gripper == 1.0
    pad.event(ABS, RZ, 255)
    wait_until(lambda: device.poll().gripper == 0.0)
    for code in (START, SOUTH, EAST, SELECT):
        pad.press(code)
        pad.event(KEY, code, 2)
        pad.release(code)
    keys = []
    wait_until(lambda: keys.extend(device.pressed()) or len(keys) == 4)
    assert keys == ["start", "keep", "discard", "quit"]


def test_a_pad_that_is_gone_has_no_hand(pad):
    pad, device = pad
    pad.press(TL)
    pad.stick(Y, -1.0)
    deflected(device, 1, 0, 0, 0, 0, 0)
    pad.unplug()
    wait_until(lambda: not device.poll().present)
    assert not device.poll().clutch
    deflected(device, 0, 0, 0, 0, 0, 0)


def test_lost_events_let_go(pad):
    pad, device = pad
    pad.press(TL)
    pad.stick(Y, -1.0)
    deflected(device, 1, 0, 0, 0, 0, 0)
    pad.event(SYN, DROPPED, 0)
    wait_until(lambda: not device.poll().clutch)
    deflected(device, 0, 0, 0, 0, 0, 0)


def test_events_may_come_in_pieces(pad):
    pad, device = pad
    whole = EVENT.pack(0, 0, KEY, TL, 1)
    pad.write(whole[:7])
    pad.write(whole[7:] + b"\x00" * 3)
    wait_until(lambda: device.poll().clutch)


def test_it_is_found(tmp_path):
    with pytest.raises(ConfigError, match="there are 0 gamepads"):
        find_gamepad(tmp_path)
    (tmp_path / "usb-Pad-event-joystick").touch()
    assert find_gamepad(tmp_path).endswith("usb-Pad-event-joystick")
    with pytest.raises(ConfigError, match="ID_INPUT_JOYSTICK"):
        GamepadConfig(path=str(tmp_path / "absent")).build(Surroundings())
