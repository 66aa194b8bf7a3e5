"""Meshes with fewer faces, for drawing only: the model that is simulated keeps its own.

Quadric edge collapse (Garland and Heckbert, SIGGRAPH 1997) by the package fast-simplification.
"""

from __future__ import annotations

import copy

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.errors import MissingDependencyError, RenderError

Vertices = NDArray[np.float64]
Faces = NDArray[np.int64]

# Smaller meshes are left alone: they cost nothing and have no faces to spare.
LEAST_FACES = 200


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
    for mesh in range(out.nmesh):
        faces = int(out.mesh_facenum[mesh])
        keep = max(least_faces, round(ratio * faces))
        if keep < faces and int(out.mesh_texcoordadr[mesh]) < 0:
            _shrink(out, mesh, keep)
    return out


def face_count(model: mujoco.MjModel) -> int:
    """Faces of all meshes."""
    return int(model.mesh_facenum.sum())


def simplify(vertices: Vertices, faces: Faces, keep: int) -> tuple[Vertices, Faces]:
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
    points, kept = fast_simplification.simplify(
        places, joined, target_reduction=max(0.0, 1.0 - keep / len(joined))
    )[:2]
    return points.astype(np.float64), kept.astype(np.int64)


def vertex_normals(vertices: Vertices, faces: Faces) -> Vertices:
    """Unit normals ``[n, 3]``: the mean of the adjacent faces' normals, weighted by area."""
    corners = vertices[faces]
    area = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normals = np.zeros_like(vertices)
    for corner in range(3):
        np.add.at(normals, faces[:, corner], area)
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.maximum(length, 1e-300), [0.0, 0.0, 1.0])


def _shrink(model: mujoco.MjModel, mesh: int, keep: int) -> None:
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    begin, faces_before = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    normal, normals_before = int(model.mesh_normaladr[mesh]), int(model.mesh_normalnum[mesh])
    vertices, faces = simplify(
        model.mesh_vert[first : first + count].astype(np.float64),
        model.mesh_face[begin : begin + faces_before].astype(np.int64),
        keep,
    )
    if not 0 < len(faces) < faces_before or len(vertices) > min(count, normals_before):
        return
    model.mesh_vert[first : first + len(vertices)] = vertices
    model.mesh_normal[normal : normal + len(vertices)] = vertex_normals(vertices, faces)
    model.mesh_face[begin : begin + len(faces)] = faces
    model.mesh_facenormal[begin : begin + len(faces)] = faces
    model.mesh_vertnum[mesh], model.mesh_facenum[mesh] = len(vertices), len(faces)
    model.mesh_normalnum[mesh] = len(vertices)
    # The hull would refer to vertices that are gone.
    model.mesh_graphadr[mesh] = -1
