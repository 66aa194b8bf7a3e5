"""Makes a world of any Gymnasium environment with Box spaces: ``gymnasium/Pendulum-v1``.

One signal ``obs/state`` (a Dict of Boxes: one per key) and one action ``obs/action``, in the
environment's own units, which Gymnasium does not tell. Starts come from the seed alone; progress is
1 on success (``info["success"]`` or ``info["is_success"]``), else 0. This is also the way in for
MetaWorld: ``metaworld/reach-v3`` is ``gymnasium/metaworld:Meta-World/MT1,env_name=reach-v3``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from robolearn.errors import ConfigError, MissingDependencyError, RenderError, SceneError
from robolearn.shapes import Picture
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome, Signals
from sim.adapters.stepped import NOTHING_YET, Poses, SteppedEnv
from sim.world_name import WorldName

ACTION, STATE = "obs/action", "obs/state"
# Where an environment does not say its rate or its time limit.
DEFAULT_RATE_HZ = 20.0
DEFAULT_STEPS = 1000
METAWORLD = "metaworld:Meta-World/MT1"
SUCCESS = ("success", "is_success")


class GymnasiumEnv(SteppedEnv):
    """``render`` draws at the environment's own size and scales to what is asked for."""

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        self._name, self._options = name, dict(options)
        self._gym, self._limit = _make(name, options)
        self._closed = False
        self._keys, signals = _signals(name, self._gym.observation_space)
        action = _action(name, self._gym.action_space)
        rate = float(self._gym.metadata.get("render_fps") or DEFAULT_RATE_HZ)
        super().__init__(
            EmbodimentSpec(
                name=_plain(name, options),
                signals=tuple(SignalSpec(n, s, rate_hz=rate, dtype=d) for n, s, d in signals),
                actions=(
                    ActionSpec(ACTION, action.shape, "", rate, low=action.low, high=action.high),
                ),
                rate_hz=rate,
            ),
            (),
        )
        self._observed: Any = None
        self._next: NDArray[np.float64] = np.zeros(action.shape)
        self._outcome_now = NOTHING_YET
        self._over = False

    @classmethod
    def named(cls, name: WorldName) -> GymnasiumEnv:
        """From a parsed world name; options go to ``gymnasium.make``."""
        return cls(name.thing, name.options)

    @classmethod
    def metaworld(cls, name: WorldName) -> GymnasiumEnv:
        """One of MetaWorld's tasks, its goal drawn by the seed."""
        if importlib.util.find_spec("metaworld") is None:
            raise MissingDependencyError(
                "MetaWorld's tasks need metaworld 3.0.0; run:"
                " pip install -c constraints.txt 'robolearn[metaworld]'"
            )
        # Its list of goals is drawn when it is built.
        return cls(METAWORLD, {"env_name": name.thing, "seed": "0", **name.options})

    @property
    def engine(self) -> str:
        """Gymnasium's version; the environment's own is not known to it."""
        return f"gymnasium {importlib.metadata.version('gymnasium')}"

    @property
    def scene_hash(self) -> str:
        """Digest of name, options and version: all that Gymnasium tells."""
        text = f"{self.engine}\n{self._name}\n{sorted(self._options.items())}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def task(self) -> str:
        """Name of the task."""
        return _plain(self._name, self._options)

    @property
    def task_params(self) -> dict[str, Any]:
        """None that this package knows: they are in the name."""
        return {}

    @property
    def max_steps(self) -> int:
        """The registered time limit [control steps]."""
        return self._limit

    def sample_condition(self, seed: int) -> Condition:
        """The environment draws the start itself, from the seed alone."""
        return Condition(id=f"{self.task}-{seed}", seed=seed, poses={})

    def render(self, width: int, height: int) -> Picture:
        """Picture ``[height, width, 3]``; :class:`RenderError` for one that cannot draw."""
        self._samples.require()
        import cv2

        image = self._gym.render() if self._gym.render_mode == "rgb_array" else None
        if image is None:
            raise RenderError(f"{self.spec.name} cannot draw itself into an array")
        scaled = cv2.resize(np.asarray(image), (width, height), interpolation=cv2.INTER_AREA)
        return np.asarray(scaled, dtype=np.uint8)

    def close(self) -> None:
        """Release the environment; safe to call twice."""
        if not self._closed:
            self._closed = True
            self._gym.close()

    def _start(self, condition: Condition, poses: Poses) -> None:
        del poses  # Nothing is settable.
        seed = condition.seed % 2**31
        # Some wrappers (MetaWorld's) draw a task before they pass the seed on, or never do.
        self._gym.np_random = np.random.default_rng(seed)
        self._observed, _ = self._gym.reset(seed=seed)
        self._outcome_now, self._over = NOTHING_YET, False
        self._next = np.zeros_like(self._next)

    def _follow(self, action: Poses) -> None:
        self._next = action[ACTION]

    def _step(self) -> None:
        if self._over:
            # The environment must not be stepped beyond its end.
            return
        command = self._next.astype(self._gym.action_space.dtype)
        self._observed, reward, terminated, truncated, info = self._gym.step(command)
        success = self._outcome_now.success or any(bool(info.get(k, False)) for k in SUCCESS)
        self._over = bool(terminated or truncated)
        reason = "success" if success else ("terminated" if terminated else "")
        self._outcome_now = Outcome(
            success=success,
            progress=1.0 if success else 0.0,
            reward=float(reward),
            terminal=bool(terminated) or success,
            truncated=bool(truncated) and not terminated,
            reason=reason if terminated or success else ("time_limit" if truncated else ""),
        )

    def _read(self) -> Signals:
        if not self._keys:
            return {STATE: np.asarray(self._observed)}
        return {f"obs/{key}": np.asarray(self._observed[key]) for key in self._keys}

    def _judge(self) -> Outcome:
        return self._outcome_now


def _plain(name: str, options: Mapping[str, str]) -> str:
    return "_".join(["gymnasium", name.replace("/", "_").replace(":", "_"), *options.values()])


def _make(name: str, options: Mapping[str, str]) -> tuple[Any, int]:
    import gymnasium

    # Numbers and truth values as such: g=5, continuous=true.
    extra: dict[str, Any] = {k: yaml.safe_load(v) for k, v in options.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            env = gymnasium.make(name, render_mode="rgb_array", disable_env_checker=True, **extra)
        except (gymnasium.error.Error, ImportError, KeyError, TypeError, ValueError) as error:
            raise SceneError(f"gymnasium/{name}: {error}") from error
    return env, int((env.spec.max_episode_steps if env.spec else None) or DEFAULT_STEPS)


def _signals(name: str, space: Any) -> tuple[tuple[str, ...], list[tuple[str, Any, str]]]:
    from gymnasium import spaces

    nested = isinstance(space, spaces.Dict)
    inner: dict[str, Any] = dict(space.spaces) if nested else {"state": space}
    wrong = {k: s for k, s in inner.items() if not isinstance(s, spaces.Box)}
    if wrong:
        raise ConfigError(f"gymnasium/{name}: only Box observations are known, got {wrong}")
    picture = {k: str(s.dtype) == "uint8" for k, s in inner.items()}
    signals = [
        (f"obs/{k}", tuple(s.shape), "uint8" if picture[k] else "float64") for k, s in inner.items()
    ]
    return (tuple(inner) if nested else ()), signals


class _Range:
    def __init__(self, space: Any) -> None:
        self.shape: tuple[int, ...] = tuple(space.shape)
        self.low = tuple(float(v) for v in np.ravel(space.low))
        self.high = tuple(float(v) for v in np.ravel(space.high))


def _action(name: str, space: Any) -> _Range:
    from gymnasium import spaces

    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or not space.is_bounded():
        raise ConfigError(
            f"gymnasium/{name}: only a bounded Box [n] of actions is known, got {space}"
        )
    return _Range(space)
