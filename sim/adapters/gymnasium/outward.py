"""Makes a Gymnasium environment of any of our worlds.

``sim/adapters/gymnasium/register.py`` registers them.

Observations are a ``Dict`` of the world's signals in SI units, or with ``flat=True`` one vector of
all but pictures. Actions are one vector in [-1, 1] that spans the range of every action, in the
order of the world's spec; outside it they are clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from robolearn.errors import ConfigError, DataError
from robolearn.shapes import AnyArray, Picture
from robolearn.types import Command, Condition, Observation

Obs = dict[str, AnyArray] | AnyArray
# Bounds of signals: larger than any value in SI units that a workcell has.
BOUND = 1e6


class WorldGym(gymnasium.Env[Obs, AnyArray]):
    """``reset(options={"condition": ...})`` takes a :class:`Condition`, or a mapping of poses that
    are set on top of what the seed draws. ``info`` has ``progress``, ``success``, ``condition`` and
    ``reason``. Episodes are truncated after ``max_steps`` (default: the world's protocol).
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 - Gymnasium's name

    def __init__(
        self,
        world: str,
        *,
        flat: bool = False,
        render_mode: str | None = None,
        width: int = 96,
        height: int = 96,
        max_steps: int | None = None,
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ConfigError(f"render_mode is 'rgb_array' or None, got '{render_mode}'")
        if max_steps is not None and max_steps < 1:
            raise ConfigError(f"max_steps must be at least 1, got {max_steps}")
        from sim.worlds import make_world

        self.world = make_world(world)
        self.render_mode, self._size, self._flat = render_mode, (width, height), flat
        self._limit = max_steps or self.world.max_steps
        spec = self.world.spec
        self.metadata = {**self.metadata, "render_fps": round(spec.rate_hz)}
        self._signals = [s for s in spec.signals if not (flat and s.is_image)]
        boxes: dict[str, spaces.Space[Any]] = {
            s.name: _box(s.shape, s.dtype) for s in self._signals
        }
        size = sum(int(np.prod(s.shape)) for s in self._signals)
        space = _box((size,), "float64") if flat else spaces.Dict(boxes)
        self.observation_space: spaces.Space[Any] = space
        low = np.concatenate([np.ravel(a.low) for a in spec.actions])
        high = np.concatenate([np.ravel(a.high) for a in spec.actions])
        self._middle, self._half = (low + high) / 2, (high - low) / 2
        self.action_space = spaces.Box(-1.0, 1.0, low.shape, np.float32)
        self._space = spec.task_space([], [a.name for a in spec.actions])
        self._seq, self._condition = 0, ""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Obs, dict[str, Any]]:
        """Draw a start from the seed's generator, or take the one in ``options``."""
        super().reset(seed=seed)
        condition = self.world.sample_condition(int(self.np_random.integers(2**31)))
        given = (options or {}).get("condition")
        if isinstance(given, Condition):
            condition = given
        elif isinstance(given, Mapping):
            poses = {**condition.poses, **{str(k): _pose(v) for k, v in given.items()}}
            condition = Condition(f"{condition.id}-set", condition.seed, poses)
        elif given is not None:
            raise ConfigError(
                "options['condition'] is a Condition or a mapping of signal names to values, got"
                f" {type(given).__name__}"
            )
        self.world.reset(condition, np.random.default_rng(condition.seed))
        self._seq, self._condition = 0, condition.id
        return self._observed(self.world.observe()), self._info()

    def step(self, action: AnyArray) -> tuple[Obs, float, bool, bool, dict[str, Any]]:
        """One control tick; :class:`DataError` for NaN or a wrong shape."""
        value = np.asarray(action, dtype=np.float64)
        if value.shape != self._middle.shape:
            raise DataError(f"an action has shape {self._middle.shape}, got {value.shape}")
        parts = self._space.split(self._middle + self._half * np.clip(value, -1.0, 1.0))
        world = self.world
        world.apply(Command(self._seq, parts, world.now_ns(), source="gymnasium"))
        world.advance()
        world.drain()
        self._seq += 1
        outcome = world.outcome()
        truncated = outcome.truncated or (self._seq >= self._limit and not outcome.terminal)
        observed = self._observed(world.observe())
        return observed, float(outcome.reward), outcome.terminal, truncated, self._info()

    def render(self) -> Picture | None:
        """Picture ``[height, width, 3]`` when the render mode asks for it."""
        return self.world.render(*self._size) if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        """Release the world; safe to call twice."""
        self.world.close()

    def _observed(self, observation: Observation) -> Obs:
        # Copies: the world's arrays are read-only and shared.
        values = {s.name: np.array(observation.value(s.name)) for s in self._signals}
        if self._flat:
            return np.concatenate([v.ravel() for v in values.values()])
        return values

    def _info(self) -> dict[str, Any]:
        outcome = self.world.outcome()
        return {
            "condition": self._condition,
            "progress": outcome.progress,
            "success": outcome.success,
            "reason": outcome.reason,
        }


def _box(shape: tuple[int, ...], dtype: str) -> spaces.Box:
    if dtype == "uint8":
        return spaces.Box(0, 255, shape, np.uint8)
    return spaces.Box(-BOUND, BOUND, shape, np.float64)


def _pose(value: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in np.ravel(value))
