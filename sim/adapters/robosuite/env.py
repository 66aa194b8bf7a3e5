"""Adapts robosuite's tasks: ``robosuite/Lift``, ``robosuite/Can,robot=Sawyer``.

Signals are read from MuJoCo's state in robosuite's world frame; ``object/state`` is robosuite's own
vector of that name (poses in it are one physics step, 2 ms, older). The controller is robosuite's,
and so is what its actions mean:

    osc    tool/delta_pose [6]       goal = measured pose + (metres, rotation vector) in the base
    joint  arm/joint_position [n]    goal = measured angles + this [rad]
    both   gripper/command [1]       below 0 opens, above 0 closes, at the gripper's own speed
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError, SceneError, did_you_mean
from robolearn.geometry import POSE_COMPONENTS, quat_from_rotation
from robolearn.shapes import Picture
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome, Signals
from sim.adapters.robosuite.build import RATE_HZ, RobosuiteConfig, build, robosuite_config
from sim.adapters.stepped import NOTHING_YET, Poses, SteppedEnv
from sim.rendering.renderer import Renderer, View, update_poses
from sim.shapes import Values
from sim.world_name import WorldName

POSE_UNIT = "m, m, m, 1, 1, 1, 1"
GRIPPER, TOOL_DELTA, JOINTS = "gripper/command", "tool/delta_pose", "arm/joint_position"
SET_POINT = "gripper/set_point"
# Hinges of the door, by joint.
HINGES = {"Door_hinge": "door/opening", "Door_latch_joint": "latch/opening"}
# Objects that a task does not use are parked 10 m away.
PARKED_M = 5.0
# The horizon of robosuite's and robomimic's benchmarks.
MAX_STEPS = 500
STOPPED = "stopped_early"


class RobosuiteEnv(SteppedEnv):
    """One of robosuite's single-arm tasks; resets are soft and a pure function of the condition."""

    def __init__(self, config: RobosuiteConfig) -> None:
        self._config, self._closed = config, False
        self._env: Any = build(config)
        self._env.reset()
        self._robot = self._env.robots[0]
        model = self.model
        self._joints = np.array([model.joint(n).id for n in self._robot.robot_joints])
        self._fingers = [model.joint(n).id for n in self._robot.gripper["right"].joints]
        self._drives = [model.actuator(n).id for n in self._robot.gripper["right"].actuators]
        self._grip = int(self._robot.eef_site_id["right"])
        self._objects = self._free_objects()
        self._hinges = {
            signal: model.joint(name).id
            for item in self._env.model.mujoco_objects
            for name, signal in HINGES.items()
            if name in item.joints
        }
        self._scale = self._action_scale()
        # robosuite shows visual geoms only; collision geoms are in group 0.
        model.geom_rgba[model.geom_group == 0, 3] = 0.0
        self._eyes, self._film = Renderer(model, "fast"), Renderer(model)
        self._check_cameras()
        super().__init__(self._embodiment(), self._objects)
        version = importlib.metadata.version("robosuite")
        self._engine = f"mujoco {mujoco.__version__} (robosuite {version})"
        self._reward, self._ended, self._success = 0.0, False, False
        self._target: NDArray[np.float64] = np.zeros(self._env.action_dim)

    @classmethod
    def named(cls, name: WorldName) -> RobosuiteEnv:
        """From a parsed world name."""
        return cls(robosuite_config(name))

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled model."""
        return self._env.sim.model._model  # noqa: SLF001 - its public proxy lacks named access

    @property
    def data(self) -> mujoco.MjData:
        """The engine's state."""
        return self._env.sim.data._data  # noqa: SLF001

    @property
    def engine(self) -> str:
        """Physics engine and versions."""
        return self._engine

    @property
    def scene_hash(self) -> str:
        """Digest of the model, the controller's choice and the versions."""
        import robosuite

        xml = self._env.model.get_xml().replace(str(Path(robosuite.__file__).parent), "")
        text = f"{self._engine}\n{self._config}\n{xml}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def task(self) -> str:
        """Name of the task."""
        return f"robosuite_{self._config.task}"

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        return MAX_STEPS

    def sample_condition(self, seed: int) -> Condition:
        """Robosuite draws the start itself, from the seed alone."""
        return Condition(id=f"{self.task}-{seed}", seed=seed, poses={})

    def state(self) -> Values:
        """Robosuite's flat state: time, positions, velocities."""
        return np.array(self._env.sim.get_state().flatten(), dtype=np.float64)

    def set_state(self, state: Values) -> None:
        """Continue from a flat state (the clock goes on); :class:`DataError` for a wrong size.

        What the gripper's drives were told last is not part of it and stays as it is.
        """
        size = 1 + self.model.nq + self.model.nv
        if state.shape != (size,) or not np.isfinite(state).all():
            raise DataError(
                f"{self.spec.name}: expected a finite state [{size}] (time, {self.model.nq}"
                f" positions, {self.model.nv} velocities), got {state.shape}"
            )
        self._env.sim.set_state_from_flattened(state)
        self._env.sim.forward()
        self._env._get_observations(force_update=True)  # noqa: SLF001
        # Its controllers keep what they measured last.
        self._robot.part_controllers["right"].update(force=True)
        self._robot.composite_controller.update_state()
        self._robot.composite_controller.reset()

    @property
    def turn_limit_rad(self) -> float:
        """Largest rotation that one command of the tool may ask for about an axis."""
        return float(self._scale[3])

    def solved(self) -> bool:
        """Whether the engine's present state is a success (not sticky)."""
        return bool(self._env._check_success())  # noqa: SLF001

    def render(self, width: int, height: int) -> Picture:
        """What the camera ``agentview`` sees ``[height, width, 3]``."""
        self._samples.require()
        update_poses(self.model, self.data)
        return self._film.image(self.data, View("agentview", width, height))

    def close(self) -> None:
        """Release the engine and the renderer; safe to call twice."""
        self._eyes.close()
        self._film.close()
        if not self._closed:
            self._closed = True
            self._env.close()

    def signals(self) -> Signals:
        """The value of every signal in the engine's present state."""
        return self._read()

    def _start(self, condition: Condition, poses: Poses) -> None:
        # Its samplers share this generator.
        fresh = np.random.default_rng(condition.seed)
        self._env.rng.bit_generator.state = fresh.bit_generator.state
        self._env.reset()
        for name, pose in poses.items():
            joint = self._objects[name]
            qpos = self.model.jnt_qposadr[joint]
            self.data.qpos[qpos : qpos + 7] = pose
            self.data.qvel[self.model.jnt_dofadr[joint] :][:6] = 0.0
        if poses:
            self._env.sim.forward()
            self._env._get_observations(force_update=True)  # noqa: SLF001
        self._reward, self._ended, self._success = 0.0, False, False
        self._target = np.zeros(self._env.action_dim)

    def _follow(self, action: Poses) -> None:
        parts = [np.asarray(action[a.name]).reshape(-1) for a in self._spec.actions]
        self._target = np.concatenate(parts) / self._scale

    def _step(self) -> None:
        _, reward, self._ended, _ = self._env.step(self._target)
        self._reward = float(reward)

    def _read(self) -> Signals:
        model, data = self.model, self.data
        # After a step the engine's poses are those of one physics step ago.
        mujoco.mj_kinematics(model, data)
        grip, rotation = data.site_xpos[self._grip], data.site_xmat[self._grip].reshape(3, 3)
        values: dict[str, NDArray[Any]] = {
            JOINTS: data.qpos[model.jnt_qposadr[self._joints]],
            "arm/joint_velocity": data.qvel[model.jnt_dofadr[self._joints]],
            "tool/pose": np.concatenate([grip, quat_from_rotation(rotation)]),
        }
        if self._fingers:
            values["gripper/joint_position"] = data.qpos[model.jnt_qposadr[self._fingers]]
        if self._has_width:
            values["gripper/width"] = np.array([np.ptp(values["gripper/joint_position"])])
        if self._drives:
            values[SET_POINT] = self._set_point()
        for name, joint in self._objects.items():
            values[name] = _canonical(data.qpos[model.jnt_qposadr[joint] :][:7])
        for name, joint in self._hinges.items():
            values[name] = data.qpos[[model.jnt_qposadr[joint]]]
        state = self._env._get_observations()["object-state"]  # noqa: SLF001
        values["object/state"] = np.asarray(state, dtype=np.float64)
        if self._config.cameras:
            update_poses(model, data)
            size, cameras = self._config.size, self._config.cameras
            pictures = self._eyes.images(data, [View(c, size, size) for c in cameras])
            values |= {f"{c}/image": p for c, p in zip(cameras, pictures, strict=True)}
        return values

    def _judge(self) -> Outcome:
        if self._ticks == 0:
            return NOTHING_YET
        now = self.solved()
        self._success = self._success or now
        if self._config.task == "Wipe":
            wiped = len(self._env.wiped_markers) / self._env.num_markers
            progress = wiped
        else:
            progress = float(np.clip(self._reward, 0.0, 1.0))
        stopped = self._ended and not self._success
        reason = "success" if self._success else (STOPPED if stopped else "")
        return Outcome(
            success=self._success,
            progress=1.0 if self._success else progress,
            reward=float(now),
            terminal=self._success or stopped,
            reason=reason,
            metrics={"staged_reward": self._reward},
        )

    def _set_point(self) -> NDArray[np.float64]:
        """What the gripper's drives are told [m or rad]: each command moves it by a step, within
        the drives' range, and the fingers follow.
        """
        low, high = self.model.actuator_ctrlrange[self._drives].T
        # Between -1 and 1 (robosuite 1.5: SimpleGripController maps it to the drives' range).
        targets = np.asarray(self._robot.gripper["right"].current_action, dtype=np.float64)
        return (low + high) / 2 + targets * (high - low) / 2

    @property
    def _has_width(self) -> bool:
        """Two sliding fingers: the width between them is the difference of their positions."""
        kinds = [int(self.model.jnt_type[j]) for j in self._fingers]
        return kinds == [int(mujoco.mjtJoint.mjJNT_SLIDE)] * 2

    def _free_objects(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for item in self._env.model.mujoco_objects:
            for name in item.joints:
                joint = self.model.joint(name).id
                start = self.model.jnt_qposadr[joint]
                free = self.model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_FREE
                if free and np.abs(self.data.qpos[start : start + 3]).max() < PARKED_M:
                    # ToolHang has an object called tool.
                    plain = item.name if item.name != "tool" else "hung_tool"
                    found[f"{plain[0].lower()}{plain[1:]}/pose"] = joint
        return found

    def _action_scale(self) -> NDArray[np.float64]:
        """Normalised action = action in SI units / this."""
        arm = self._robot.part_controllers["right"]
        scale = np.broadcast_to(np.asarray(arm.output_max, dtype=np.float64), arm.control_dim)
        rest = self._env.action_dim - arm.control_dim
        return np.concatenate([scale, np.ones(rest)])

    def _check_cameras(self) -> None:
        names = list(self._env.sim.model.camera_names)
        for camera in self._config.cameras:
            if camera not in names:
                raise SceneError(
                    f"robosuite/{self._config.task}: no camera '{camera}'."
                    f"{did_you_mean(camera, names)} There are: {names}"
                )

    def _embodiment(self) -> EmbodimentSpec:
        n, fingers = len(self._joints), len(self._fingers)
        signals = [
            _signal(JOINTS, n, "rad"),
            _signal("arm/joint_velocity", n, "rad/s"),
            _pose("tool/pose"),
        ]
        unit = "m" if self._has_width else "rad"
        if fingers:
            signals.append(_signal("gripper/joint_position", fingers, unit))
        if self._has_width:
            signals.append(_signal("gripper/width", 1, "m"))
        if self._drives:
            signals.append(_signal(SET_POINT, len(self._drives), unit))
        signals += [_pose(name) for name in self._objects]
        signals += [_signal(name, 1, "rad") for name in self._hinges]
        state = self._env._get_observations()["object-state"]  # noqa: SLF001
        signals.append(_signal("object/state", len(state), ""))
        size = self._config.size
        signals += [
            SignalSpec(f"{c}/image", (size, size, 3), rate_hz=RATE_HZ, dtype="uint8")
            for c in self._config.cameras
        ]
        return EmbodimentSpec(
            name=f"robosuite_{self._config.task}_{self._config.robot}",
            signals=tuple(signals),
            actions=self._actions(),
            rate_hz=RATE_HZ,
        )

    def _actions(self) -> tuple[ActionSpec, ...]:
        arm = self._robot.part_controllers["right"].control_dim
        limit = tuple(self._scale[:arm].tolist())
        joint = self._config.control == "joint"
        actions = [
            ActionSpec(
                JOINTS if joint else TOOL_DELTA,
                (arm,),
                unit="rad" if joint else "m, m, m, rad, rad, rad",
                rate_hz=RATE_HZ,
                mode="relative",
                frame="" if joint else "base",
                low=tuple(-v for v in limit),
                high=limit,
            )
        ]
        rest = self._env.action_dim - arm
        if rest:
            actions.append(
                ActionSpec(
                    GRIPPER,
                    (rest,),
                    rate_hz=RATE_HZ,
                    mode="relative",
                    low=(-1.0,) * rest,
                    high=(1.0,) * rest,
                )
            )
        return tuple(actions)


def _canonical(pose: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same pose with ``qw >= 0``."""
    return np.concatenate([pose[:3], -pose[3:] if pose[3] < 0 else pose[3:]])


def _signal(name: str, size: int, unit: str) -> SignalSpec:
    return SignalSpec(name, (size,), unit=unit, rate_hz=RATE_HZ)


def _pose(name: str) -> SignalSpec:
    return SignalSpec(
        name, (7,), unit=POSE_UNIT, rate_hz=RATE_HZ, components=POSE_COMPONENTS, frame="world"
    )
