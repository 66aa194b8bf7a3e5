"""``robolearn doctor``: is this machine fit for the chain, and if not, what to do."""

from __future__ import annotations

import dataclasses
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from robolearn.cli.shared.parse import parse, print_json, say

if TYPE_CHECKING:
    from hardware.devices.gripper_config import GripperCellConfig
    from robolearn.machine.doctor import Check, Status


# Controllers in the network, by driver, and a port that each listens on.
ANSWERS = {"ur": 29999, "xarm": 502}


@dataclass(frozen=True, slots=True)
class Args:
    """Check libraries, rendering, ports, disk, memory and timing of this machine."""

    # Where results will be written (its disk is checked).
    folder: Path = Path()
    # Also check what this file of configs/hardware/ names: port or address, cameras, watchdog.
    robot: Path | None = None
    # Print one JSON document instead of lines.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run all checks; exit code 2 when one of them failed."""
    args = parse(Args, argv, "doctor", "Check this machine.")
    from robolearn.machine.devices import run_device_checks
    from robolearn.machine.doctor import run_checks

    checks = (*run_checks(args.folder), *run_device_checks(), *_named(args.robot))
    failed = [c.name for c in checks if c.status == "FAIL"]
    if args.json:
        print_json({"ok": not failed, "checks": [dataclasses.asdict(c) for c in checks]})
        return 2 if failed else 0
    width = max(len(c.name) for c in checks)
    for check in checks:
        say(f"{check.status:<4}  {check.name:<{width}}  {check.found}")
        if check.advice:
            say(f"      {'':<{width}}  -> {check.advice}")
    warned = sum(c.status == "WARN" for c in checks)
    say(f"{len(checks)} checks, {warned} warning(s), {len(failed)} failure(s)")
    return 2 if failed else 0


def _named(config: Path | None) -> list[Check]:
    """What a cell's config names, without connecting to anything."""
    if config is None:
        return []
    from hardware.cell.load import load_cell
    from hardware.drivers.cameras.opencv import require_device
    from robolearn.errors import RobolearnError
    from robolearn.machine.doctor import Check

    cell = load_cell(config)
    driver = str(cell.driver.get("kind"))
    paths: dict[str, str] = {}
    if "port" in cell.driver:
        paths[f"{driver} port"] = str(Path(str(cell.driver["port"])).absolute())
    for camera in cell.cameras:
        device = str(camera.driver.get("device", ""))
        path = f"/dev/video{device}" if device.isdigit() else device
        paths[f"camera {camera.stream.name}"] = "" if "://" in path else path
    found: list[Check] = []
    # A virtual cell is there once its lab runs.
    absent: Status = "WARN" if cell.lab else "FAIL"
    advice = f"'robolearn lab --config {config}' serves it" if cell.lab else "see docs/new_robot.md"
    for name, path in paths.items():
        if path.startswith("/"):
            try:
                require_device(Path(path), name)
            except RobolearnError as error:
                found.append(Check(name, absent, str(error), advice))
            else:
                found.append(Check(name, "OK", path))
    if driver in ANSWERS:
        found.append(_answers(driver, cell.address, absent, advice))
    if cell.gripper is not None:
        found.append(_gripper(cell.gripper))
    try:
        own = cell.robot_builder()().has_watchdog
    except RobolearnError as error:
        return [*found, Check("driver", "FAIL", str(error), "install what it names")]
    if own:
        return [*found, Check("watchdog", "OK", f"{driver}: stops by itself when we fall silent")]
    told = f"{driver}: has none, the arm stays powered when this machine dies"
    advice = "keep a switch for its power within reach (docs/safety.md)"
    return [*found, Check("watchdog", "WARN", told, advice)]


def _answers(kind: str, address: str, absent: Status, advice: str) -> Check:
    """Whether somebody answers where a controller should be; nothing is said to it."""
    from robolearn.machine.doctor import Check

    name, place = f"{kind} controller", f"{address}:{ANSWERS[kind]}"
    start = time.monotonic()
    try:
        socket.create_connection((address, ANSWERS[kind]), timeout=1.0).close()
    except OSError as error:
        told = f"nobody answers at {place} ({error.strerror or error})"
        if absent == "FAIL":
            advice = (
                "switch the control box on and plug its cable in; its panel shows the address that"
                f" belongs into robot.driver.address; 'ping {address}' must be answered"
            )
        return Check(name, absent, told, advice)
    return Check(name, "OK", f"{place} answers in {1e3 * (time.monotonic() - start):.1f} ms")


def _gripper(config: GripperCellConfig) -> Check:
    """What the config says of the gripper; nothing is connected."""
    from robolearn.errors import RobolearnError
    from robolearn.machine.doctor import Check

    try:
        mounted = config.driver_config().mounted
    except RobolearnError as error:
        return Check("gripper", "FAIL", str(error), "see docs/robots.md")
    driver = config.driver
    place = "on the arm's own line" if mounted else str(driver.get("address", "in memory"))
    told = f"{driver['kind']}, {place}, {1e3 * config.low_m:g} to {1e3 * config.high_m:g} mm"
    return Check("gripper", "OK", f"{told} (not asked: 'robolearn hardware check' does)")
