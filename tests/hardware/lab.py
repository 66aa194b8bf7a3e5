"""Virtual labs for tests: one subprocess per network address, without an engine unless asked."""

import os
from pathlib import Path

import numpy as np

from hardware.emulators.lab.launch import LabProcess

HOME = (-0.3345, -1.3191, 2.4190, -2.6707, -1.5708, -0.3345)
CONFIG = Path(__file__).parents[2] / "configs" / "hardware" / "lab_ur5e.yaml"
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


def joint_offset(joint: int, angle: float) -> np.ndarray:
    """Home, with one joint moved [rad]."""
    q = np.array(HOME)
    q[joint] += angle
    return q
