"""Sets how a person's hand becomes a command: speeds, dead zone, frame, limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from robolearn.errors import ConfigError

Frame = Literal["table", "tool", "camera", "camera_heading"]


@dataclass(frozen=True, slots=True)
class MappingConfig:
    """The same numbers for every device; those that a device does not need do nothing."""

    # Speed at full deflection [m/s] (UMI, SpaceMouse script).
    translation_m_s: float = 0.25
    # Turning at full deflection [rad/s].
    rotation_rad_s: float = 0.6
    # Deflections up to this share do nothing.
    dead_zone: float = 0.1
    # What is left of them is raised to this power: fine near the middle.
    exponent: float = 1.5
    # Only the largest deflection counts.
    one_axis: bool = False
    # From rest to full speed, and back [s].
    ramp_s: float = 0.15
    # Metres of the tool per metre of the hand.
    scale: float = 0.5
    # Axes of the hand: ``table``: those of the action's frame, turned by ``heading_rad``; ``tool``:
    # the tool's own; ``camera``: those of the picture of ``camera`` (right is right and up is up
    # there, forward is into it); ``camera_heading``: its heading alone (right is right there, up
    # away from the table).
    frame: Frame = "table"
    # Name of the camera whose picture the person looks at; it may ride on the arm.
    camera: str = ""
    # Where the person's forward points in the action's frame [rad]; null: x, and y on a table that
    # is seen from above.
    heading_rad: float | None = None
    # Filter of tracked hands (one euro): cut-off at rest [Hz] ...
    min_cutoff_hz: float = 2.0
    # ... and how it rises with speed [Hz per m/s].
    beta: float = 30.0
    # Box that the tool stays in, in the action's frame [m]; empty: the action's own range.
    workspace_low: tuple[float, ...] = ()
    workspace_high: tuple[float, ...] = ()
    # The command stays so near to what is measured [m] ...
    max_lead_m: float = 0.03
    # ... [rad].
    max_lead_rad: float = 0.2
    # A leader arm takes hold when no joint is further away [rad] (GELLO).
    gate_rad: float = 0.8
    # Speed at which the arm catches up with its leader [rad/s].
    ramp_rad_s: float = 1.0
    # A pointer takes hold from so near [m]: the recordings' operator did within 30 px of 1 mm
    # (diffusion_policy, ``env/pusht/pusht_env.py``).
    reach_m: float = 0.03

    def __post_init__(self) -> None:
        positive = ("translation_m_s", "rotation_rad_s", "ramp_s", "scale", "min_cutoff_hz")
        positive += ("max_lead_m", "max_lead_rad", "gate_rad", "ramp_rad_s", "reach_m", "exponent")
        for name in positive:
            value = float(getattr(self, name))
            if not 0.0 < value < math.inf:
                raise ConfigError(f"mapping: {name} must be a positive number, got {value}")
        if not (0.0 <= self.dead_zone < 1.0 and 0.0 <= self.beta < math.inf):
            raise ConfigError(
                "mapping: 0 <= dead_zone < 1 and 0 <= beta are needed, got"
                f" {self.dead_zone} and {self.beta}"
            )
        if self.heading_rad is not None and not math.isfinite(self.heading_rad):
            raise ConfigError(f"mapping: heading_rad must be an angle, got {self.heading_rad}")
        self._check_frame()
        low, high = self.workspace_low, self.workspace_high
        if len(low) != len(high) or len(low) not in (0, 2, 3):
            raise ConfigError(
                "mapping: workspace_low and workspace_high have 2 or 3 numbers each, got"
                f" {low} and {high}"
            )
        if any(not a < b for a, b in zip(low, high, strict=True)):
            raise ConfigError(f"mapping: workspace_low {low} is not below workspace_high {high}")

    def _check_frame(self) -> None:
        if self.by_camera != bool(self.camera):
            raise ConfigError(
                "mapping: a camera and its frame go together (frame: camera or camera_heading, and"
                f" camera: its name), got frame '{self.frame}' and camera '{self.camera}'"
            )
        if self.by_camera and self.heading_rad is not None:
            raise ConfigError(
                "mapping: either a camera says where forward is or heading_rad does: leave one out"
            )

    @property
    def by_camera(self) -> bool:
        """Whether the hand's axes are those of a picture."""
        return self.frame in ("camera", "camera_heading")


DEFAULT_MAPPING = MappingConfig()
