"""A SpaceMouse's reports, as they were recorded from the models' layouts, on a socket."""

import math
import time

import numpy as np
import pytest

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import Surroundings, View
from hardware.teleop.devices import spacemouse
from hardware.teleop.devices.spacemouse import (
    SpaceMouse,
    SpaceMouseConfig,
    find_space_mouse,
    require_space_mouse,
)
from robolearn.errors import ConfigError, RobotConnectionError
from tests.hardware.teleop.inputs import Puck
from tests.mocks import SPEC, observation
from tests.waiting import wait_until


@pytest.fixture
def puck():
    with Puck() as puck:
        device = SpaceMouse(SpaceMouseConfig(), puck.open)
        yield puck, device
        device.close()
        device.close()


def deflected(device, *twist):
    return wait_until(lambda: np.allclose(device.poll().motion.twist, twist), what=str(twist))


def test_axes_are_the_persons_in_both_layouts(puck):
    puck, device = puck
    assert device.poll().clutch
    # Right, back, down; turned about right, back, down.
    puck.report(1, 350, 0, 0, 0, 0, 0)
    deflected(device, 0, -1, 0, 0, 0, 0)
    puck.report(1, 0, -175, 0, 0, 0, 0)
    deflected(device, 0.5, 0, 0, 0, 0, 0)
    puck.report(1, 0, 0, -350, 0, 0, 700)
    deflected(device, 0, 0, 1, 0, 0, -1)
    # The older models tell rotations apart.
    puck.report(1, 0, 0, 0)
    deflected(device, 0, 0, 0, 0, 0, -1)
    puck.report(2, -350, 0, 0)
    deflected(device, 0, 0, 0, 0, 1, 0)


def test_no_report_waits_in_a_queue(puck):
    puck, device = puck
    # 1 s of reports at once: a reader of one report a tick would need 50 s for them.
    for k in range(125):
        puck.report(1, 0, -k, 0, 0, 0, 0)
    puck.report(1, 0, 0, 0, 0, 0, 0)
    deflected(device, 0, 0, 0, 0, 0, 0)
    puck.report(1, 0, -350, 0, 0, 0, 0)
    deflected(device, 1, 0, 0, 0, 0, 0)


def test_silence_while_it_is_deflected_is_no_hand(puck):
    puck, device = puck
    agent = TeleopAgent(device, SPEC)
    here = observation(0, tool__xy_table=np.array([0.1, 0.2]))
    assert agent.decide(here, None).source == "human:spacemouse"
    puck.report(1, 0, -350, 0, 0, 0, 0)
    deflected(device, 1, 0, 0, 0, 0, 0)
    assert agent.decide(here, None).source == "human:spacemouse"
    t_ns = device.poll().t_ns
    wait_until(lambda: time.monotonic_ns() - t_ns > device.lease_s * 1e9)
    assert agent.decide(here, None).source == "hold"
    # The next report finds it still deflected: it must come to rest first.
    puck.report(1, 0, -350, 0, 0, 0, 0)
    wait_until(lambda: device.poll().t_ns > t_ns)
    assert agent.decide(here, None).source == "hold"
    puck.report(1, 0, 0, 0, 0, 0, 0)
    deflected(device, 0, 0, 0, 0, 0, 0)
    assert agent.decide(here, None).source == "human:spacemouse"


def test_rubbish_is_passed_over(puck):
    puck, device = puck
    for data in (b"\x01", b"\x02\x00", b"\x03", b"\xff" * 64, b"\x01" + bytes(3)):
        puck.ours.send(data)
    puck.report(1, 0, -350, 0, 0, 0, 0)
    deflected(device, 1, 0, 0, 0, 0, 0)


def test_unplugged_and_plugged_in_again():
    with Puck() as first, Puck() as second:
        plugged = [first]

        def plug():
            if not plugged:
                raise FileNotFoundError(2, "No such file or directory")
            return plugged[0].open()

        device = SpaceMouse(SpaceMouseConfig(), plug)
        first.report(1, 0, -350, 0, 0, 0, 0)
        deflected(device, 1, 0, 0, 0, 0, 0)
        plugged.clear()
        first.unplug()
        wait_until(lambda: not device.poll().present)
        assert not device.poll().motion.twist.any()
        plugged.append(second)
        wait_until(lambda: second.opened)
        second.report(1, 0, 0, 0, 0, 0, 0)
        wait_until(lambda: device.poll().present)
        device.close()


def test_buttons(puck):
    puck, device = puck
    puck.buttons(1)
    puck.buttons(0)
    puck.buttons(2)
    puck.buttons(0)
    wait_until(lambda: device.pressed() == ("start",))
    for waiting in ("stopped", "placing"):
        device.show(View(waiting))
        puck.buttons(2)
        puck.buttons(0)
        wait_until(lambda: device.pressed() == ("start",), what=waiting)
    assert device.poll().gripper is None
    device.begin(1.0)
    puck.buttons(1)
    wait_until(lambda: device.poll().gripper == 0.0)
    device.show(View("running"))
    puck.buttons(2)
    puck.buttons(0)
    wait_until(lambda: device.pressed() == ("keep",))


def test_it_is_found_and_has_one_owner(tmp_path, monkeypatch):
    for name, ids in (
        ("hidraw0", "0003:0000046D:0000C52B"),
        ("hidraw1", "0003:0000256F:0000C635"),
    ):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device" / "uevent").write_text(f"DRIVER=hid\nHID_ID={ids}\n")
    assert find_space_mouse(tmp_path) == "/dev/hidraw1"
    # A named file that is of something else is not read as one.
    require_space_mouse("/dev/hidraw1", tmp_path)
    require_space_mouse("/dev/hidraw7", tmp_path)
    with pytest.raises(ConfigError, match="hidraw0 is no SpaceMouse, but device 046d:c52b"):
        require_space_mouse("/dev/hidraw0", tmp_path)
    (tmp_path / "hidraw1" / "device" / "uevent").unlink()
    with pytest.raises(ConfigError, match="there are 0 SpaceMouse devices"):
        find_space_mouse(tmp_path)
    config = SpaceMouseConfig(path=str(tmp_path / "hidraw9"))
    with Puck() as puck:
        monkeypatch.setattr(spacemouse, "open_file", lambda _: puck.open())
        device = config.build(Surroundings())
        with pytest.raises(RobotConnectionError, match="is in use by process"):
            config.build(Surroundings())
        device.close()
        config.build(Surroundings()).close()


def test_without_permission_the_error_has_the_rule(tmp_path):
    with pytest.raises(ConfigError, match="idVendor"):
        SpaceMouseConfig(path=str(tmp_path / "absent")).build(Surroundings())
    with pytest.raises(ConfigError, match="six signs"):
        SpaceMouseConfig(signs=(1.0, 0.5))
    with pytest.raises(ConfigError, match="positive full_scale"):
        SpaceMouseConfig(full_scale=math.nan)
