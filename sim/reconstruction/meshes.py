"""Measures and mends closed triangle meshes: volume, centre, inertia; fewer faces; files.

Integrals over the tetrahedra that faces form with the origin (Eberly, "Polyhedral Mass Properties",
2002), exact for closed meshes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robolearn.errors import DataError
from robolearn.geometry import Vector
from sim.reconstruction.shapes import (
    Faces,
    Inertia,
    OwnFaces,
    OwnVertices,
    TexturePoints,
    Vertices,
)
from sim.rendering.decimation import simplify


@dataclass(frozen=True, slots=True)
class Solid:
    """A homogeneous solid of mass 1 kg: its volume [m^3], centre of mass [m] and inertia about it
    [kg m^2].
    """

    volume_m3: float
    centre_m: Vector
    inertia: Inertia


def solid(vertices: Vertices, faces: Faces) -> Solid:
    """Of a closed mesh whose faces face outwards; DataError for one that encloses nothing."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    six = np.einsum("ij,ij->i", a, np.cross(b, c))
    volume = float(six.sum()) / 6.0
    if not volume > 0:
        raise DataError(f"its surface encloses no volume ({1e6 * volume:.3g} cm^3)")
    centre = ((a + b + c) * six[:, None]).sum(axis=0) / 24.0 / volume
    # Integral of x x^T over the tetrahedra (0, a, b, c).
    total = a + b + c
    second = (
        np.einsum("n,ni,nj->ij", six, a, a)
        + np.einsum("n,ni,nj->ij", six, b, b)
        + np.einsum("n,ni,nj->ij", six, c, c)
        + np.einsum("n,ni,nj->ij", six, total, total)
    ) / 120.0
    spread = second / volume - np.outer(centre, centre)
    return Solid(volume, centre, np.trace(spread) * np.eye(3) - spread)


def is_closed(faces: Faces) -> bool:
    """Whether every edge belongs to exactly two faces that run along it in opposite directions."""
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    most = int(faces.max()) + 1
    forth = np.sort(edges[:, 0] * most + edges[:, 1])
    back = np.sort(edges[:, 1] * most + edges[:, 0])
    return bool(len(np.unique(forth)) == len(forth) and np.array_equal(forth, back))


def thinned(vertices: Vertices, faces: Faces, keep: int) -> tuple[OwnVertices, OwnFaces]:
    """About ``keep`` faces; the mesh as it was where fewer would tear it open."""
    if len(faces) <= keep:
        return vertices, faces
    fewer, left = simplify(vertices, faces, keep)
    return (fewer, left) if is_closed(left) or not is_closed(faces) else (vertices, faces)


def write_obj(
    path: Path, vertices: Vertices, faces: Faces, coordinates: TexturePoints | None = None
) -> None:
    """Write :func:`obj_text`."""
    path.write_text(obj_text(vertices, faces, coordinates), encoding="utf-8")


def obj_text(vertices: Vertices, faces: Faces, coordinates: TexturePoints | None = None) -> str:
    """A Wavefront file, to a hundredth of a millimetre; ``coordinates [3 f, 2]``: where every
    corner of every face lies in a picture.
    """
    lines = [f"v {x:.5f} {y:.5f} {z:.5f}" for x, y, z in vertices.tolist()]
    if coordinates is None:
        lines += [f"f {a} {b} {c}" for a, b, c in (faces + 1).tolist()]
    else:
        lines += [f"vt {u:.6f} {v:.6f}" for u, v in coordinates.tolist()]
        lines += [
            f"f {a}/{3 * k + 1} {b}/{3 * k + 2} {c}/{3 * k + 3}"
            for k, (a, b, c) in enumerate((faces + 1).tolist())
        ]
    return "\n".join(lines) + "\n"
