"""Describes serial arms to the kernels that compute the frames of their links.

In the plain numbers of arrays; once or more per tick of a supervisor.
"""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.compiled.forms import Chain
from robolearn.arms.kinematics import SerialArm
from robolearn.geometry import Pose
from robolearn.shapes import FloatRows, Floats


def chain_of(arm: SerialArm, T_start: Pose, T_end: Pose) -> Chain:
    """``T_start [4, 4]`` of the base, ``T_end [4, 4]`` of the tip in the last link."""
    return Chain(numbers_of(T_start), numbers_of(T_end), _links(arm))


def numbers_of(T: Pose) -> Floats:
    """``T [4, 4]`` as a frame ``[12]``: the columns of a pose without its last row."""
    return T[:3].T.flatten()


def _links(arm: SerialArm) -> FloatRows:
    if arm.convention == "standard":
        rows = [(k.a, k.d, math.cos(k.alpha), math.sin(k.alpha)) for k in arm.links]
        return np.array(rows, dtype=np.float64)
    return np.array([(k.d, *numbers_of(T)) for k, T in zip(arm.links, arm.before, strict=True)])
