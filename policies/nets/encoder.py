"""Turns signals in SI units into features and actions back, as torch modules with buffers."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from policies.nets.shapes import Chunks, LastFeatures, Scales, Tokens
from policies.nets.transforms import SignalTransform, fit_transform
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import AnyTensor, Observed
from robolearn.spec import SignalSpec

SPATIAL = 9
"""Numbers of a pose in space whose rotation is written as two columns."""
GAINS = (3.0, 20.0, 100.0)
"""Scales [1/m] of relative positions: a table, a hand, a clearance."""
TURN_GAIN = 20.0
"""Of relative rotations, beside the columns themselves: a peg may be off by a degree or two."""


@dataclass(frozen=True, slots=True)
class FocusConfig:
    """A place where an observation has to be resolved finely, such as the goal of an object.

    Adds tanh(gain * (x - centre)) in normalised units: steep near the centre, constant far away,
    so that what was seen near the goal does not repeat elsewhere as it would with periodic
    features.
    """

    # Observation signal.
    signal: str
    # Its value at the centre, SI units; "goal": the goal of the recordings, put in by training.
    centre: tuple[float, ...] | Literal["goal"]
    # Gains; a workspace of half a metre has about +-1 in normalised units.
    gains: tuple[float, ...] = (4.0, 20.0)


class SignalEncoder(nn.Module):
    """Vector observations ``[b, n_obs, *shape]`` to features ``[b, n_obs, size]``; pictures have
    an encoder of their own (``policies/nets/pictures.py``).

    Every signal goes through its :class:`~policies.nets.transforms.SignalTransform`. With
    ``relative`` pairs (position, pose) the position is added once more, seen from the pose's own
    frame (planar, x y yaw): where the tool is from the block's point of view. Of two poses in space
    (with ``representation.six_d``: nine numbers) the first is added as the second sees it, its
    position at several scales: :func:`pose_in_pose`.
    """

    def __init__(
        self,
        spec: PolicySpec,
        stats: DatasetStats,
        relative: tuple[tuple[str, str], ...] = (),
        octaves: int = 0,
        focus: FocusConfig | None = None,
    ) -> None:
        super().__init__()
        signals = {s.name: s for s in spec.task_space.observations if not s.is_image}
        self.names = tuple(signals)
        self.transforms = {
            n: fit_transform(
                s.shape, stats.observations[n], stats.scaling.get(n, spec.normalization), s.angular
            )
            for n, s in signals.items()
        }
        for i, n in enumerate(self.names):
            register_transform(self, i, self.transforms[n])
        self.relative = relative
        # (y, x) times this: a quarter turn clockwise.
        self.register_buffer("quarter", torch.tensor([1.0, -1.0]), persistent=False)
        for i in {self.names.index(pose) for _, pose in relative if pose in signals}:
            self.register_buffer(f"planar{i}", _buffer(self, f"scale{i}")[:2], persistent=False)
        self.size = sum(t.size for t in self.transforms.values())
        self.size += sum(_relative_size(signals, pair) for pair in relative)
        self.focus = focus
        if focus is not None:
            if focus.centre == "goal":
                raise ConfigError(
                    "focus.centre: 'goal' stands for the goal of the recordings, which training"
                    " puts in; outside of it give numbers"
                )
            found = signals.get(focus.signal)
            if found is None or found.shape != (len(focus.centre),):
                raise SpecMismatchError(
                    f"focus: '{focus.signal}' must be an observed vector of"
                    f" {len(focus.centre)} values; signals: {list(signals)}"
                )
            self.register_buffer("centre", torch.tensor(focus.centre))
            self._prepare(focus, self.transforms[focus.signal])
            self.size += len(focus.centre) * len(focus.gains)
        self.octaves = octaves
        self.lifted_size = self.size * (1 + 2 * octaves)

    def forward(self, observations: Observed) -> Tokens:
        """Features of all signals, then the relative ones."""
        own = {
            n: encoded_parts(
                observations[n],
                self.transforms[n],
                _buffer(self, f"scale{i}"),
                _buffer(self, f"offset{i}"),
            )
            for i, n in enumerate(self.names)
        }
        parts = [part for of_signal in own.values() for part in of_signal]
        for position, pose in self.relative:
            turn = own[pose][1:]
            parts.append(self._relative(observations[position], observations[pose], pose, turn))
        if self.focus is not None:
            parts += self._focused(observations[self.focus.signal])
        if not parts:  # Pictures alone.
            some = next(iter(observations.values()))
            return torch.zeros(*some.shape[:2], 0, device=some.device)
        return torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]

    def lift(self, features: Tokens) -> Float[Tensor, "b tokens lifted"]:
        """Add sines and cosines of the features, one octave after the other.

        A small network resolves millimetres in a workspace of half a metre only slowly without
        them (Tancik et al. 2020).
        """
        if not self.octaves:
            return features
        parts = [features]
        for k in range(self.octaves):
            angle = features * (math.pi * 2.0**k)
            parts += [angle.sin(), angle.cos()]
        return torch.cat(parts, dim=-1)

    def _prepare(self, focus: FocusConfig, transform: SignalTransform) -> None:
        """What :meth:`_focused` needs: angles are counted in turns there, whose whole numbers do
        not matter, and in half turns from then on.
        """
        self._order = (*transform.linear, *transform.angular)
        turns = [0.0] * len(transform.linear) + [1.0] * len(transform.angular)
        units = [*transform.scale, *[1 / (2 * math.pi)] * len(transform.angular)]
        for name, values in (("units", units), ("turns", turns)):
            self.register_buffer(name, torch.tensor(values), persistent=False)
        for i, gain in enumerate(focus.gains):
            values = torch.tensor([gain * (1 + turn) for turn in turns])
            self.register_buffer(f"gain{i}", values, persistent=False)

    def _focused(self, values: Tensor) -> list[Tensor]:
        delta = (values - _buffer(self, "centre")).float()
        distance = _pick(delta, self._order) * _buffer(self, "units")
        distance = distance - distance.round() * _buffer(self, "turns")
        gains = () if self.focus is None else self.focus.gains
        return [torch.tanh(distance * _buffer(self, f"gain{i}")) for i in range(len(gains))]

    def _relative(
        self, position: Tensor, pose: Tensor, name: str, turn: Sequence[Tensor]
    ) -> Tensor:
        """``turn``: of a planar pose, cosine and sine of its yaw, which are features already."""
        if position.shape[-1] == SPATIAL:
            return pose_in_pose(position, pose)
        cos, sin = turn
        delta = position - pose[..., :2]
        # (c x + s y, c y - s x), number by number: a matrix product would round in bfloat16.
        local = torch.addcmul(cos * delta, sin, delta.flip(-1) * _buffer(self, "quarter"))
        return local * _buffer(self, f"planar{self.names.index(name)}")


def pose_in_pose(one: Float[Tensor, "*b 9"], other: Float[Tensor, "*b 9"]) -> Float[Tensor, "*b f"]:
    """Features of the pose ``one`` seen from ``other``, both ``[..., 9]`` (x y z [m], the first two
    columns of the rotation): tanh of the step to it times :data:`GAINS`, along the common axes and
    along those of ``other``, and its columns in them, as they are and tanh of :data:`TURN_GAIN`
    times them: fine where axes are nearly at right angles, whichever face a part shows.

    An MLP learns differences of large coordinates to a millimetre slowly; here they are large.
    """
    x, y = other[..., 3:6], other[..., 6:9]
    axes = torch.stack([x, y, torch.linalg.cross(x, y)], dim=-2)
    delta, first, second = one[..., :3] - other[..., :3], one[..., 3:6], one[..., 6:9]
    local = (axes @ torch.stack([delta, first, second], dim=-1)).unbind(-1)
    steps = torch.cat([delta, local[0]], dim=-1)
    columns = torch.cat(local[1:], dim=-1)
    fine = torch.tanh(TURN_GAIN * columns)
    return torch.cat([*(torch.tanh(gain * steps) for gain in GAINS), columns, fine], dim=-1)


def _relative_size(signals: Mapping[str, SignalSpec], pair: tuple[str, str]) -> int:
    """Features that a relative pair adds; :class:`SpecMismatchError` if it has no such signals."""
    found = [signals.get(name) for name in pair]
    shapes = [None if s is None else (s.shape, s.angular) for s in found]
    if shapes == [((2,), ()), ((3,), (2,))]:
        return 2
    if shapes == [((SPATIAL,), ())] * 2:
        return 6 * len(GAINS) + 12
    raise SpecMismatchError(
        f"relative features need a planar position [2] and pose [3] (x, y, yaw), or two poses in"
        f" space with representation.six_d; {list(pair)} are {found}; signals: {list(signals)}"
    )


def refuse_pictures(spec: PolicySpec) -> None:
    """:class:`SpecMismatchError` if a task space observes cameras."""
    images = [s.name for s in spec.task_space.observations if s.is_image]
    if images:
        raise SpecMismatchError(
            f"this policy reads vectors, not images: drop {images} from data.observations"
        )


class ActionCodec(nn.Module):
    """Flat actions ``[b, h, a]`` in SI units to normalised ones and back.

    With a ``gain`` above 0, actions are seen from the newest observation of the signal of the same
    name and multiplied by it: near the tool, where most targets are, the network works finely.
    """

    def __init__(self, spec: PolicySpec, stats: DatasetStats, gain: float = 0.0) -> None:
        super().__init__()
        self.names = tuple(a.name for a in spec.task_space.actions)
        self.gain = gain
        shapes = {s.name: s.shape for s in spec.task_space.observations}
        for action in spec.task_space.actions:
            if gain > 0 and (shapes.get(action.name) != action.shape or action.mode != "absolute"):
                raise SpecMismatchError(
                    f"anchor: '{action.name}' must be an absolute action that is observed as well;"
                    f" observed: {shapes}"
                )
        transforms = [
            fit_transform(
                a.shape, stats.actions[a.name], stats.scaling.get(a.name, spec.normalization)
            )
            for a in spec.task_space.actions
        ]
        self.register_buffer("scale", torch.tensor([v for t in transforms for v in t.scale]))
        self.register_buffer("offset", torch.tensor([v for t in transforms for v in t.offset]))
        self.register_buffer("unit", _buffer(self, "scale") * (gain or 1.0), persistent=False)
        # Absolute limits of the action signals; a policy never asks for more.
        low = [v for a in spec.task_space.actions for v in (a.low or (-torch.inf,) * a.size)]
        high = [v for a in spec.task_space.actions for v in (a.high or (torch.inf,) * a.size)]
        self.register_buffer("low", torch.tensor(low))
        self.register_buffer("high", torch.tensor(high))
        self.high: Tensor

    def encode(self, actions: Chunks, observations: Observed) -> Chunks:
        """To the range that networks work in."""
        if self.gain > 0:
            return (actions - self._anchor(observations)) * _buffer(self, "unit")
        return actions * _buffer(self, "scale") + _buffer(self, "offset")

    def decode(self, normalised: Chunks, observations: Observed) -> Chunks:
        """Back to SI units, within the limits of the action signals."""
        if self.gain > 0:
            actions = normalised / _buffer(self, "unit") + self._anchor(observations)
        else:
            actions = (normalised - _buffer(self, "offset")) / _buffer(self, "scale")
        return actions.clamp(_buffer(self, "low"), _buffer(self, "high"))

    def _anchor(self, observations: Mapping[str, Tensor]) -> Tensor:
        newest = [observations[name][:, -1:] for name in self.names]
        if any(values.ndim != 3 for values in newest):
            newest = [values.flatten(2) for values in newest]
        return torch.cat(newest, dim=-1) if len(newest) > 1 else newest[0]


def same_codec(one: ActionCodec, other: ActionCodec) -> bool:
    """Whether two codecs map the same actions to the same numbers (limits aside)."""
    if one.gain != other.gain:
        return False
    pairs = [(one.get_buffer(n), other.get_buffer(n)) for n in ("scale", "offset")]
    return all(a.shape == b.shape and torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in pairs)


def register_transform(module: nn.Module, index: int, transform: SignalTransform) -> None:
    """Keep a transform's numbers as buffers ``scale<index>`` and ``offset<index>``."""
    module.register_buffer(f"scale{index}", torch.tensor(transform.scale))
    module.register_buffer(f"offset{index}", torch.tensor(transform.offset))


def encoded(
    values: AnyTensor, transform: SignalTransform, scale: Scales, offset: Scales
) -> LastFeatures:
    """:meth:`SignalTransform.forward` on tensors."""
    return torch.cat(encoded_parts(values, transform, scale, offset), dim=-1)


def encoded_parts(
    values: AnyTensor, transform: SignalTransform, scale: Scales, offset: Scales
) -> tuple[Float[Tensor, "... _"], ...]:
    """:func:`encoded` in parts: what is linear; and of angles, if any, cosines and sines."""
    flat = values.float()
    if len(transform.shape) != 1:  # A graph would work the shape out at every call.
        flat = flat.reshape(*values.shape[: values.ndim - len(transform.shape)], -1)
    linear = torch.addcmul(offset, _pick(flat, transform.linear), scale)
    if not transform.angular:
        return (linear,)
    angles = _pick(flat, transform.angular)
    return linear, angles.cos(), angles.sin()


def decoded(
    features: LastFeatures, transform: SignalTransform, scale: Scales, offset: Scales
) -> Float[Tensor, "... size"]:
    """:meth:`SignalTransform.inverse` on tensors, for vectors."""
    n, a = len(transform.scale), len(transform.angular)
    linear = (features[..., :n] - offset) / scale
    angles = torch.atan2(features[..., n + a :], features[..., n : n + a])
    order = [*transform.linear, *transform.angular]
    columns = torch.cat([linear, angles], dim=-1)
    return columns[..., [order.index(i) for i in range(n + a)]]


def _pick(values: Tensor, index: tuple[int, ...]) -> Tensor:
    """``values[..., index]``; neighbours are a slice, which needs no gather."""
    if index == tuple(range(values.shape[-1])):
        return values
    if index and index == tuple(range(index[0], index[-1] + 1)):
        return values[..., index[0] : index[-1] + 1]
    return values[..., list(index)]


def _buffer(module: nn.Module, name: str) -> Tensor:
    """A buffer, without the walk through the module's path that ``get_buffer`` takes."""
    return cast("Tensor", getattr(module, name))
