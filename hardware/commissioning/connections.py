"""Checks what a cell's config names: ports of this machine and of the network, watchdog, gripper.

Nothing is said to a device: a port is looked at, a connection is opened and closed.
"""

from __future__ import annotations

import socket
import time
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.devices.gripper_config import GripperCellConfig
from hardware.devices.tracker import UdpTrackerConfig
from hardware.drivers.cameras.opencv import require_device
from robolearn.errors import RobolearnError
from robolearn.machine.doctor import Check, Status

# Ports on which controllers listen (dashboard and RTDE of a UR; Modbus of an xArm).
CONTROLLERS = {"ur": (29999, 30004), "xarm": (502,)}
# Of grippers whose config leaves theirs out: the Robotiq URCap's socket, an xArm's controller.
GRIPPERS = {"robotiq": 63352, "xarm": 502}
_CONNECT_S = 1.0


def check_connections(config: Path) -> tuple[Check, ...]:
    """One check per device that the cell of a hardware config names; a config that does not load
    is the only one.
    """
    try:
        cell = load_cell(config)
    except RobolearnError as error:
        return (Check("cell", "FAIL", str(error), "mend the config (docs/robots.md)"),)
    # A virtual cell is there once its lab runs.
    absent: Status = "WARN" if cell.lab else "FAIL"
    advice = f"'robolearn lab --config {config}' serves it" if cell.lab else "see docs/new_robot.md"
    missing = _Missing(absent, advice)
    return (*_controller(cell, missing), *_cameras(cell, missing), *_rest(cell, missing))


@dataclass(frozen=True, slots=True)
class _Missing:
    """What is said of a device that is not there."""

    status: Status
    advice: str

    def path(self, name: str, path: Path) -> Check:
        """A device of this machine."""
        try:
            require_device(path, name)
        except RobolearnError as error:
            return Check(name, self.status, str(error), self.advice)
        return Check(name, "OK", str(path))

    def port(self, name: str, address: str, port: int, advice: str = "") -> Check:
        """A device in the network; ``advice``: what to do where it is a real one."""
        place, start = f"{address}:{port}", time.monotonic()
        try:
            socket.create_connection((address, port), timeout=_CONNECT_S).close()
        except OSError as error:
            problem = f"nobody answers at {place} ({error.strerror or error})"
            real = self.status == "FAIL" and advice
            return Check(name, self.status, problem, advice if real else self.advice)
        return Check(name, "OK", f"{place} answers in {1e3 * (time.monotonic() - start):.1f} ms")


def _controller(cell: CellConfig, missing: _Missing) -> Iterator[Check]:
    driver = cell.driver
    kind, port = str(driver.get("kind")), str(driver.get("port", ""))
    url = urllib.parse.urlsplit(port)
    if port.isdigit() and cell.address:
        # A number is a port of the network, not a device of this machine.
        yield missing.port(f"{kind} port", cell.address, int(port))
    elif url.hostname and url.port:
        yield missing.port(f"{kind} port", url.hostname, url.port)
    elif port:
        yield missing.path(f"{kind} port", Path(port).absolute())
    advice = (
        "switch the control box on and plug its cable in; its panel shows the address that belongs"
        f" into robot.driver.address; 'ping {cell.address}' must be answered"
    )
    first, *others = CONTROLLERS.get(kind, (0,))
    if not first:
        return
    yield missing.port(f"{kind} controller", cell.address, first, advice)
    for other in others:
        yield missing.port(f"{kind} port {other}", cell.address, other, advice)


def _cameras(cell: CellConfig, missing: _Missing) -> Iterator[Check]:
    for camera in cell.cameras:
        name, driver = f"camera {camera.stream.name}", camera.driver
        device = str(driver.get("device", ""))
        url = urllib.parse.urlsplit(str(driver.get("url", device)))
        if url.hostname:
            yield missing.port(name, url.hostname, url.port or _port_of(url.scheme))
        elif device:
            path = f"/dev/video{device}" if device.isdigit() else device
            yield missing.path(name, Path(path))


def _port_of(scheme: str) -> int:
    return {"rtsp": 554, "https": 443}.get(scheme, 80)


def _rest(cell: CellConfig, missing: _Missing) -> Iterator[Check]:
    streams = {t.udp.address + str(t.udp.port): t.udp for t in cell.trackers.values() if t.udp}
    yield from (_stream(config) for config in streams.values())
    if cell.gripper is not None:
        yield _gripper(cell.gripper, missing)
    yield _watchdog(cell)


def _stream(config: UdpTrackerConfig) -> Check:
    """Whether a tracker's datagrams could be received here."""
    name, place = "tracker port", f"{config.address}:{config.port} (UDP)"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((config.address, config.port))
        except OSError as error:
            advice = (
                "'ss -lunp' names who listens there; only one program gets the datagrams. The"
                " address is one of this machine's, or 0.0.0.0 for all of them"
            )
            return Check(name, "FAIL", f"{place}: {error.strerror or error}", advice)
    return Check(name, "OK", f"{place} is free")


def _gripper(config: GripperCellConfig, missing: _Missing) -> Check:
    driver: Mapping[str, Any] = config.driver
    kind, address = str(driver["kind"]), str(driver.get("address", ""))
    mounted = config.driver_config().mounted
    place = "on the arm's own line" if mounted else address or "in memory"
    summary = f"{kind}, {place}, {1e3 * config.low_m:g} to {1e3 * config.high_m:g} mm"
    port = int(driver.get("port", GRIPPERS.get(kind, 0)))
    if address and port:
        answer = missing.port("gripper", address, port)
        return Check("gripper", answer.status, f"{summary}; {answer.found}", answer.advice)
    return Check("gripper", "OK", f"{summary} (not asked: 'robolearn hardware check' does)")


def _watchdog(cell: CellConfig) -> Check:
    driver = str(cell.driver.get("kind"))
    try:
        own = cell.robot_builder()().has_watchdog
    except RobolearnError as error:
        return Check("driver", "FAIL", str(error), "install what it names")
    if own:
        return Check("watchdog", "OK", f"{driver}: stops by itself when we fall silent")
    text = f"{driver}: has none, the arm stays powered when this machine dies"
    advice = "keep a switch for its power within reach (docs/safety.md)"
    return Check("watchdog", "WARN", text, advice)
