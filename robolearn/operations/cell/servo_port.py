"""Says where an arm of serial servos is; apart from what speaks to it, so that ``--help`` answers
at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["feetech", "dynamixel"]
# In order of the servos' ids.
SO101_JOINTS = (
    "shoulder_pan",
    "shoulder_lift",
    "elbow_flex",
    "wrist_flex",
    "wrist_roll",
    "gripper",
)


@dataclass(frozen=True, slots=True)
class ServoPort:
    """Where an arm of serial servos is connected."""

    # Serial port, such as /dev/ttyACM0.
    port: str
    # Family of the servos.
    kind: Kind = "feetech"
    # Speed of the line.
    baud: int = 1_000_000
