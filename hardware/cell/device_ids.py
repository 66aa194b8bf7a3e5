"""Names what the devices of a cell are: ids that travel with every episode recorded on it.

    {"robot":      {"kind": "ur", "address": "192.168.1.20", "serial_number": "20235500001", ...},
     "tracker block/pose": {"kind": "udp", "address": "0.0.0.0:30120", "object": "block"},
     "camera top": {"kind": "opencv", "device": "/dev/video0", "id": "usb-046d_HD_Pro_8A2F..."}}

Whoever finds a bad calibration or a worn gripper years later must know which episodes it touched.
A device that does not answer is named with the reason, not refused: this never stops a run.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hardware.cell.config import CellConfig
from hardware.drivers.serial_bus.sdk import port_serial

DASHBOARD_PORT = 29999
# Universal Robots, "Dashboard Server e-Series": one line asked, one line answered.
QUESTIONS = {
    "serial_number": "get serial number",
    "model": "get robot model",
    "software": "PolyscopeVersion",
}
_PLACES = ("address", "port", "url", "device", "serial")

Ids = dict[str, str]


def device_ids(cell: CellConfig, timeout_s: float = 1.0) -> dict[str, Ids]:
    """Every device of ``cell``: kind, where it is reached, and what it says it is.

    Asks the devices; each has ``timeout_s`` [s] to answer.
    """
    found = {"robot": _of(cell.driver, timeout_s)}
    for signal, tracked in cell.trackers.items():
        ids = {"kind": "tags", "camera": tracked.camera}
        if tracked.udp is not None:
            ids = {"kind": "udp", "address": tracked.source, "object": tracked.object(signal)}
        found[f"tracker {signal}"] = ids
    for camera in cell.cameras:
        found[f"camera {camera.stream.name}"] = _of(camera.driver, timeout_s)
    return found


def ur_ids(address: str, timeout_s: float = 1.0, port: int = DASHBOARD_PORT) -> Ids:
    """What the dashboard of a UR controller says: serial number, model, software."""
    try:
        with socket.create_connection((address, port), timeout_s) as sock:
            sock.settimeout(timeout_s)
            lines = sock.makefile("rwb")
            lines.readline()  # its greeting
            found: Ids = {}
            for name, question in QUESTIONS.items():
                lines.write(f"{question}\n".encode())
                lines.flush()
                found[name] = lines.readline().decode("utf-8", "replace").strip()
            return found
    except OSError as error:
        return {"serial_number": f"unknown: dashboard at {address}:{port}: {error}"}


def _of(driver: Mapping[str, Any], timeout_s: float) -> Ids:
    kind = str(driver.get("kind", ""))
    found: Ids = {"kind": kind}
    found |= {key: str(driver[key]) for key in _PLACES if str(driver.get(key, ""))}
    if "calibration" in driver:
        found |= _calibration(Path(str(driver["calibration"])))
    return found | ASKED.get(kind, _nothing)(driver, timeout_s)


def _calibration(path: Path) -> Ids:
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        digest = f"unknown: {error.strerror}"
    return {"calibration": str(path), "calibration_sha256": digest}


def _ur(driver: Mapping[str, Any], timeout_s: float) -> Ids:
    return ur_ids(str(driver.get("address", "")), timeout_s)


def _serial(driver: Mapping[str, Any], timeout_s: float) -> Ids:
    del timeout_s
    return {"adapter_serial": port_serial(str(driver.get("port", "")))}


def _video(driver: Mapping[str, Any], timeout_s: float) -> Ids:
    """The name that udev made of a USB camera's vendor, model and serial number."""
    del timeout_s
    device = driver.get("device", "")
    if "://" in str(device):
        return {}
    real = Path(f"/dev/video{device}" if isinstance(device, int) else str(device)).resolve()
    named = sorted(Path("/dev/v4l/by-id").glob("*"))
    return next(({"id": p.name} for p in named if p.resolve() == real), {})


def _nothing(driver: Mapping[str, Any], timeout_s: float) -> Ids:
    del driver, timeout_s
    return {}


ASKED: dict[str, Callable[[Mapping[str, Any], float], Ids]] = {
    "ur": _ur,
    "feetech": _serial,
    "dynamixel": _serial,
    "opencv": _video,
}
