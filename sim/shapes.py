"""Names the shapes that worlds, plants and experts hand to each other, checked when tests run.

What is not of a world alone has its name in the core: ``robolearn.shapes``, ``robolearn.geometry``,
``robolearn.arms.shapes``. t: ticks
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int, Int32, UInt8
from numpy.typing import NDArray

# Any number of points on the table, poses on it (x, y, yaw) and headings, which broadcast.
AnyPoints = Float64[NDArray[np.float64], "*#batch 2"]
AnyPoses = Float64[NDArray[np.float64], "*#batch 3"]
AnyAngles = Float64[NDArray[np.float64], "*#batch"]
# The four corners of a rectangle on the table.
TableCorners = Float64[NDArray[np.float64], "4 2"]
# A pose in space: position and quaternion; quaternions, real part first, and as PyBullet has them.
PoseValues = Float64[NDArray[np.float64], "7"]
Wxyz = Float64[NDArray[np.float64], "4"]
Xyzw = Float64[NDArray[np.float64], "4"]
# One number per value of a signal or of an action.
Values = Float64[NDArray[np.float64], " values"]
# One row per tick: of numbers, of points on the table, of poses on it.
Ticks = Float64[NDArray[np.float64], " t"]
TickPoints = Float64[NDArray[np.float64], "t 2"]
TickPoses = Float64[NDArray[np.float64], "t 3"]
# Numbers (of bodies, actuators, rows) by which something is looked up.
Indices = Int[NDArray[Any], " n"]
# What is drawn per pixel besides colours: distances [m], ids of geoms.
DepthPicture = Float32[NDArray[np.float32], "h w"]
GeomPicture = Int32[NDArray[np.int32], "h w"]
# Pictures of which none says the size of another.
AnyPicture = UInt8[NDArray[np.uint8], "_ _ 3"]
