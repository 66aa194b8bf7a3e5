"""Specifies what a signal, an action, a task space and an embodiment are.

They travel with the data and with every checkpoint, and are compared on load; a mismatch prints a
diff (:func:`diff_task_spaces`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.errors import DataError, SpecMismatchError, did_you_mean
from robolearn.shapes import AnyFloats
from robolearn.types import Signals

# a: numbers of an action
FlatAction = Float64[NDArray[np.float64], " a"]
FlatActions = Float64[NDArray[np.float64], "... a"]

ActionMode = Literal["absolute", "relative"]


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """A named stream ``part/name``.

    ``angular`` lists the components that are angles [rad] and wrap at pi: statistics, differences
    and network inputs treat them as points on a circle.
    """

    name: str
    shape: tuple[int, ...]
    unit: str = ""
    rate_hz: float = 0.0
    dtype: str = "float64"
    components: tuple[str, ...] = ()
    angular: tuple[int, ...] = ()
    frame: str = ""

    def __post_init__(self) -> None:
        if self.name.count("/") != 1:
            raise DataError(f"signal name must be 'part/name', got '{self.name}'")
        if self.components and (len(self.shape) != 1 or len(self.components) != self.shape[0]):
            raise DataError(f"{self.name}: {len(self.components)} components for {self.shape}")

    @property
    def is_image(self) -> bool:
        """True for what cameras take: ``uint8`` arrays ``[height, width, 3]``, or depth."""
        return (self.dtype == "uint8" and len(self.shape) == 3) or self.is_depth

    @property
    def is_depth(self) -> bool:
        """True for depth along the optical axis: ``uint16 [height, width]`` [mm], 0 where nothing
        was measured.
        """
        return self.dtype == "uint16" and len(self.shape) == 2


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """One commanded signal: its shape and meaning (absolute or relative, frame, rate, range).

    ``tolerance``: a value at most so far outside the range is clipped to it; one further outside
    is no rounding, and is left as it is for the robot to refuse. None (simulation): any is clipped.
    """

    name: str
    shape: tuple[int, ...]
    unit: str = ""
    rate_hz: float = 0.0
    mode: ActionMode = "absolute"
    frame: str = ""
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    tolerance: float | None = None

    @property
    def size(self) -> int:
        """Number of scalars."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class TaskSpace:
    """The signals a policy reads and writes. Two robots that provide them can share a policy.

    ``texts``: the instructions that it tells apart (``robolearn/instructions.py``); empty: it reads
    none.
    """

    observations: tuple[SignalSpec, ...]
    actions: tuple[ActionSpec, ...]
    rate_hz: float
    texts: tuple[str, ...] = ()

    @property
    def action_size(self) -> int:
        """Length of the flat action vector, in the order of ``actions``."""
        return sum(a.size for a in self.actions)

    def split(self, flat: FlatActions) -> dict[str, AnyFloats]:
        """Cut a flat action ``[..., action_size]`` into one array per action signal."""
        if flat.shape[-1] != self.action_size:
            raise DataError(f"expected {self.action_size} action values, got {flat.shape[-1]}")
        out: dict[str, AnyFloats] = {}
        start = 0
        for action in self.actions:
            part = flat[..., start : start + action.size]
            out[action.name] = part.reshape(*flat.shape[:-1], *action.shape)
            start += action.size
        return out

    def join(self, parts: Signals) -> FlatAction:
        """Inverse of :meth:`split` for one action (no leading dimensions)."""
        missing = [a.name for a in self.actions if a.name not in parts]
        if missing:
            raise DataError(f"action lacks {missing}; it has {sorted(parts)}")
        return np.concatenate(
            [np.asarray(parts[a.name], dtype=np.float64).reshape(-1) for a in self.actions]
        )


def refuse_depth(space: TaskSpace) -> None:
    """Raise SpecMismatchError where a policy would have to look at depth."""
    depths = [s.name for s in space.observations if s.is_depth]
    if depths:
        others = [s.name for s in space.observations if not s.is_depth]
        raise SpecMismatchError(
            f"policies read vectors and colour pictures, and {depths} is depth (16 bits); leave it"
            f" out: data.observations: {others}"
        )


@dataclass(frozen=True, slots=True)
class EmbodimentSpec:
    """Robot, grippers, cameras and trackers as configured."""

    name: str
    signals: tuple[SignalSpec, ...]
    actions: tuple[ActionSpec, ...]
    rate_hz: float

    def signal(self, name: str) -> SignalSpec:
        """Look a signal up; the error lists what exists."""
        for spec in self.signals:
            if spec.name == name:
                return spec
        names = [s.name for s in self.signals]
        raise SpecMismatchError(
            f"{self.name} has no signal '{name}'.{did_you_mean(name, names)} It has: {names}"
        )

    def task_space(
        self, observations: Sequence[str], actions: Sequence[str] | None = None
    ) -> TaskSpace:
        """Select the part of this embodiment that a policy uses."""
        by_name = {a.name: a for a in self.actions}
        chosen = list(by_name) if actions is None else list(actions)
        for name in chosen:
            if name not in by_name:
                raise SpecMismatchError(
                    f"{self.name} cannot be commanded by '{name}'."
                    f"{did_you_mean(name, by_name)} It accepts: {sorted(by_name)}"
                )
        return TaskSpace(
            observations=tuple(self.signal(n) for n in observations),
            actions=tuple(by_name[n] for n in chosen),
            rate_hz=self.rate_hz,
        )


def diff_task_spaces(wanted: TaskSpace, offered: EmbodimentSpec) -> list[str]:
    """Say line by line what a policy's task space needs and an embodiment does not provide.

    An empty list means compatible. Rates of observations are informative and not compared: an
    observation is always the newest sample at the tick.
    """
    lines: list[str] = []
    signals = {s.name: s for s in offered.signals}
    for want in wanted.observations:
        have = signals.get(want.name)
        if have is None:
            lines.append(f"- observation {want.name}: wanted {want.shape} [{want.unit}], absent")
            continue
        lines += _differences("observation", want, have, ("shape", "unit", "angular", "frame"))
    actions = {a.name: a for a in offered.actions}
    for want_action in wanted.actions:
        have_action = actions.get(want_action.name)
        if have_action is None:
            lines.append(f"- action {want_action.name}: wanted {want_action.shape}, absent")
            continue
        lines += _differences(
            "action", want_action, have_action, ("shape", "unit", "mode", "frame")
        )
    if wanted.rate_hz != offered.rate_hz:
        lines.append(f"- control rate [Hz]: wanted {wanted.rate_hz:g}, got {offered.rate_hz:g}")
    return lines


def require_compatible(wanted: TaskSpace, offered: EmbodimentSpec) -> None:
    """Raise :class:`SpecMismatchError` with the readable diff unless compatible."""
    lines = diff_task_spaces(wanted, offered)
    if lines:
        raise SpecMismatchError(
            f"the policy's task space does not fit '{offered.name}':\n"
            + "\n".join(lines)
            + f"\n'{offered.name}' offers: {[s.name for s in offered.signals]};"
            + f" it accepts: {[a.name for a in offered.actions]}"
        )


def _differences(kind: str, want: Any, have: Any, fields: Iterable[str]) -> list[str]:
    return [
        f"- {kind} {want.name}, {f}: wanted {getattr(want, f)!r}, got {getattr(have, f)!r}"
        for f in fields
        if getattr(want, f) != getattr(have, f)
    ]


def to_json(spec: Any) -> dict[str, Any]:
    """A specification dataclass as plain JSON values, which ``from_dict`` reads.

    A tolerance that is not given is left out, as in all that was written before there was one.
    """
    return _without_absent(dataclasses.asdict(spec))


def _without_absent(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {k: _without_absent(v) for k, v in pairs if k != "tolerance" or v is not None}
    if isinstance(value, list):
        return [_without_absent(v) for v in cast("list[Any]", value)]
    if isinstance(value, tuple):
        return tuple(_without_absent(v) for v in cast("tuple[Any, ...]", value))
    return value
