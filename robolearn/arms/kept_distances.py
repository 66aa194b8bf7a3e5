"""Says of most joint positions that nothing is near, from a look at others: exactly, not by chance.

A point of a link moves by at most ``|dq_k| r_k`` when joint ``k`` turns, where ``r_k`` bounds its
distance from the joint's axis whatever the arm's shape: the lengths of the links between, and its
own place in its frame. Turning the joints one after the other, the distance of two capsules changes
by at most the sum over the joints between their links, the height of its ends by the sum over
those before it. What was measured once therefore bounds all that comes after it, and only
where the bound does not suffice is measured again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from robolearn.arms.collision import CollisionModel
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.geometry import Vector
from robolearn.shapes import FloatRows, Floats

# Rounding of bound and distances together is below this by far [m].
_ROUNDING_M = 1e-6


class KeptDistances:
    """Distances ``[n]`` of one kind (``measure``), each with what it changes by at most per joint
    angle, ``travel [dof, n]`` [m/rad].
    """

    def __init__(self, measure: Callable[[Joints], Floats], travel: FloatRows) -> None:
        self._measure, self.travel = measure, travel
        self._most: list[float] = travel.max(axis=1, initial=0.0).tolist()
        self._at: list[float] = []
        self._distances, self._least = np.zeros(travel.shape[1]), math.nan
        # How often was measured.
        self.measured = 0

    def all_at_least(self, q: Joints, limit: float) -> bool:
        """Whether no distance at ``q [dof]`` is below ``limit`` [m]; DataError unless ``q`` is
        finite.
        """
        angles, enough = q.tolist(), limit + _ROUNDING_M
        if len(angles) == len(self._at):
            moved = [abs(a - b) for a, b in zip(angles, self._at, strict=True)]
            # Of all distances together first, in plain numbers; comparisons with NaN are false.
            left = self._least
            for way, most in zip(moved, self._most, strict=True):
                left -= way * most
            if left >= enough:
                return True
            if (self._distances - np.array(moved).dot(self.travel)).min() >= enough:
                return True
        self._distances = self._measure(q)
        self._at, self.measured = angles, self.measured + 1
        self._least = float(self._distances.min(initial=math.inf))
        return self._least >= limit


def kept_distances(model: CollisionModel) -> tuple[KeptDistances, ...]:
    """All of a model's: between its capsules, and to its table where there is one."""
    arm, last = model.arm, model.arm.dof
    # The flange is a place on the last link.
    flange = math.hypot(*arm.flange_in_last[:3, 3].tolist())
    links = [min(c.link, last) for c in model.capsules]
    beyond = [flange if c.link > last else 0.0 for c in model.capsules]
    starts = [more + math.hypot(*c.start) for c, more in zip(model.capsules, beyond, strict=True)]
    ends = [more + math.hypot(*c.end) for c, more in zip(model.capsules, beyond, strict=True)]
    pairs: list[list[float]] = []
    for one, two in model.pairs:
        outer, inner = (one, two) if links[one] >= links[two] else (two, one)
        size = max(starts[outer], ends[outer])
        pairs.append(_travel(arm, links[inner], links[outer], size))
    heights = [_travel(arm, 0, links[k], size[k]) for size in (starts, ends) for k in model.above]
    # The first joint's axis stands still: about one that is upright nothing rises or falls.
    tilt = math.hypot(*np.cross(_first_axis(arm), model.normal).tolist())
    heights = [[tilt * first, *others] for first, *others in heights]
    kept = ((model.between, pairs), (model.over_table, heights))
    return tuple(KeptDistances(measure, np.array(rows).T.copy()) for measure, rows in kept if rows)


def _first_axis(arm: SerialArm) -> Vector:
    """Of the first joint in the base frame ``[3]``: a z axis of the convention's frame."""
    return arm.frames(np.zeros(arm.dof))[0 if arm.convention == "standard" else 1, :3, 2]


def _travel(arm: SerialArm, inner: int, outer: int, size: float) -> list[float]:
    """How far a point of link ``outer``, ``size`` [m] from its frame's origin, moves at most in the
    frame of link ``inner``, per angle of each joint ``[dof]`` [m/rad].
    """
    # A joint does not change the distance of its link's origin from the one before it.
    ways = np.diff(arm.frames(np.zeros(arm.dof))[:, :3, 3], axis=0)
    lengths: list[float] = np.sqrt((ways * ways).sum(axis=1)).tolist()
    out = [0.0] * arm.dof
    for joint in range(inner, outer):
        # Its axis leads through the origin of its own link, or is |a| away from it.
        own = abs(arm.links[joint].a) if arm.convention == "standard" else 0.0
        out[joint] = own + sum(lengths[joint + 1 : outer]) + size
    return out
