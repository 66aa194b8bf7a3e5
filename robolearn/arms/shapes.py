"""Names the shapes of an arm's arrays, checked when tests run.

j: joints, n: rows
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import NDArray

# Positions [rad] or [m], speeds or torques of the joints.
Joints = Float64[NDArray[np.float64], " j"]
JointRows = Float64[NDArray[np.float64], "n j"]
JointFlags = Bool[NDArray[np.bool_], " j"]
# Linear [m], then angular [rad].
Jacobian = Float64[NDArray[np.float64], "6 j"]
Twist = Float64[NDArray[np.float64], "6"]
# From a twist to the joints' speeds.
InverseJacobian = Float64[NDArray[np.float64], "j 6"]
# Of the base and of every link.
LinkPoses = Float64[NDArray[np.float64], "j+1 4 4"]
# Of a tool: position [m] and quaternion, real part first.
PoseValues = Float64[NDArray[np.float64], "7"]
# The numbers of an action.
Values = Float64[NDArray[np.float64], " values"]
