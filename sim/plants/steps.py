"""Stepping that the lab's plants share."""

from __future__ import annotations

from robolearn.errors import ConfigError


def engine_steps(dt_s: float, step_s: float) -> int:
    """How many engine steps of ``step_s`` a control period of ``dt_s`` [s] is; at least one."""
    steps = round(dt_s / step_s)
    if steps < 1 or abs(steps * step_s - dt_s) > 1e-9:
        raise ConfigError(
            f"the plant steps at {1.0 / step_s:g} Hz; {dt_s} s is no multiple of that"
        )
    return steps
