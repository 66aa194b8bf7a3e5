"""Names the shapes that supervisor, devices and emulators hand to each other, checked in tests.

What is not of a cell alone has its name in the core: ``robolearn.shapes``, ``robolearn.geometry``,
``robolearn.arms.shapes``. w: numbers of an action, grips: grippers of a cell (none or one)
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64, UInt8, UInt16
from numpy.typing import NDArray

# What an agent commands: the tool on the table [m], or joints [rad]; and what comes after it.
Action = Float64[NDArray[np.float64], " w"]
Plan = Float64[NDArray[np.float64], "k w"]
# Distances of a gripper's fingers [m].
Widths = Float64[NDArray[np.float64], " grips"]
# The values of one row of a ring, and of several.
RowValues = Float64[NDArray[np.float64], " width"]
RowsValues = Float64[NDArray[np.float64], "n width"]
# Force [N], then torque [N m].
Wrench = Float64[NDArray[np.float64], "6"]
# A controller's registers.
Numbers = Float64[NDArray[np.float64], " registers"]
Integers = Int64[NDArray[np.int64], " registers"]
# What is limited: joints, or the tool's axes; and its limits, one for all of them or one each.
Components = Float64[NDArray[np.float64], " component"]
Limits = Float64[NDArray[np.float64], "*component"]
# A tag in a picture [px].
TagCorners = Float64[NDArray[np.float64], "4 2"]
# A picture made of a ``Picture`` that may be smaller.
ResizedPicture = UInt8[NDArray[np.uint8], "new_h new_w 3"]
ResizedDepth = UInt16[NDArray[np.uint16], "new_h new_w"]
