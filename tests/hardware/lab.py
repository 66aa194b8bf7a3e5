"""Virtual labs for tests: one subprocess per network address, without an engine unless asked."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from hardware.emulators.lab.launch import LabProcess

HOME = (-0.3345, -1.3191, 2.4190, -2.6707, -1.5708, -0.3345)
CONFIG = Path(__file__).parents[2] / "configs" / "hardware" / "lab_ur5e.yaml"
# A supervisor of a busy machine, which moves fast.
PATIENT = {
    "late_s": 0.4,
    "heartbeat_s": 0.4,
    "frozen_s": 2.0,
    "state_late_s": 0.1,
    "state_stale_s": 0.4,
    "goto_speed": 2.5,
    "goto_acceleration": 12.0,
}
KINEMATIC = """
lab:
  world: kinematic
  devices:
    controller: {unlock_delay_s: 0.2}
    tracker: {rate_hz: 100, dropout_rate: 0.1, port: %d}
"""


def address(last: int) -> str:
    """A loopback address of its own per test file and process, so that runs beside each other
    (fixed ports) do not meet.
    """
    return f"127.{1 + os.getpid() % 200}.{1 + os.getpid() // 200 % 200}.{last}"


def kinematic_lab(folder: Path, last: int, tracker_port: int = 30120) -> LabProcess:
    """A lab whose joints follow exactly."""
    config = folder / "lab.yaml"
    config.write_text(KINEMATIC % tracker_port)
    return LabProcess(config, address=address(last))


def cell_file(
    folder: Path, last: int, supervisor: Mapping[str, float] = PATIENT, **robot: Any
) -> Path:
    """The UR's cell with an engine-less lab at an address of its own; ``robot``: other values."""
    raw = yaml.safe_load(CONFIG.read_text())
    raw["lab"] = {"world": "kinematic", "devices": {"tracker": {"rate_hz": 100}}}
    cell = raw["robot"]
    cell["driver"] |= {"address": address(last), "watchdog_hz": 5}
    cell["trackers"]["block/pose"]["udp"] |= {"address": address(last), "max_age_s": 1.0}
    cell |= {"supervisor": dict(supervisor), **robot}
    path = folder / "cell.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def joint_offset(joint: int, angle: float) -> np.ndarray:
    """Home, with one joint moved [rad]."""
    q = np.array(HOME)
    q[joint] += angle
    return q
