"""Leads commands from where one driver left off to what the next one wants, without a jump.

    what was sent last, less what is wanted first:   an offset, which is added to what is wanted
    at every tick                                    less of it, by what a speed covers

Whoever drives moves as usual meanwhile, and who begins where the other one stopped is sent as it is
from the first tick on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.agents.actions import clip_action
from robolearn.errors import ConfigError
from robolearn.geometry import quat_conjugate, quat_multiply
from robolearn.shapes import AnyArray
from robolearn.spec import ActionSpec
from robolearn.timing.latencies import as_signal, blended
from robolearn.types import Signals

Value = NDArray[np.float64]
# Of the way: what rounding leaves of it.
_DONE = 1e-9


@dataclass(frozen=True, slots=True)
class EasingConfig:
    """How fast a command may change where the driver changes."""

    # Of points and of fingers [m/s].
    speed_m_s: float = 0.25
    # Of headings, rotations and joints [rad/s].
    speed_rad_s: float = 0.6

    def __post_init__(self) -> None:
        for name in ("speed_m_s", "speed_rad_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(f"easing: {name} must be above 0, got {value}")


class Easing:
    """The commands of one embodiment, whose ``actions`` last ``period_s`` each.

    Relative actions begin anew at every tick and are sent as they are.
    """

    def __init__(
        self, actions: Sequence[ActionSpec], period_s: float, config: EasingConfig
    ) -> None:
        self._actions = {a.name: a for a in actions if a.mode == "absolute"}
        self._period_s, self._config = period_s, config
        self._sent: dict[str, Value] = {}
        self._offsets: dict[str, _Offset] = {}

    def begin(self, sent: Signals) -> None:
        """Another one drives; ``sent`` is what went out last."""
        self.clear()
        self._sent = {n: np.asarray(sent[n], dtype=np.float64) for n in self._actions if n in sent}

    def clear(self) -> None:
        """Nobody drove before."""
        self._sent, self._offsets = {}, {}

    @property
    def active(self) -> bool:
        """Whether a command may differ from what is wanted."""
        return bool(self._sent or self._offsets)

    def next(self, wanted: Signals) -> Signals:
        """What is sent at this tick."""
        if not self.active:
            return wanted
        return {name: self._led(name, value) for name, value in wanted.items()}

    def _led(self, name: str, wanted: AnyArray) -> AnyArray:
        value = np.asarray(wanted, dtype=np.float64)
        if name in self._sent:
            action, start = self._actions[name], self._sent.pop(name)
            step = self._period_s / max(self._seconds(action, start, value), self._period_s)
            self._offsets[name] = _Offset(_apart(action, start, value), step, 0.0)
        offset = self._offsets.get(name)
        if offset is None:
            return wanted
        share = offset.share + offset.step
        if share >= 1.0 - _DONE:
            del self._offsets[name]
            return wanted
        self._offsets[name] = _Offset(offset.value, offset.step, share)
        action = self._actions[name]
        moved = _moved(action, offset.value, value)
        return clip_action([action], {name: blended(action, moved, value, share)})[name]

    def _seconds(self, action: ActionSpec, start: Value, wanted: Value) -> float:
        """How long the way takes."""
        signal = as_signal(action)
        metres, radians = self._config.speed_m_s, self._config.speed_rad_s
        a, b = start.reshape(-1), wanted.reshape(-1)
        if signal.components:
            w, *xyz = quat_multiply(quat_conjugate(a[3:]), b[3:]).tolist()
            turn = 2.0 * math.atan2(math.hypot(*xyz), abs(w))
            return max(math.dist(a[:3], b[:3]) / metres, turn / radians)
        if signal.angular:
            turn = abs(math.remainder(float(b[3] - a[3]), 2.0 * math.pi))
            return max(math.dist(a[:3], b[:3]) / metres, turn / radians)
        if action.unit == "rad":
            return float(np.abs(b - a).max()) / radians
        return math.dist(a, b) / metres


@dataclass(frozen=True, slots=True)
class _Offset:
    """What was sent less what is wanted, of which ``share`` is gone; ``step`` goes per tick."""

    value: Value
    step: float
    share: float


def _apart(action: ActionSpec, start: Value, wanted: Value) -> Value:
    """``start`` less ``wanted``, turns as turns."""
    apart = start - wanted
    if as_signal(action).components:
        apart = np.concatenate([apart[:3], quat_multiply(start[3:], quat_conjugate(wanted[3:]))])
    return apart


def _moved(action: ActionSpec, apart: Value, wanted: Value) -> Value:
    """``wanted`` and, beside it, what is apart."""
    moved = wanted + apart
    if as_signal(action).components:
        moved = np.concatenate([moved[:3], quat_multiply(apart[3:], wanted[3:])])
    return moved
