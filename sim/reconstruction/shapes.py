"""Names the shapes of arrays that the stages of a reconstruction hand to each other."""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int64
from numpy.typing import NDArray

# Points of a frame [m], and triangles of a mesh by the numbers of their corners.
Points = Float64[NDArray[np.float64], "n 3"]
Vertices = Float64[NDArray[np.float64], "v 3"]
Faces = Int64[NDArray[np.int64], "f 3"]
VertexFlags = Bool[NDArray[np.bool_], "v"]
# Meshes of which none says the size of another.
OwnVertices = Float64[NDArray[np.float64], "_ 3"]
OwnFaces = Int64[NDArray[np.int64], "_ 3"]
# Signed distances and weights of the voxels of a box.
Field = Float32[NDArray[np.float32], "x y z"]
Voxels = Bool[NDArray[np.bool_], "x y z"]
Labels = Int[NDArray[np.int32], "x y z"]
# Distances along the optical axis [m], 0 where nothing was measured; marked pixels.
Depth = Float32[NDArray[np.float32], "h w"]
Mask = Bool[NDArray[np.bool_], "h w"]
# The object of every pixel.
Numbers = Int64[NDArray[np.int64], "h w"]
# Cells of a grid by their three numbers, any number of them.
Cells = Int64[NDArray[np.int64], "_ 3"]
# Where every pixel's surface is [m].
PointPicture = Float64[NDArray[np.float64], "h w 3"]
# About the centre of mass [kg m^2].
Inertia = Float64[NDArray[np.float64], "3 3"]
# Of a move: rotation vector [rad], then position [m].
MoveCovariance = Float64[NDArray[np.float64], "6 6"]
# Points of which none says the number of another's; colours of them.
OwnPoints = Float64[NDArray[np.float64], "_ 3"]
# Where cameras are, not one for each of other things.
OwnPoses = Float64[NDArray[np.float64], "_ 4 4"]
# Where corners of faces lie in a picture, 0 to 1; corners of tiles [px].
TexturePoints = Float64[NDArray[np.float64], "_ 2"]
Corners = Int64[NDArray[np.int64], "_ 2"]
ColourGrid = Float64[NDArray[np.float64], "h w 3"]
