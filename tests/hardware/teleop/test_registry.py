import os
import sys
from pathlib import Path

import pytest

from hardware.teleop.combined import WithKeys
from hardware.teleop.device import Surroundings, TeleopDevice
from hardware.teleop.devices import spacemouse
from hardware.teleop.registry import DEVICES, make_device
from robolearn.errors import ConfigError, RobolearnError
from tests.hardware.teleop.inputs import Puck
from tests.hardware.teleop.terminals import EmulatedTerminal
from tests.waiting import wait_until


@pytest.mark.parametrize("name", list(DEVICES))
def test_every_device_has_a_config_that_says_where_its_keys_are(name):
    needed = {"port": "/dev/null", "calibration": Path("arm.yaml"), "joints": ("a",)}
    config = DEVICES.find(name)(**(needed if name == "leader" else {}))
    assert config.keys in ("own", "welcome", "needed")


def test_a_hand_without_keys_has_those_of_the_terminal(monkeypatch, tmp_path):
    settings = {"kind": "spacemouse", "path": str(tmp_path / "hidraw0")}
    with EmulatedTerminal(kitty=False) as terminal, Puck() as puck:
        stdin = os.fdopen(os.dup(terminal.slave))
        monkeypatch.setattr(sys, "stdin", stdin)
        # A device that does not open leaves the terminal as it was.
        with pytest.raises(ConfigError, match="hidraw0"):
            make_device(settings, Surroundings())
        wait_until(lambda: not terminal.tells_focus)
        monkeypatch.setattr(spacemouse, "open_file", lambda _: puck.open())
        device = make_device(settings, Surroundings(write=terminal.written.append))
        assert isinstance(device, TeleopDevice)
        assert isinstance(device, WithKeys)
        assert (device.name, device.lease_s) == ("spacemouse", 0.1)
        device.begin(1.0)
        terminal.type(b" ")
        wait_until(lambda: device.pressed() == ("start",))
        puck.report(1, 0, -350, 0, 0, 0, 0)
        wait_until(lambda: device.poll().motion.twist[0] == 1.0)
        device.close()
        stdin.close()


def test_without_a_terminal(monkeypatch, tmp_path):
    with open(os.devnull) as nothing:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdin", nothing)
        leader = {"kind": "leader", "port": "/dev/null", "calibration": "x", "joints": ["a"]}
        with pytest.raises(ConfigError, match="needs a terminal"):
            make_device(leader, Surroundings())
        # A puck has buttons of its own.
        with pytest.raises(ConfigError, match="idVendor"):
            make_device({"kind": "spacemouse", "path": str(tmp_path / "x")}, Surroundings())
    with pytest.raises(RobolearnError, match="no teleoperation device 'mouse'"):
        make_device({"kind": "mouse"}, Surroundings())


def test_a_config_that_is_no_devices_is_refused(monkeypatch):
    monkeypatch.setattr(DEVICES, "find", lambda *_, **__: Surroundings)
    with pytest.raises(ConfigError, match="Surroundings needs 'keys' and 'build"):
        make_device({"kind": "other"}, Surroundings())


def test_a_device_whose_settings_nobody_can_guess_says_where_to_give_them():
    with pytest.raises(ConfigError, match=r"'port' is missing .* below 'device:' .*--config"):
        make_device({"kind": "leader"}, Surroundings())
