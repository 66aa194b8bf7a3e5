"""A device of one's own, in one file, written by the page alone."""

import itertools
import os
import re
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.combined import WithKeys
from hardware.teleop.device import Surroundings, TeleopDevice
from hardware.teleop.registry import DEVICES, make_device
from robolearn.errors import ConfigError
from robolearn.operations.collect import choose_operator, require_correctable
from tests.hardware.teleop.pages import ARM
from tests.hardware.teleop.terminals import EmulatedTerminal
from tests.mocks import observation
from tests.waiting import wait_until

PAGE = Path(__file__).parents[3] / "docs" / "teleoperation.md"
KIND = "udp_hand:UdpHandConfig"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which somebody works, with the page's file."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "udp_hand.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "udp_hand", None)
    del sys.modules["udp_hand"]
    return tmp_path


def test_the_pages_device_drives_an_arm_and_lets_go(folder, monkeypatch):
    with EmulatedTerminal(kitty=False) as terminal:
        stdin = os.fdopen(os.dup(terminal.slave))
        monkeypatch.setattr(sys, "stdin", stdin)
        ours, there = socket.socket(type=socket.SOCK_DGRAM), ("127.0.0.1", free_port())
        device = make_device({"kind": KIND, "port": there[1]}, Surroundings(spec=ARM))
        assert isinstance(device, WithKeys)
        agent, ticks = TeleopAgent(device, ARM), itertools.count()
        pose = np.array([0.0, 0.0, 0.2, 0.0, 1.0, 0.0, 0.0])

        def moved(*texts):
            """How far forward a tick commands after these packets."""
            for text in texts:
                ours.sendto(text.encode(), there)
            seen = observation(
                next(ticks) * 50_000_000, tool__pose=pose, gripper__width=np.full(1, 0.1)
            )
            return float(agent.decide(seen, None).action["tool/xyz_yaw"][0])

        def drives(text):
            wait_until(lambda: moved("0 0 0 0 0 0 1") == moved("0 0 0 0 0 0 1") and agent.engaged)
            wait_until(lambda: moved(text) > 0.001)

        try:
            drives("1 0 0 0 0 0 1")
            for nonsense in (
                "what",
                "nan 0 0 0 0 0 1",
                "1 0 1",
                "1e308 0 0 0 0 0 1",
                "",
                "1 " * 99,
            ):
                moved("1 0 0 0 0 0 1", nonsense)
                assert not agent.engaged, nonsense
                drives("1 0 0 0 0 0 1")
            moved("1 0 0 0 0 0 0")
            assert agent.note == "nobody holds the device"
        finally:
            device.close()
            ours.close()
            stdin.close()


def test_the_pages_device_is_what_a_device_must_be(folder):
    device = DEVICES.find(KIND)(port=0).build(Surroundings(spec=ARM))
    assert isinstance(device, TeleopDevice)
    device.close()
    device.close()


def free_port():
    with socket.socket(type=socket.SOCK_DGRAM) as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


def test_its_name_is_one_wherever_a_device_has_one(folder):
    assert KIND in DEVICES
    assert KIND not in list(DEVICES)
    assert choose_operator(KIND, "pick_place", ARM) == KIND
    require_correctable(Path("run"), KIND)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("udp_hand:Nothing", "Nothing"),
        ("udp_hand:UdpHand", "expected a dataclass"),
        ("no_such_file:Config", "of a Python file in this folder"),
        (":", "cannot be imported"),
        ("udp_hand:", "cannot be imported"),
    ],
)
def test_what_is_no_device_of_ones_own_is_one_line(folder, kind, words):
    with pytest.raises(ConfigError, match=words) as told:
        make_device({"kind": kind}, Surroundings())
    assert "\n" not in str(told.value)
