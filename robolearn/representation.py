"""Changes how a network sees poses and actions; outside of it nothing changes.

    episode, request (SI, as declared) --observe, encode--> network <--> --decode--> SI, as declared

Choices, all undone exactly by :meth:`Representation.decode`:

* Actions per signal: ``absolute`` (as recorded); ``relative`` to where the arm is at the chunk's
  start (the newest observation); ``delta`` to the action before, the first to where the arm is.
  Poses are compared as rigid motions, in the frame of the earlier one: T_earlier^-1 T_later
  (Chi et al. 2024, "UMI", section 4); headings the shorter way round; the rest by subtraction.
* ``fine``: how fine such a step is, x -> asinh(x / r): linear below the resolution r, logarithmic
  above, so that one part in a hundred of the network's range is a hundredth of the way in free
  motion and a fraction of a millimetre near where the arm is.
* Rotations: quaternions, or the first two columns of the rotation matrix (``six_d``), which have no
  jump anywhere (Zhou et al. 2019).

Numbers are read in float32, as the data set stores them, so that a recorded episode and a live
request give the same bits.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Float64, Num
from numpy.typing import NDArray

from robolearn.contracts import Policy, PolicySpec
from robolearn.errors import ConfigError, SpecMismatchError, did_you_mean
from robolearn.geometry import (
    Poses,
    quat_conjugate,
    quat_from_rotation,
    quat_heading,
    quat_multiply,
    quat_positive,
    quat_rotate,
    rotation_from_six_d,
    six_d_from_quat,
    unit,
)
from robolearn.shapes import AnyArray
from robolearn.spec import ActionSpec, SignalSpec, TaskSpace
from robolearn.types import PolicyInput, PolicyOutput, Signals

Array = NDArray[np.float64]
# As commanded, and as the network has them.
Actions = Num[NDArray[Any], "b h a"]
Chunks = Num[NDArray[Any], "b h c"]
PosesSixD = Float64[NDArray[np.float64], "*batch 9"]

ActionKind = Literal["absolute", "relative", "delta"]
POSE, HEADING = 7, "xyz_yaw"


@dataclass(frozen=True, slots=True)
class RepresentationConfig:
    """What the network is shown instead of what was recorded; by default just that."""

    # By action signal: absolute, relative (to the chunk's start) or delta; others stay as they are.
    actions: dict[str, ActionKind] = field(default_factory=dict[str, ActionKind])
    # Rotations of poses as six numbers instead of quaternions.
    six_d: bool = False
    # By action signal that is relative or delta: resolution of every number (of a pose: x y z),
    # SI units; smaller steps are seen linearly, larger ones by their logarithm.
    fine: dict[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])

    @property
    def plain(self) -> bool:
        """Whether nothing is changed."""
        return not self.six_d and all(kind == "absolute" for kind in self.actions.values())


class Representation:
    """Both directions for one task space; ``inner`` is what the network sees of it."""

    def __init__(self, config: RepresentationConfig, space: TaskSpace) -> None:
        self.config, self.space = config, space
        names = [a.name for a in space.actions]
        for name in config.actions:
            if name not in names:
                raise ConfigError(
                    f"representation: no action '{name}'.{did_you_mean(name, names)}"
                    f" Actions: {names}"
                )
        self._kinds: dict[str, ActionKind] = {
            a.name: config.actions.get(a.name, "absolute") for a in space.actions
        }
        self._anchors = {
            a.name: _anchor(a, space) for a in space.actions if self._kinds[a.name] != "absolute"
        }
        self._fine = {n: _resolution(n, r, space, self._kinds) for n, r in config.fine.items()}
        poses = [s.name for s in space.observations if config.six_d and is_pose(s)]
        self._turned = frozenset(poses)
        self.inner = TaskSpace(
            observations=tuple(self._signal(s) for s in space.observations),
            actions=tuple(self._action(a) for a in space.actions),
            rate_hz=space.rate_hz,
            texts=space.texts,
        )

    @property
    def anchors(self) -> tuple[str, ...]:
        """Observed signals that actions are relative to."""
        return tuple(sorted(set(self._anchors.values())))

    def observe(self, observations: Signals) -> dict[str, AnyArray]:
        """Observations ``[..., *shape]`` as the network sees them; pictures stay as they are."""
        turned = [name for name in observations if name in self._turned]
        if not turned:
            return dict(observations)
        # All poses at once: a dozen small operations on each would take longer than the network's.
        poses = to_six_d(np.stack([_read(observations[name]) for name in turned]))
        represented = dict(zip(turned, poses.astype(np.float32), strict=True))
        return {name: represented.get(name, values) for name, values in observations.items()}

    def encode(self, actions: Actions, observations: Signals) -> Chunks:
        """Actions ``[b, h, a]`` after observations ``[b, n_obs, *shape]``, for the network."""
        parts = self.space.split(_read(actions))
        return np.concatenate(
            [self._encoded(a, parts[a.name], observations) for a in self.space.actions], axis=-1
        )

    def decode(self, chunk: Chunks, observations: Signals) -> Actions:
        """Inverse of :meth:`encode`, within the limits of the action signals."""
        parts = self.inner.split(np.asarray(chunk, dtype=np.float64))
        return np.concatenate(
            [self._decoded(a, parts[a.name], observations) for a in self.space.actions], axis=-1
        )

    def _encoded(
        self, action: ActionSpec, values: Array, observations: Mapping[str, NDArray[Any]]
    ) -> Array:
        kind = self._kinds[action.name]
        values = values.reshape(*values.shape[:2], -1)
        if kind != "absolute":
            start = self._start(action, observations)
            earlier = np.broadcast_to(start, values.shape)
            if kind == "delta":
                earlier = np.concatenate([start, values[:, :-1]], axis=1)
            values = _between(action, earlier, values)
            values = self._companded(action, values, lambda v, r: np.arcsinh(v / r))
        return to_six_d(values) if self.config.six_d and is_pose(action) else values

    def _decoded(
        self, action: ActionSpec, values: Array, observations: Mapping[str, NDArray[Any]]
    ) -> Array:
        kind = self._kinds[action.name]
        values = values.reshape(*values.shape[:2], -1)
        if is_pose(action) and self.config.six_d:
            values = from_six_d(values)
        elif is_pose(action) and kind != "absolute":
            values = _unit(values)
        if kind != "absolute":
            # No answer is finite for ever: steps beyond exp(20) resolutions are clipped anyway.
            values = self._companded(action, values, lambda v, r: r * np.sinh(np.clip(v, -20, 20)))
            earlier = self._start(action, observations)
            if kind == "relative":
                values = _after(action, np.broadcast_to(earlier, values.shape), values)
            else:
                steps: list[Array] = []
                for i in range(values.shape[1]):
                    earlier = _after(action, earlier, values[:, i : i + 1])
                    steps.append(earlier)
                values = np.concatenate(steps, axis=1)
        low = np.array(action.low or (-np.inf,) * action.size)
        high = np.array(action.high or (np.inf,) * action.size)
        return np.clip(values, low, high)

    def _companded(
        self, action: ActionSpec, values: Array, change: Callable[[Array, Array], Array]
    ) -> Array:
        resolution = self._fine.get(action.name)
        if resolution is None:
            return values
        count = len(resolution)
        fine = change(values[..., :count], resolution)
        return np.concatenate([fine, values[..., count:]], axis=-1)

    def _start(self, action: ActionSpec, observations: Mapping[str, NDArray[Any]]) -> Array:
        """Where the arm is, ``[b, 1, size]``, in terms of the action."""
        newest = _read(observations[self._anchors[action.name]])[:, -1:]
        newest = newest.reshape(*newest.shape[:2], -1)
        if _is_heading(action):
            return np.concatenate(
                [newest[..., :3], quat_heading(newest[..., 3:])[..., None]], axis=-1
            )
        return newest

    def _signal(self, signal: SignalSpec) -> SignalSpec:
        if not self.config.six_d or not is_pose(signal):
            return signal
        names = ("x", "y", "z", "r11", "r21", "r31", "r12", "r22", "r32")
        return dataclasses.replace(signal, shape=(9,), components=names)

    def _action(self, action: ActionSpec) -> ActionSpec:
        changed = self._kinds[action.name] != "absolute"
        shape = (9,) if self.config.six_d and is_pose(action) else action.shape
        if not changed and shape == action.shape:
            return action
        # Limits hold for absolute actions; decode applies them.
        mode = "relative" if changed else action.mode
        return dataclasses.replace(action, shape=shape, low=(), high=(), mode=mode)


class RepresentedPolicy:
    """A policy whose network sees things through ``representation``; outside it is like any other.

    ``inner`` was trained on :attr:`Representation.inner`.
    """

    def __init__(self, inner: Policy, representation: Representation) -> None:
        self.inner, self.representation = inner, representation

    @property
    def spec(self) -> PolicySpec:
        """In terms of the signals as they are recorded and commanded."""
        return dataclasses.replace(self.inner.spec, task_space=self.representation.space)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` chunks per row; a prefix is continued as the inner policy does it."""
        missing = [s for s in self.representation.anchors if s not in request.observations]
        if missing:
            raise SpecMismatchError(
                f"the policy needs {missing}. The request has: {sorted(request.observations)}"
            )
        observations = request.observations
        prefix = request.prefix
        if prefix is not None:
            prefix = self.representation.encode(prefix, observations)
        inner = dataclasses.replace(
            request, observations=self.representation.observe(observations), prefix=prefix
        )
        output = self.inner.sample(inner, n)
        repeated = {k: np.repeat(observations[k], n, axis=0) for k in self.representation.anchors}
        chunks = output.actions.reshape(-1, *output.actions.shape[2:])
        decoded = self.representation.decode(chunks, repeated)
        actions = decoded.reshape(*output.actions.shape[:2], *decoded.shape[1:])
        return dataclasses.replace(output, actions=actions)


def is_pose(spec: SignalSpec | ActionSpec) -> bool:
    """Whether a signal is ``x y z qw qx qy qz``, as every 3-D pose here."""
    return spec.shape == (POSE,) and spec.name.endswith("pose")


def to_six_d(poses: Poses) -> PosesSixD:
    """``[..., 7]`` poses to ``[..., 9]``: position, first and second column of the rotation."""
    return np.concatenate([poses[..., :3], six_d_from_quat(poses[..., 3:])], axis=-1)


def from_six_d(values: PosesSixD) -> Poses:
    """Inverse of :func:`to_six_d`, of any nine numbers (:func:`rotation_from_six_d`)."""
    rotations = rotation_from_six_d(values[..., 3:])
    return np.concatenate([values[..., :3], quat_from_rotation(rotations)], axis=-1)


def _between(action: ActionSpec, earlier: Array, later: Array) -> Array:
    if is_pose(action):
        turn = quat_conjugate(earlier[..., 3:])
        moved = quat_rotate(turn, later[..., :3] - earlier[..., :3])
        return np.concatenate([moved, quat_positive(quat_multiply(turn, later[..., 3:]))], axis=-1)
    return _wrapped(action, later - earlier)


def _after(action: ActionSpec, earlier: Array, step: Array) -> Array:
    if is_pose(action):
        turn = earlier[..., 3:]
        place = earlier[..., :3] + quat_rotate(turn, step[..., :3])
        return np.concatenate([place, quat_positive(quat_multiply(turn, step[..., 3:]))], axis=-1)
    return _wrapped(action, earlier + step)


def _wrapped(action: ActionSpec, values: Array) -> Array:
    if not _is_heading(action):
        return values
    yaw = (values[..., 3:] + np.pi) % (2 * np.pi) - np.pi
    return np.concatenate([values[..., :3], yaw], axis=-1)


def _anchor(action: ActionSpec, space: TaskSpace) -> str:
    """The observed signal that says where the arm is, in terms of the action."""
    part, _, _ = action.name.rpartition("/")
    wanted = f"{part}/pose" if _is_heading(action) else action.name
    shape = (POSE,) if _is_heading(action) else action.shape
    for signal in space.observations:
        if signal.name == wanted and signal.shape == shape and action.mode == "absolute":
            return wanted
    have = [f"{s.name} {s.shape}" for s in space.observations]
    raise SpecMismatchError(
        f"representation: '{action.name}' can only be relative if it is absolute as recorded and"
        f" '{wanted}' {shape} is observed; it is {action.mode}, observed are {have}"
    )


def _resolution(
    name: str, values: tuple[float, ...], space: TaskSpace, kinds: Mapping[str, ActionKind]
) -> Array:
    if kinds.get(name, "absolute") == "absolute":
        raise ConfigError(
            f"representation.fine: '{name}' must be named under representation.actions as relative"
            f" or delta; there are: {dict(kinds)}"
        )
    action = next(a for a in space.actions if a.name == name)
    wanted = 3 if is_pose(action) else action.size
    if len(values) != wanted or not all(0.0 < v < math.inf for v in values):
        raise ConfigError(
            f"representation.fine: '{name}' needs {wanted} positive numbers, got {list(values)}"
        )
    return np.array(values)


def _is_heading(action: ActionSpec) -> bool:
    return action.shape == (4,) and action.name.rpartition("/")[2] == HEADING


def _read(values: NDArray[Any]) -> Array:
    return np.asarray(values, dtype=np.float32).astype(np.float64)


def _unit(poses: Array) -> Array:
    q = unit(poses[..., 3:], np.array([1.0, 0.0, 0.0, 0.0]))
    return np.concatenate([poses[..., :3], quat_positive(q)], axis=-1)
