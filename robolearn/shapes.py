"""Names the shapes of arrays that many modules hand to each other, checked when tests run.

Geometry names its own (``robolearn/geometry.py``), and so do folders with shapes of their own
(``robolearn/arms/shapes.py``). n: rows, ticks or samples; h, w: height and width of a picture
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Shaped, UInt8, UInt16
from numpy.typing import NDArray

# A signal's value, and many of them; types and shapes stand in the signal's spec.
AnyArray = Shaped[NDArray[Any], "..."]
AnyRows = Shaped[NDArray[Any], "n ..."]
# Any shape, where a function works on every number alone.
AnyFloats = Float64[NDArray[np.float64], "..."]
# One number per row.
Floats = Float64[NDArray[np.float64], " n"]
FloatRows = Float64[NDArray[np.float64], "n k"]
Flags = Bool[NDArray[np.bool_], " n"]
# Which rows.
Index = Int64[NDArray[np.int64], " n"]
# Ascending [ns].
Times = Int64[NDArray[np.int64], " n"]
# As many rows as they please: of one signal among others, or of data that is yet to be validated.
OwnTimes = Int64[NDArray[np.int64], "_"]
OwnRows = Shaped[NDArray[Any], "_ ..."]
OwnFlags = Bool[NDArray[np.bool_], "_"]
OwnFloats = Float64[NDArray[np.float64], "_"]
OwnIndex = Int64[NDArray[np.int64], "_"]
# RGB.
Picture = UInt8[NDArray[np.uint8], "h w 3"]
Pictures = UInt8[NDArray[np.uint8], "n h w 3"]
# Depth along the optical axis [mm], 0 where nothing was measured; of the size of a picture.
Depth = UInt16[NDArray[np.uint16], "h w"]
# Of a camera with any number of channels.
Frames = UInt8[NDArray[np.uint8], "n h w c"]
Bytes = UInt8[NDArray[np.uint8], " n"]
