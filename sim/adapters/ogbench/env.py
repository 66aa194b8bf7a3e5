"""Adapts OGBench's manipulation worlds: ``ogbench/cube-single``, ``scene``, ``puzzle-3x3``, ...

A UR5e with a two-finger gripper at 20 Hz. Actions are OGBench's, in SI units: a step of the
downward gripper (metres, radians about the vertical) and of its closure (0 open, 1 closed), both
relative to what is measured. ``obs/state`` is OGBench's own observation vector, ``goal/state`` the
one of the goal; in play, which has none, the same as ``obs/state``.

Option ``mode=task`` (default: reach the goal of task 1 to 5) or ``mode=play`` (no goal; where its
oracles make data). Option ``task=3`` fixes the task, otherwise the seed chooses it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import warnings
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.errors import MissingDependencyError, SceneError
from robolearn.geometry import quat_from_rotation
from robolearn.ogbench import (
    GOAL,
    GRIPPER,
    LIMITS,
    RATE_HZ,
    STATE,
    TOOL,
    WORLDS,
    action_specs,
    embodiment_name,
    pose_signal,
)
from robolearn.shapes import Picture
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome, Signals
from sim.adapters.stepped import NOTHING_YET, Poses, SteppedEnv
from sim.rendering.renderer import Renderer, View, update_poses
from sim.world_name import WorldName, choose, only

MODES = ("task", "play")
# Sliding things, by joint.
SLIDES = {"drawer_slide": "drawer/opening", "window_slide": "window/opening"}
TASKS = 5
# OGBench's length of a trajectory of play.
PLAY_STEPS = 1000


class OGBenchEnv(SteppedEnv):
    """One of OGBench's worlds; an episode is a pure function of condition and commands."""

    def __init__(self, world: str, mode: str = "task", task: int = 0) -> None:
        self._world, self._mode, self._fixed = world, mode, task
        self._ogb, self._limit = _build(world, mode)
        self._closed = False
        self.info: Mapping[str, Any] = {}
        self.observation: NDArray[np.float64] = np.zeros(0)
        self._begin(0)
        model = self.model
        self._pinch = model.site("ur5e/robotiq/pinch").id
        names = [model.joint(j).name for j in range(model.njnt)]
        self._arm = [j for j, name in enumerate(names) if _is_arm(name)]
        free = [n for n in names if n.startswith("object_joint_")]
        self._blocks = {f"block_{n[13:]}/pose": model.joint(n).id for n in free}
        self._slides = {s: model.joint(n).id for n, s in SLIDES.items() if n in names}
        self._buttons = sum(n.startswith("buttonbox_joint_") for n in names)
        self._film = Renderer(model)
        super().__init__(self._embodiment(), self._blocks)
        version = importlib.metadata.version("ogbench")
        self._engine = f"mujoco {mujoco.__version__} (ogbench {version})"
        self._target = np.zeros(5)
        self._reward, self._solved = 0.0, False

    @classmethod
    def named(cls, name: WorldName) -> OGBenchEnv:
        """From a parsed world name."""
        world = f"{name.family}/{name.thing}"
        only(name, ("mode", "task"))
        choose(name.family, "world", name.thing, tuple(WORLDS))
        mode = choose(world, "mode", name.options.get("mode", "task"), MODES)
        task = name.options.get("task", "0")
        if task not in [str(k) for k in range(TASKS + 1)]:
            raise SceneError(f"{world}: task is 1 to {TASKS} (0: the seed chooses), got '{task}'")
        return cls(name.thing, mode, int(task))

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled model."""
        return self._ogb.model

    @property
    def data(self) -> mujoco.MjData:
        """The engine's state."""
        return self._ogb.data

    @property
    def ogbench(self) -> Any:
        """OGBench's own environment (its oracles act in it)."""
        return self._ogb

    @property
    def engine(self) -> str:
        """Physics engine and versions."""
        return self._engine

    @property
    def scene_hash(self) -> str:
        """Digest of versions and options, which describe this world completely."""
        text = f"{self._engine}\n{self._world}\n{self._mode}\n{self._fixed}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def task(self) -> str:
        """Name of the task."""
        suffix = "_play" if self._mode == "play" else ""
        return f"{embodiment_name(self._world)}{suffix}"

    @property
    def playing(self) -> bool:
        """Whether there is no goal."""
        return self._mode == "play"

    @property
    def max_steps(self) -> int:
        """OGBench's time limit [control steps]."""
        return PLAY_STEPS if self.playing else self._limit

    def sample_condition(self, seed: int) -> Condition:
        """OGBench draws the start itself, from the seed alone."""
        return Condition(id=f"{self.task}-{seed}", seed=seed, poses={})

    def render(self, width: int, height: int) -> Picture:
        """What OGBench's camera ``front`` sees ``[height, width, 3]``."""
        self._samples.require()
        update_poses(self.model, self.data)
        return self._film.image(self.data, View("front", width, height))

    def close(self) -> None:
        """Release the engine and the renderer; safe to call twice."""
        self._film.close()
        if not self._closed:
            self._closed = True
            self._ogb.close()

    def _begin(self, seed: int) -> None:
        task = self._fixed or 1 + seed % TASKS
        options = {} if self.playing else {"task_id": task}
        with warnings.catch_warnings():
            # gymnasium warns of the precision of its action space, once.
            warnings.simplefilter("ignore", UserWarning)
            self._ogb.action_space.seed(seed % 2**32)
            self.observation, self.info = self._ogb.reset(seed=seed % 2**32, options=options)

    def _start(self, condition: Condition, poses: Poses) -> None:
        self._begin(condition.seed)
        for name, pose in poses.items():
            joint = self._blocks[name]
            self.data.qpos[self.model.jnt_qposadr[joint] :][:7] = pose
            self.data.qvel[self.model.jnt_dofadr[joint] :][:6] = 0.0
        if poses:
            mujoco.mj_forward(self.model, self.data)
            self.observation, self.info = (
                self._ogb.compute_observation(),
                {**self.info, **self._ogb.compute_ob_info()},
            )
        self._target, self._reward, self._solved = np.zeros(5), 0.0, False

    def _follow(self, action: Poses) -> None:
        self._target = np.concatenate([action[TOOL], action[GRIPPER]]) / LIMITS

    def _step(self) -> None:
        ob, reward, _, _, info = self._ogb.step(self._target)
        self.observation, self.info, self._reward = ob, info, float(reward)
        # Without a command the gripper stays where it is then.
        self._target = np.zeros(5)

    def _read(self) -> Signals:
        model, data = self.model, self.data
        mujoco.mj_kinematics(model, data)
        grip, rotation = data.site_xpos[self._pinch], data.site_xmat[self._pinch].reshape(3, 3)
        closure = np.asarray(self._ogb.compute_ob_info()["proprio/gripper_opening"])
        values: dict[str, NDArray[Any]] = {
            "arm/joint_position": data.qpos[model.jnt_qposadr[self._arm]],
            "arm/joint_velocity": data.qvel[model.jnt_dofadr[self._arm]],
            "tool/pose": np.concatenate([grip, quat_from_rotation(rotation)]),
            "gripper/closure": closure,
            STATE: np.asarray(self.observation, dtype=np.float64),
        }
        # Play wants nothing else than what is there; goals are put in when it is learned from.
        wanted = self.observation if self.playing else self._ogb._cur_goal_ob  # noqa: SLF001
        values[GOAL] = np.asarray(wanted, dtype=np.float64)
        for name, joint in self._blocks.items():
            pose = data.qpos[model.jnt_qposadr[joint] :][:7].copy()
            pose[3:] *= -1.0 if pose[3] < 0 else 1.0
            values[name] = pose
        for name, joint in self._slides.items():
            values[name] = data.qpos[[model.jnt_qposadr[joint]]]
        if self._buttons:
            states = self._ogb._cur_button_states  # noqa: SLF001
            values["button/state"] = np.asarray(states, dtype=np.float64)
        return values

    def _judge(self) -> Outcome:
        if self.playing or self._ticks == 0:
            return NOTHING_YET
        parts = [np.atleast_1d(p) for p in self._ogb._compute_successes()]  # noqa: SLF001
        done = np.concatenate(parts)
        self._solved = self._solved or bool(done.all())
        return Outcome(
            success=self._solved,
            progress=1.0 if self._solved else float(done.mean()),
            # OGBench's reward of a single task: minus the number of unfinished parts.
            reward=float(done.sum() - done.size),
            terminal=self._solved,
            reason="success" if self._solved else "",
        )

    def _embodiment(self) -> EmbodimentSpec:
        sizes: dict[str, tuple[int, str]] = {
            "arm/joint_position": (6, "rad"),
            "arm/joint_velocity": (6, "rad/s"),
            "tool/pose": (7, ""),
            "gripper/closure": (1, "1"),
            STATE: (len(self.observation), ""),
            GOAL: (len(self.observation), ""),
        }
        sizes |= dict.fromkeys(self._blocks, (7, "")) | dict.fromkeys(self._slides, (1, "m"))
        if self._buttons:
            sizes["button/state"] = (self._buttons, "")
        return EmbodimentSpec(
            name=embodiment_name(self._world),
            signals=tuple(_signal(n, size, unit) for n, (size, unit) in sizes.items()),
            actions=action_specs(),
            rate_hz=RATE_HZ,
        )


def _is_arm(name: str) -> bool:
    return name.startswith("ur5e/") and name.count("/") == 1


def _signal(name: str, size: int, unit: str) -> SignalSpec:
    if not name.endswith("/pose"):
        return SignalSpec(name, (size,), unit=unit, rate_hz=RATE_HZ)
    return pose_signal(name)


def _build(world: str, mode: str) -> tuple[Any, int]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import gymnasium
            import ogbench.manipspace  # noqa: F401 - registers its environments

            spec = gymnasium.spec(f"{world}-v0")
            module, _, kind = str(spec.entry_point).partition(":")
            env = _repeatable(getattr(importlib.import_module(module), kind))(
                **spec.kwargs,
                mode="data_collection" if mode == "play" else "task",
                terminate_at_goal=False,
                visualize_info=False,
            )
    except ImportError as error:
        if ".so" in str(error):
            # A system library that one of its dependencies needs; the package itself is there.
            raise
        raise MissingDependencyError(
            f"OGBench worlds need ogbench 1.2.2 ({error}); run:"
            " pip install -c constraints.txt 'robolearn[ogbench]'"
        ) from error
    return env, int(spec.max_episode_steps or PLAY_STEPS)


def _repeatable(kind: type[Any]) -> type[Any]:
    """OGBench draws two actions to make the goal's observation; here their space can be seeded."""

    class Repeatable(kind):
        _space: Any = None

        @property
        def action_space(self) -> Any:
            if self._space is None:
                self._space = super().action_space
            return self._space

    return Repeatable
