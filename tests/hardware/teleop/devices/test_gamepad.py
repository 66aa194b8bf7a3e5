"""A gamepad's events, as the kernel writes them, on a pipe."""

import numpy as np
import pytest

from hardware.teleop.device import Surroundings
from hardware.teleop.devices import gamepad
from hardware.teleop.devices.gamepad import (
    ABS,
    DROPPED,
    EAST,
    EVENT,
    HAT_Y,
    KEY,
    NORTH,
    RX,
    RY,
    RZ,
    SELECT,
    SOUTH,
    START,
    SYN,
    TL,
    TL2,
    TR,
    WEST,
    Gamepad,
    GamepadConfig,
    X,
    Y,
    Z,
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


@pytest.mark.parametrize("by", ["axis", "button"])
def test_the_left_trigger_makes_buttons_say_what_ends_an_attempt(pad, by):
    pad, device = pad
    said = []

    def pressed(*codes):
        for code in codes:
            pad.press(code)
            pad.release(code)
        wait_until(lambda: said.extend(device.pressed()) or len(said) >= len(codes))
        found, said[:] = list(said), []
        return found

    def trigger(held):
        if by == "axis":
            pad.event(ABS, Z, 255 if held else 128)
        else:
            (pad.press if held else pad.release)(TL2)

    trigger(True)
    assert pressed(SOUTH, EAST, START, NORTH) == ["success", "failure", "redo", "marker"]
    # What it does not know so says nothing: a hand that slips does not end the session.
    pad.press(SELECT)
    pad.press(WEST)
    assert pressed(SOUTH) == ["success"]
    trigger(False)
    assert pressed(SOUTH, START) == ["keep", "start"]
    # Lost events may be its release.
    trigger(True)
    pad.event(SYN, DROPPED, 0)
    assert pressed(SOUTH) == ["keep"]


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


def test_a_stick_that_is_held_over_while_events_are_lost_is_no_rest(pad, monkeypatch):
    pad, device = pad
    pad.press(TL)
    wait_until(lambda: device.poll().clutch)
    # What the kernel knows of the axes when it says that it lost some events.
    told = {Y: -32768}
    usual = (-32768, 32767)
    monkeypatch.setattr(gamepad, "read_axis", lambda fd, code: (told.get(code, 0), usual))
    pad.event(SYN, DROPPED, 0)
    deflected(device, 1, 0, 0, 0, 0, 0)
    assert not device.poll().clutch


def system(folder, **buttons):
    """Event devices of sysfs, and which keys each has."""
    for name, keys in buttons.items():
        bits = sum(1 << key for key in keys)
        words = [f"{bits >> 64 * k & 2**64 - 1:x}" for k in reversed(range(5))]
        capabilities = folder / "sys" / name / "device" / "capabilities"
        capabilities.mkdir(parents=True)
        (capabilities / "key").write_text(" ".join(words) + "\n")
    return folder / "dev", folder / "sys"


def test_it_is_found(tmp_path):
    with pytest.raises(ConfigError, match="there are 0 gamepads"):
        find_gamepad(tmp_path, tmp_path)
    # A keyboard, what says nothing, and a pad of the radio, which has no name of its own.
    dev, sys = system(tmp_path, event0=(30, 31), event2=(), event11=(SOUTH, TL))
    (sys / "event5").mkdir()
    assert find_gamepad(dev, sys) == str(dev / "event11")
    # One with a cable has: it is there again under it when it was unplugged.
    (dev / "by-id").mkdir(parents=True)
    (dev / "event11").touch()
    (dev / "by-id" / "usb-Pad-event-joystick").symlink_to("../event11")
    assert find_gamepad(dev, sys).endswith("usb-Pad-event-joystick")
    system(tmp_path, event12=(SOUTH,))
    with pytest.raises(ConfigError, match=r"there are 2 gamepads .*event12"):
        find_gamepad(dev, sys)


def test_what_is_no_gamepad_is_refused_and_not_kept(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="ID_INPUT_JOYSTICK"):
        GamepadConfig(path=str(tmp_path / "absent")).build(Surroundings())
    config = GamepadConfig(path=str(tmp_path / "js0"))
    (tmp_path / "js0").touch()
    for _ in range(2):
        with pytest.raises(ConfigError, match="no event device of the kernel"):
            config.build(Surroundings())
    keyboard = (1 << 30).to_bytes(96, "little")
    monkeypatch.setattr(gamepad.fcntl, "ioctl", lambda *_: keyboard)
    with pytest.raises(ConfigError, match="another device than a gamepad"):
        config.build(Surroundings())
