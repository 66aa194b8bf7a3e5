"""Devices that this machine does not have, shown to the checks as folders."""

import os
import socket
from pathlib import Path

import pytest

from hardware.commissioning import connections
from robolearn.cli.main import main
from robolearn.machine import devices
from robolearn.machine.devices import (
    NO_WATCHDOG,
    check_clock_source,
    check_latency_timers,
    check_serial_ports,
    check_video_devices,
    check_watchdogs,
)


@pytest.fixture
def machine(tmp_path):
    """A machine with one FTDI adapter and one USB camera."""
    dev, sys, proc = (tmp_path / n for n in ("dev", "sys", "proc"))
    (dev / "serial" / "by-id").mkdir(parents=True)
    (dev / "ttyUSB0").touch()
    (dev / "video0").touch()
    (dev / "serial" / "by-id" / "usb-FTDI_U2D2").symlink_to(dev / "ttyUSB0")
    usb = sys / "devices" / "usb1" / "1-2"
    (usb / "1-2:1.0" / "ttyUSB0").mkdir(parents=True)
    (usb / "idVendor").write_text("0403\n")
    (usb / "idProduct").write_text("6014\n")
    tty = sys / "class" / "tty" / "ttyUSB0"
    tty.mkdir(parents=True)
    (tty / "device").symlink_to(usb / "1-2:1.0" / "ttyUSB0")
    timer = sys / "bus" / "usb-serial" / "devices" / "ttyUSB0"
    timer.mkdir(parents=True)
    (timer / "latency_timer").write_text("16\n")
    label = sys / "class" / "video4linux" / "video0"
    label.mkdir(parents=True)
    (label / "name").write_text("HD Webcam\n")
    (proc / "123" / "fd").mkdir(parents=True)
    (proc / "123" / "comm").write_text("slicer\n")
    return dev, sys, proc


def test_a_serial_port_is_named_with_its_id(machine):
    found = check_serial_ports(*machine)
    assert found.status == "OK"
    assert "ttyUSB0 = usb-FTDI_U2D2" in found.found


def test_a_missing_permission_gives_group_and_udev_rule(machine, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    found = check_serial_ports(*machine)
    assert found.status == "WARN"
    assert "usermod -aG" in found.advice
    assert 'ATTRS{idVendor}=="0403", ATTRS{idProduct}=="6014"' in found.advice
    assert "udevadm" in found.advice
    camera = check_video_devices(*machine[:2])
    assert camera.status == "WARN"
    assert 'KERNEL=="video0"' in camera.advice


def test_a_port_in_use_names_the_process(machine):
    dev, _, proc = machine
    (proc / "123" / "fd" / "5").symlink_to(dev / "ttyUSB0")
    found = check_serial_ports(*machine)
    assert found.status == "WARN"
    assert "in use by process 123 (slicer)" in found.found


def test_a_slow_latency_timer_says_how_to_set_it(machine):
    _, sys, _ = machine
    found = check_latency_timers(sys)
    assert found.status == "WARN"
    assert "ttyUSB0 16 ms" in found.found
    assert "echo 1 | sudo tee" in found.advice
    (sys / "bus/usb-serial/devices/ttyUSB0/latency_timer").write_text("1\n")
    assert check_latency_timers(sys).status == "OK"


def test_cameras_and_clock_sources(machine, tmp_path):
    assert "HD Webcam" in check_video_devices(*machine[:2]).found
    empty = tmp_path / "none"
    assert check_video_devices(empty, empty).status == "OK"
    assert check_serial_ports(empty, empty, empty).status == "OK"
    assert check_latency_timers(empty).status == "OK"
    assert check_clock_source(empty).found == "unknown"
    folder = machine[1] / "devices/system/clocksource/clocksource0"
    folder.mkdir(parents=True)
    (folder / "current_clocksource").write_text("hpet\n")
    assert check_clock_source(machine[1]).status == "WARN"


def test_the_arms_without_a_watchdog_are_those_of_the_drivers():
    from hardware.drivers.serial_bus.dynamixel import DynamixelConfig
    from hardware.drivers.serial_bus.feetech import FeetechConfig
    from hardware.drivers.ur.robot import URConfig
    from hardware.drivers.xarm.robot import XArmConfig

    given = {"port": "/dev/ttyUSB9", "calibration": Path("none.yaml"), "joints": ("a",)}
    kinds = {"feetech": FeetechConfig, "dynamixel": DynamixelConfig}
    own = {name: kind(**given).build().has_watchdog for name, kind in kinds.items()}
    own["ur"] = URConfig(address="127.0.0.1").build().has_watchdog
    own["xarm"] = XArmConfig(address="127.0.0.1").build().has_watchdog
    assert tuple(k for k, v in own.items() if not v) == NO_WATCHDOG
    assert "feetech" in check_watchdogs().found


def test_doctor_looks_at_what_a_config_names(monkeypatch, capsys, tmp_path):
    from robolearn.machine import doctor

    monkeypatch.setattr(doctor, "run_checks", lambda folder: ())
    monkeypatch.setattr(devices, "run_device_checks", lambda: ())
    config = tmp_path / "cell.yaml"
    config.write_text(
        "robot:\n  name: x\n  driver: {kind: fake}\n  arm: ''\n"
        "  joints: {home: [0.0], max_tool_speed: null, limits: {low: [-1.0], high: [1.0],"
        " speed: [1.0], acceleration: [1.0]}}\n"
        "  cameras: [{driver: {kind: opencv, device: 96}, stream: {name: top, width: 8,"
        " height: 8}}]\n"
    )
    assert main(["doctor", "--robot", str(config)]) == 2
    text = capsys.readouterr().out
    assert "there is no /dev/video96" in text
    assert "fake: stops by itself" in text


def test_doctor_asks_whether_a_controller_answers_and_how_to_start_a_virtual_one(
    monkeypatch, tmp_path
):
    cell = (
        "robot:\n  name: x\n  driver: {kind: xarm, address: 127.0.0.1}\n  arm: ''\n  lab: LAB\n"
        "  joints: {home: [0.0], max_tool_speed: null, limits: {low: [-1.0], high: [1.0],"
        " speed: [1.0], acceleration: [1.0]}}\n"
    )
    path = tmp_path / "cell.yaml"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setitem(connections.CONTROLLERS, "xarm", (port,))
        path.write_text(cell.replace("LAB", "false"))
        found = {c.name: c for c in connections.check_connections(path)}["xarm controller"]
        assert (found.status, f"127.0.0.1:{port} answers" in found.found) == ("OK", True)
    found = {c.name: c for c in connections.check_connections(path)}["xarm controller"]
    assert (found.status, "control box on" in found.advice) == ("FAIL", True)
    assert "Connection refused" in found.found
    path.write_text(cell.replace("LAB", "true"))
    found = {c.name: c for c in connections.check_connections(path)}["xarm controller"]
    assert (found.status, f"robolearn lab --config {path}" in found.advice) == ("WARN", True)
