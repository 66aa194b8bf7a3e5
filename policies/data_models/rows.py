"""Turns what episodes say at a tick into numbers of unit size, block by block, and back.

A block is a signal, an action or the reward. Angles become cosine and sine, rotations of poses six
numbers. Middle and size of a number are its median and its median distance from it, which a third
of wild values does not move.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped
from numpy.typing import NDArray

from robolearn.representation import from_six_d, is_pose, to_six_d
from robolearn.spec import ActionSpec, SignalSpec

Numbers = Float64[NDArray[np.float64], "t k"]
Values = Shaped[NDArray[Any], "t ..."]
# A normal distribution's deviation over its median distance from the middle.
NORMAL = 1.4826
# Numbers that vary less than this are constant.
STILL = 1e-9
# Wild values count no more than this [sizes].
FARTHEST = 8.0


@dataclass(frozen=True, slots=True)
class Block:
    """One of the parts of a row; ``spec`` None: the reward."""

    name: str
    spec: SignalSpec | ActionSpec | None

    @property
    def angular(self) -> tuple[int, ...]:
        """Numbers that are angles."""
        return self.spec.angular if isinstance(self.spec, SignalSpec) else ()

    @property
    def size(self) -> int:
        """Its numbers, encoded."""
        if self.spec is None:
            return 1
        if is_pose(self.spec):
            return 9
        return math.prod(self.spec.shape) + len(self.angular)

    def encode(self, values: Values) -> Numbers:
        """Values ``[t, *shape]`` as numbers ``[t, size]`` without jumps."""
        flat = np.asarray(values, dtype=np.float64).reshape(len(values), -1)
        if self.spec is not None and is_pose(self.spec):
            return to_six_d(flat)
        turned = flat[:, list(self.angular)]
        rest = [i for i in range(flat.shape[1]) if i not in self.angular]
        return np.concatenate([flat[:, rest], np.cos(turned), np.sin(turned)], axis=1)

    def decode(self, numbers: Numbers, like: Values) -> Values:
        """Inverse of :meth:`encode`, of any numbers, in shape and dtype of ``like [t, *shape]``."""
        if self.spec is not None and is_pose(self.spec):
            flat = from_six_d(numbers)
            # Of the two quaternions of a rotation the one on the recording's side.
            other = (flat[:, 3:] * like[:, 3:]).sum(axis=1) < 0
            flat[other, 3:] *= -1.0
        else:
            count = math.prod(like.shape[1:])
            rest = [i for i in range(count) if i not in self.angular]
            flat, turns = np.empty((len(numbers), count)), len(self.angular)
            flat[:, rest] = numbers[:, : len(rest)]
            cosine, sine = np.split(numbers[:, len(rest) :], [turns], axis=1)
            flat[:, list(self.angular)] = np.arctan2(sine, cosine)
        return flat.reshape(like.shape).astype(like.dtype)


class RobustScale:
    """Numbers in sizes from their middle, of the rows ``[t, k]`` that are given."""

    def __init__(self, rows: Numbers) -> None:
        self.middle = np.median(rows, axis=0)
        size = NORMAL * np.median(np.abs(rows - self.middle), axis=0)
        # A number that rests most of the time has no median distance, but a deviation.
        size = np.where(size > STILL, size, rows.std(axis=0))
        self.size = np.where(size > STILL, size, 1.0)

    def __call__(self, rows: Numbers) -> Numbers:
        """In sizes from the middle."""
        return np.clip((rows - self.middle) / self.size, -FARTHEST, FARTHEST)

    def undo(self, rows: Numbers) -> Numbers:
        """Inverse, of what is within the farthest."""
        return rows * self.size + self.middle


def sizes(blocks: Sequence[Block]) -> tuple[int, ...]:
    """Of every block, encoded."""
    return tuple(block.size for block in blocks)
