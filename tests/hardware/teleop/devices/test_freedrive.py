"""The arm itself as a device: the terminal's keys, and the terminal's focus."""

from hardware.teleop.device import Guided, Surroundings, TeleopDevice
from hardware.teleop.devices.freedrive import FreedriveConfig
from tests.hardware.teleop.terminals import EmulatedTerminal
from tests.waiting import wait_until


def test_keys_start_and_grip_and_whoever_is_away_has_let_go():
    with EmulatedTerminal(kitty=True) as terminal:
        around = Surroundings(write=terminal.written.append)
        device = FreedriveConfig(terminal.slave).build(around)
        assert isinstance(device, TeleopDevice)
        assert device.name == "freedrive"
        assert "the arm gives way" in terminal.written[0]
        device.begin(1.0)
        reading = device.poll()
        assert (reading.present, reading.clutch, reading.gripper) == (True, True, 1.0)
        assert reading.motion == Guided()
        terminal.press("space")
        terminal.press("g")
        wait_until(lambda: device.poll().gripper == 0.0)
        assert device.pressed() == ("start",)
        # Keys that would move another arm mean nothing here.
        terminal.press("w")
        terminal.focus(False)
        wait_until(lambda: not device.poll().present)
        terminal.focus(True)
        wait_until(lambda: device.poll().clutch)
        device.close()
        assert not terminal.tells_focus or wait_until(lambda: not terminal.tells_focus)
