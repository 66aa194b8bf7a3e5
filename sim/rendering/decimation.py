"""Thins meshes for drawing only: the model that is simulated keeps its own.

Quadric edge collapse (Garland and Heckbert, SIGGRAPH 1997) by the package fast-simplification.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from scipy import sparse

from robolearn.errors import MissingDependencyError, RenderError

Vertices = Float64[NDArray[np.float64], "vertices 3"]
Faces = Int64[NDArray[np.int64], "faces 3"]
KeptVertices = Float64[NDArray[np.float64], "kept_vertices 3"]
KeptFaces = Int64[NDArray[np.int64], "kept_faces 3"]
Normals = Float64[NDArray[np.float64], "corners 3"]

# Smaller meshes are left alone: they cost nothing and have no faces to spare.
LEAST_FACES = 200
# Faces that meet at a larger angle [rad] form an edge.
CREASE = np.deg2rad(40.0)


def decimated(
    model: mujoco.MjModel, ratio: float, least_faces: int = LEAST_FACES
) -> mujoco.MjModel:
    """A copy of ``model`` to draw from, whose meshes keep about ``ratio`` (0, 1] of their faces.

    Meshes keep their frames and numbers, so that states of ``model`` can be drawn with it; it must
    not be simulated, as its collision meshes and hulls are not kept up. Textured meshes stay as
    they are: their seams would tear. Raises :class:`RenderError` for a ratio outside (0, 1].
    """
    if not 0.0 < ratio <= 1.0:
        raise RenderError(f"a share of faces is above 0 and at most 1, got {ratio}")
    out = copy.copy(model)
    if ratio == 1.0:
        return out
    textured = _textured(model)
    for mesh in range(out.nmesh):
        faces = int(out.mesh_facenum[mesh])
        keep = max(least_faces, round(ratio * faces))
        if keep < faces and not textured[mesh]:
            _shrink(out, mesh, keep)
    return out


def face_count(model: mujoco.MjModel) -> int:
    """Faces of all meshes."""
    return int(model.mesh_facenum.sum())


def simplify(vertices: Vertices, faces: Faces, keep: int) -> tuple[KeptVertices, KeptFaces]:
    """About ``keep`` faces of a mesh; vertices at one place count as one, so seams stay closed."""
    try:
        import fast_simplification
    except ImportError as error:
        raise MissingDependencyError(
            f"meshes are simplified by fast-simplification ({error});"
            " run: pip install -c constraints.txt fast-simplification"
        ) from error
    places, one_of = np.unique(vertices, axis=0, return_inverse=True)
    joined = one_of.reshape(-1)[faces]
    flat = (
        (joined[:, 0] == joined[:, 1])
        | (joined[:, 1] == joined[:, 2])
        | (joined[:, 2] == joined[:, 0])
    )
    joined = joined[~flat]
    # Less aggressive than by default (7): slower, but 0.1 grey levels nearer to the original.
    points, kept = fast_simplification.simplify(
        places, joined, target_reduction=max(0.0, 1.0 - keep / len(joined)), agg=4
    )[:2]
    return points.astype(np.float64), kept.astype(np.int64)


def corner_normals(vertices: Vertices, faces: Faces) -> Normals:
    """Unit normals of the faces' corners ``[3 n, 3]``, in the order of ``faces.reshape(-1)``.

    Each is the mean, weighted by area, of the faces around the vertex that differ by less than
    :data:`CREASE` from its own: round things look round, and edges stay sharp.
    """
    corners = vertices[faces]
    area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    unit = area / np.maximum(np.linalg.norm(area, axis=1, keepdims=True), 1e-300)
    number = np.arange(faces.size)
    at = sparse.csr_matrix((np.ones(faces.size), (number, faces.reshape(-1))))
    # Pairs of corners that meet at a vertex.
    one, other = (at @ at.T).nonzero()
    smooth = np.einsum("ij,ij->i", unit[one // 3], unit[other // 3]) > np.cos(CREASE)
    together = sparse.csr_matrix(
        (np.ones(int(smooth.sum())), (one[smooth], other[smooth])), (faces.size, faces.size)
    )
    normals = together @ np.repeat(area, 3, axis=0)
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.maximum(length, 1e-300), [0.0, 0.0, 1.0])


def _textured(model: mujoco.MjModel) -> NDArray[np.bool_]:
    """Which meshes some geom shows with a picture on them; a texture's coordinates alone do not
    count, as files carry them for meshes of one colour too.
    """
    out = np.zeros(model.nmesh, dtype=np.bool_)
    pictured = (model.mat_texid >= 0).any(axis=1)
    shown = (model.geom_type == mujoco.mjtGeom.mjGEOM_MESH) & (model.geom_matid >= 0)
    for geom in np.flatnonzero(shown):
        out[model.geom_dataid[geom]] |= pictured[model.geom_matid[geom]]
    return out & (model.mesh_texcoordadr >= 0)


def _shrink(model: mujoco.MjModel, mesh: int, keep: int) -> None:
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    begin, faces_before = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    normal, normals_before = int(model.mesh_normaladr[mesh]), int(model.mesh_normalnum[mesh])
    vertices, faces = simplify(
        model.mesh_vert[first : first + count].astype(np.float64),
        model.mesh_face[begin : begin + faces_before].astype(np.int64),
        keep,
    )
    if not 0 < faces.size <= min(3 * faces_before, normals_before) or len(vertices) > count:
        return
    model.mesh_vert[first : first + len(vertices)] = vertices
    model.mesh_normal[normal : normal + faces.size] = corner_normals(vertices, faces)
    model.mesh_face[begin : begin + len(faces)] = faces
    model.mesh_facenormal[begin : begin + len(faces)] = np.arange(faces.size).reshape(-1, 3)
    model.mesh_vertnum[mesh], model.mesh_facenum[mesh] = len(vertices), len(faces)
    model.mesh_normalnum[mesh] = faces.size
    model.mesh_texcoordadr[mesh], model.mesh_texcoordnum[mesh] = -1, 0
    # The hull would refer to vertices that are gone.
    model.mesh_graphadr[mesh] = -1
