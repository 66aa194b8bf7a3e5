"""Names the shapes of ways: poses (x y z qw qx qy qz) in a row."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

# One pose.
Seven = Float64[NDArray[np.float64], "7"]
# Ways; the other one may be of another length.
Way = Float64[NDArray[np.float64], "n 7"]
OtherWay = Float64[NDArray[np.float64], "_ 7"]
