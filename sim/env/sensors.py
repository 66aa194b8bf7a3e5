"""Puts noise and delay between a true value and its sample."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from robolearn.errors import SceneError
from robolearn.geometry import (
    POSE_COMPONENTS,
    quat_from_rotation,
    rotation_from_quat,
    rotation_from_rotvec,
)
from robolearn.shapes import AnyArray
from sim.scene.config import SceneConfig, SignalConfig
from sim.scene.signals import signal_size


class Sensors:
    """Noise is drawn from the generator of the reset; a delayed sample keeps its capture time."""

    def __init__(self, config: SceneConfig) -> None:
        self._noise = {s.name: _Noise(s) for s in config.signals if s.noise}
        self._delay_ns = {s.name: round(s.delay_s * 1e9) for s in config.signals if s.delay_s > 0}
        self._waiting: dict[str, deque[tuple[int, AnyArray]]] = {n: deque() for n in self._delay_ns}
        self._rng = np.random.default_rng(0)
        self.ideal = not (self._noise or self._delay_ns)

    def reset(self, rng: np.random.Generator) -> None:
        """A new episode: nothing is under way."""
        self._rng = rng
        for queue in self._waiting.values():
            queue.clear()

    def measure(self, t_ns: int, values: Mapping[str, AnyArray]) -> list[tuple[str, int, AnyArray]]:
        """Samples ``(name, capture time, value)`` that arrive at ``t_ns``, oldest first.

        The first sample of an episode is there at once: the world stood still before.
        """
        out: list[tuple[str, int, AnyArray]] = []
        for name, true in values.items():
            value = self._noise[name].added(true, self._rng) if name in self._noise else true
            queue = self._waiting.get(name)
            if queue is None or t_ns == 0:
                out.append((name, t_ns, value))
                continue
            queue.append((t_ns, value))
        for name, queue in self._waiting.items():
            while queue and queue[0][0] + self._delay_ns[name] <= t_ns:
                out.append((name, *queue.popleft()))
        return out


class _Noise:
    """Gaussian: per component; for a pose, of the position [m] and of the rotation [rad]."""

    def __init__(self, signal: SignalConfig) -> None:
        self._pose = signal_size(signal) == len(POSE_COMPONENTS) and signal.kind in (
            "site_pose",
            "body_pose",
        )
        size = 2 if self._pose else signal_size(signal)
        if len(signal.noise) not in (1, size) or min(signal.noise) < 0.0:
            raise SceneError(
                f"scene.yaml: signal {signal.name}: noise needs {size} standard deviations"
                f"{' (position [m], rotation [rad])' if self._pose else ' or one for all'}, not"
                f" negative; got {list(signal.noise)}"
            )
        if self._pose and len(signal.noise) != size:
            raise SceneError(
                f"scene.yaml: signal {signal.name}: noise of a pose is [position m, rotation rad]"
            )
        self._sigma = np.array(signal.noise)
        self._sign = POSE_COMPONENTS.index(signal.positive)

    def added(self, value: AnyArray, rng: np.random.Generator) -> AnyArray:
        """``value`` with fresh noise."""
        if not self._pose:
            return value + self._sigma * rng.standard_normal(value.shape)
        draws = rng.standard_normal(6)
        out = value.copy()
        out[:3] += self._sigma[0] * draws[:3]
        turned = rotation_from_rotvec(self._sigma[1] * draws[3:]) @ rotation_from_quat(value[3:])
        out[3:] = quat_from_rotation(turned)
        return out if out[self._sign] >= 0.0 else np.concatenate([out[:3], -out[3:]])
