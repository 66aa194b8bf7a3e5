"""Configures how demonstrations are acted out from new starts, and what is kept of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GenerateConfig:
    """How many episodes, what they are made from, and which checks they pass."""

    # Episodes to keep, one from every stratum of the starts.
    episodes: int = 100
    # Attempts from one stratum, each from a start of its own, before it is given up.
    attempts: int = 10
    # Demonstrations among which one is drawn: those whose objects lay nearest to where they are.
    nearest: int = 3
    # A demonstration gives at most so many times its equal share of the episodes.
    cap: float = 2.0
    # A skill reaches so far around its grasp or release [m]; the rest is bridged.
    near_m: float = 0.08
    # Noise on the commands of skills: standard deviation of the place [m] ...
    noise_m: float = 0.001
    # ... and of the heading [rad].
    noise_rad: float = 0.01
    # Success must hold so long after the end [s].
    hold_s: float = 1.0
    # It may come so much after the last command [s].
    later_s: float = 1.0
    # Objects that a skill is not about move at most so far [m].
    bystander_m: float = 0.01
    # The tool's largest jerk, in parts of the largest in the demonstrations.
    jerk: float = 2.0
    # Of starts, demonstrations and noise.
    seed: int = 0

    def __post_init__(self) -> None:
        counts = (self.episodes, self.attempts, self.nearest)
        if min(counts) < 1:
            raise ConfigError(f"episodes, attempts and nearest must be at least 1, got {counts}")
        if not (self.cap >= 1.0 and math.isfinite(self.cap)):
            raise ConfigError(f"cap must be at least 1 (equal shares), got {self.cap:g}")
        above = (self.near_m, self.jerk, self.bystander_m)
        if not all(math.isfinite(v) and v > 0 for v in above):
            raise ConfigError(f"near_m, jerk and bystander_m must be above 0, got {above}")
        least = (self.noise_m, self.noise_rad, self.hold_s, self.later_s)
        if not all(math.isfinite(v) and v >= 0 for v in least):
            raise ConfigError(
                f"noise_m, noise_rad, hold_s and later_s must be at least 0, got {least}"
            )
