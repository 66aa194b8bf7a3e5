"""Perturbs what goes in and out of an env: start poses, sensors' noise, actions' noise."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from robolearn.agents.actions import clip_action
from robolearn.geometry import (
    names_rotation,
    quat_from_rotation,
    quat_multiply,
    rot_z,
    rotation_from_rotvec,
)
from robolearn.pusht import wrap_angle
from robolearn.seeding import child_seed
from robolearn.shapes import AnyArray, OwnFloats
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Command, Condition, Sample, SampleBlock
from sim.shapes import Values

# Magnitude 1: start poses, each way.
START_M, START_RAD = 0.03, float(np.radians(30.0))
# Magnitude 1: standard deviations by unit; pictures in grey levels.
DEVIATIONS = {
    "m": 0.001,
    "rad": float(np.radians(0.5)),
    "m/s": 0.005,
    "rad/s": 0.02,
}
PICTURE = 8.0
# Magnitude 1 of an action's noise: the largest standard deviation by unit; it wanders within half a
# second.
ACTION_DEVIATIONS = {"m": 0.005, "rad": 0.05}
ACTION_TIME_S = 0.5
QUATERNION = "quaternion wxyz"


def is_object(name: str) -> bool:
    """Whether a signal is the pose of something that is no part of a robot."""
    part, _, what = name.rpartition("/")
    return what == "pose" and not part.endswith(("tool", "arm", "gripper"))


def move_objects(condition: Condition, magnitude: float, rng: np.random.Generator) -> Condition:
    """The start with every object's pose moved: uniformly within 30 mm and 30 degrees (about the
    vertical), times the magnitude. The id stays, so that trials pair with nominal ones.
    """
    poses = dict(condition.poses)
    for name, pose in condition.poses.items():
        if not is_object(name):
            continue
        xy = np.array(pose[:2]) + START_M * magnitude * rng.uniform(-1.0, 1.0, 2)
        turn = START_RAD * magnitude * float(rng.uniform(-1.0, 1.0))
        if len(pose) == 3:
            rest = [float(wrap_angle(pose[2] + turn))]
        else:
            q = quat_multiply(quat_from_rotation(rot_z(turn)), np.array(pose[3:7]))
            rest = [pose[2], *(q if q[0] >= 0 else -q).tolist()]
        poses[name] = (*map(float, xy), *map(float, rest))
    return dataclasses.replace(condition, poses=poses)


class SensorNoise:
    """Adds normal noise to samples; the same sample always gets the same noise."""

    def __init__(self, spec: EmbodimentSpec, magnitude: float) -> None:
        self._signals = {s.name: s for s in spec.signals}
        self._size = {n: magnitude * _deviation(s) for n, s in self._signals.items()}
        self._turn = {
            n: magnitude * DEVIATIONS["rad"]
            for n, s in self._signals.items()
            if QUATERNION in s.unit and s.shape == (7,)
        }
        self._seed = 0

    def reset(self, seed: int) -> None:
        """A new episode."""
        self._seed = seed

    def sample(self, name: str, sample: Sample) -> Sample:
        """One noisy sample, read-only."""
        return Sample(sample.t_ns, self._noisy(name, sample.t_ns, sample.value))

    def block(self, name: str, block: SampleBlock) -> SampleBlock:
        """Noisy samples of one signal."""
        rows = [self._noisy(name, int(t), v) for t, v in zip(block.t_ns, block.value, strict=True)]
        value = np.array(rows, dtype=block.value.dtype).reshape(block.value.shape)
        return dataclasses.replace(block, value=value)

    def _noisy(self, name: str, t_ns: int, value: AnyArray) -> AnyArray:
        size = self._size[name]
        if not size.any() or (name in self._turn and not names_rotation(value[3:])):
            return value
        rng = np.random.default_rng(child_seed(self._seed, "sensor_noise", name, t_ns))
        out: AnyArray
        if value.dtype == np.uint8:
            noise = rng.normal(0.0, float(size.max()), value.shape)
            out = np.clip(np.rint(value + noise), 0, 255).astype(np.uint8)
        else:
            out = value + size * rng.normal(size=value.shape)
            if name in self._turn:
                turn = rotation_from_rotvec(self._turn[name] * rng.normal(size=3))
                q = quat_multiply(quat_from_rotation(turn), np.asarray(value[3:7], np.float64))
                # The nearer of the two quaternions, as the env reads it.
                out[3:7] = q if float(q @ value[3:7]) >= 0 else -q
            for i in self._signals[name].angular:
                out[..., i] = wrap_angle(out[..., i])
            out = out.astype(value.dtype)
        out.setflags(write=False)
        return out


class ActionNoise:
    """What is carried out wanders about what was commanded: an Ornstein-Uhlenbeck process per
    number, whose deviation is drawn for every episode, uniformly from 0 to the magnitude's.

    The command that an agent gave stays what it was, so an expert in such a world shows how errors
    are corrected (Laskey et al. 2017, "DART"). Steps (relative actions) get the process's steps.
    """

    def __init__(self, spec: EmbodimentSpec, magnitude: float) -> None:
        self._actions = spec.actions
        self._size = {a.name: magnitude * _action_deviation(a) for a in spec.actions}
        self._keep = math.exp(-1.0 / (ACTION_TIME_S * spec.rate_hz))
        self.reset(np.random.default_rng(0))

    def reset(self, rng: np.random.Generator) -> None:
        """A new episode."""
        self._rng, self._share = rng, float(rng.uniform())
        self._state = {n: np.zeros_like(v) for n, v in self._size.items()}

    def disturbed(self, command: Command) -> Command:
        """The command that is carried out instead, within the ranges of the actions."""
        action: dict[str, OwnFloats] = {}
        fresh = self._share * math.sqrt(1.0 - self._keep * self._keep)
        for spec in self._actions:
            name, before = spec.name, self._state[spec.name]
            draw = self._rng.standard_normal(before.shape)
            now = self._keep * before + fresh * self._size[name] * draw
            self._state[name] = now
            value = np.asarray(command.action[name], dtype=np.float64)
            action[name] = value + (now if spec.mode == "absolute" else now - before)
        return dataclasses.replace(command, action=clip_action(self._actions, action))


def _action_deviation(action: ActionSpec) -> Values:
    """Largest standard deviation of every value at magnitude 1."""
    units = [u.strip() for u in action.unit.split(",")]
    if QUATERNION in units and action.shape == (7,):
        return np.array([ACTION_DEVIATIONS["m"]] * 3 + [0.0] * 4)
    sizes = np.array([ACTION_DEVIATIONS.get(u, 0.0) for u in units])
    if sizes.size != action.size and sizes.size != 1:
        return np.zeros(action.shape)
    return np.broadcast_to(sizes, (action.size,)).reshape(action.shape).copy()


def _deviation(signal: SignalSpec) -> Values:
    """Standard deviation of every value at magnitude 1."""
    if signal.is_image:
        return np.full(1, PICTURE)
    units = [u.strip() for u in signal.unit.split(",")]
    if units == ["m", QUATERNION] and signal.shape == (7,):
        return np.array([DEVIATIONS["m"]] * 3 + [0.0] * 4)
    sizes = [DEVIATIONS.get(u, 0.0) for u in units]
    if len(sizes) == 1:
        return np.full(signal.shape, sizes[0])
    return np.array(sizes) if signal.shape == (len(sizes),) else np.zeros(signal.shape)
