"""Serial arms: six-servo sync reads and whole cycles through the vendors' SDKs, 1 Mbaud wire time.

make bench ONLY=arms

The labs run as processes of their own, with real-time priority where that is permitted, and so
does the process that measures, as the supervisor does that owns a driver. The reference is the
vendor's own port handler over the same line in the same run.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import numpy as np

from hardware.drivers.serial_bus.dynamixel import DynamixelConfig
from hardware.drivers.serial_bus.feetech import FeetechConfig
from hardware.drivers.serial_bus.robot import BusConfig
from hardware.drivers.serial_bus.sdk import LostPacketError, SdkLine, import_sdk
from hardware.emulators.lab.launch import LabProcess
from tests.waiting import paced

CONFIGS = Path(__file__).parents[2] / "configs" / "hardware"
IDS = [1, 2, 3, 4, 5, 6]
JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll")
ARMS: dict[str, tuple[type[Any], str, float]] = {
    "so101": (FeetechConfig, "scservo_sdk", 0),
    "koch": (DynamixelConfig, "dynamixel_sdk", 2.0),
}
FLOOR_HZ = 400.0


def rows(long: bool = False) -> list[dict[str, Any]]:
    """All figures of this area."""
    seconds = 5.0 if long else 1.5
    with _real_time():
        return [row for arm in ARMS for row in _arm(arm, seconds)]


@contextlib.contextmanager
def _real_time() -> Generator[None]:
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(20))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, param)


def _arm(arm: str, seconds: float) -> list[dict[str, Any]]:
    config_class, module, protocol = ARMS[arm]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = (CONFIGS / f"lab_{arm}.yaml").read_text()
        text = text.replace(f"runs/lab/{arm}", str(folder / "bus"))
        text = text.replace("calibration/", f"{CONFIGS}/calibration/")
        # Joints that follow exactly: the line is measured, not the engine beside it.
        text = text.replace("world: pybullet", "world: kinematic")
        (folder / "lab.yaml").write_text(text)
        config: BusConfig = config_class(
            port=str(folder / "bus"),
            calibration=CONFIGS / "calibration" / f"lab_{arm}.yaml",
            joints=JOINTS,
            gripper="gripper",
            rate_hz=1000.0,
            reply_slack_s=0.05,
            silence_s=5.0,
            watchdog_s=2.0,
        )
        with LabProcess(folder / "lab.yaml"):
            reads = _reads(config.line(IDS), seconds)  # type: ignore[attr-defined]
            vendor = _vendor_reads(module, protocol, config, seconds)
            cycles = _cycles(config, seconds)
    wire = "1 Mbaud wire time, six servos"
    return [
        _row(f"{arm}: sync read, {wire}", reads, vendor, f">= {FLOOR_HZ:g} Hz", reads[0]),
        _row(f"{arm}: goals, sync read and one servo's health, {wire}", cycles, vendor, "", None),
    ]


def _row(
    name: str,
    ours: tuple[float, float, float],
    vendor: tuple[float, float, float],
    floor: str,
    decisive: float | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "unit": "Hz",
        "ours": round(ours[0], 1),
        "reference": round(vendor[0], 1),
        "ratio": round(ours[0] / vendor[0], 3),
        "floor": floor,
        "holds": None if decisive is None else decisive >= FLOOR_HZ,
        "why": (
            f"p50 {ours[1]:.2f} ms, {100 * ours[2]:.0f} % of a core; the vendor's own port:"
            f" p50 {vendor[1]:.2f} ms, {100 * vendor[2]:.0f} %"
        ),
    }


def _timed(call: Any, seconds: float) -> tuple[float, float, float]:
    """Successful calls per second, median [ms], CPU share of this process."""
    times: list[float] = []
    cpu, start = time.process_time(), time.monotonic()
    while time.monotonic() - start < seconds:
        before = time.monotonic()
        if call():
            times.append(time.monotonic() - before)
    wall = time.monotonic() - start
    share = (time.process_time() - cpu) / wall
    return len(times) / wall, 1e3 * float(np.median(times)), share


def _reads(line: SdkLine, seconds: float) -> tuple[float, float, float]:
    def read() -> bool:
        try:
            return len(line.readings()) == len(IDS)
        except LostPacketError:
            return False

    try:
        return _timed(read, seconds)
    finally:
        line.close()


def _vendor_reads(
    module: str, protocol: float, config: BusConfig, seconds: float
) -> tuple[float, float, float]:
    """The vendor's ``GroupSyncRead`` over its own port handler, the same registers."""
    from hardware.wire.servo_registers import DYNAMIXEL_X, FEETECH_STS

    table = FEETECH_STS if module == "scservo_sdk" else DYNAMIXEL_X
    sdk = import_sdk(module, module, module)
    port = sdk.PortHandler(config.port)
    port.openPort()
    port.setBaudRate(config.baud)
    group = sdk.GroupSyncRead(
        port, sdk.PacketHandler(protocol), table.state_address, table.state_size
    )
    for servo in IDS:
        group.addParam(servo)
    try:
        return _timed(lambda: group.txRxPacket() == 0, seconds)
    finally:
        port.closePort()


def _cycles(config: BusConfig, seconds: float) -> tuple[float, float, float]:
    """The driver's loop as fast as it goes, a new goal in every cycle."""
    robot: Any = config.build()  # type: ignore[attr-defined]
    robot.connect()
    try:
        q = robot.state().joint_position
        loop = robot._cycle
        cpu, start, before = time.process_time(), time.monotonic(), loop.cycles
        for _ in paced(500.0, round(500.0 * seconds)):
            robot.servo(q)
        wall = time.monotonic() - start
        rate = (loop.cycles - before) / wall
        return rate, 1e3 / max(rate, 1e-9), (time.process_time() - cpu) / wall
    finally:
        robot.close()
