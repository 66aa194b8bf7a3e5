"""Names the shapes of what devices and mapping hand to each other, checked in tests.

k: numbers of a state or of a signal that is filtered
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

# Translation, then rotation, each in [-1, 1].
Deflection = Float64[NDArray[np.float64], "6"]
# What is commanded: a pose of the tool [4, 4], or joint angles.
State = Float64[NDArray[np.float64], "..."]
Filtered = Float64[NDArray[np.float64], " k"]
