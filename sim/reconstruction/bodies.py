"""Turns scanned surfaces into rigid bodies: a frame, collision shapes, mass and inertia.

A body's frame is upright: z up, x along the longer side, the origin in the middle of its box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robolearn.capture.config import CaptureObject
from robolearn.errors import DataError
from robolearn.geometry import Pose, Vector, inverse, pose, rot_z, yaw_of
from sim.reconstruction.convex import convex
from sim.reconstruction.frames import Assumed
from sim.reconstruction.meshes import Solid, solid, thinned
from sim.reconstruction.objects import Scanned
from sim.reconstruction.primitives import Primitive, fit_primitive, upright
from sim.reconstruction.shapes import Faces, Inertia, OwnVertices, Vertices
from sim.reconstruction.texture import Texture

# Of what things on tables are made: foam to glass; the middle is that of wood and full packages
# [kg/m^3].
DENSITY, DENSITY_RANGE = 600.0, (300.0, 1200.0)
# No solid thing is lighter or heavier: aerogel, gold and osmium [kg/m^3].
_LIGHTEST, _HEAVIEST = 3.0, 25000.0
# Faces of the mesh that is drawn.
DRAWN_FACES = 1500
# A primitive is the object when the mean distance is below this share of a voxel, and nearly all
# of the surface within so many voxels.
_MEAN_VOXELS, _WORST_VOXELS = 0.8, 2.0


@dataclass(frozen=True, slots=True)
class Mass:
    """A mass [kg], between what it may be, and how it is known (``assumed`` or who weighed it)."""

    kg: float
    low_kg: float
    high_kg: float
    source: str


@dataclass(frozen=True, slots=True)
class Moments:
    """Principal moments of inertia about the centre of mass [kg m^2], from the smallest on, between
    what they may be, and how they are known.
    """

    kg_m2: tuple[float, float, float]
    low_kg_m2: tuple[float, float, float]
    high_kg_m2: tuple[float, float, float]
    source: str


@dataclass(frozen=True, slots=True)
class Body:
    """An object as the simulation has it; everything but ``T_table_body`` is in the body's frame.

    ``primitive``: what collides, or, where none fits, ``parts``: convex pieces, each its corners
    ``[v, 3]``. ``surface``: mean distance of the primitive from the scan [m]. ``full_vertices``:
    the scan before it was thinned.
    """

    name: str
    T_table_body: Pose
    vertices: Vertices
    faces: Faces
    primitive: Primitive | None
    parts: tuple[OwnVertices, ...]
    nearest: Primitive
    # What collides, in words, and the mean distance from the scan of all that was tried [m].
    collision: str
    tried_m: dict[str, float]
    mass: Mass
    centre_m: Vector
    inertia: Inertia
    moments: Moments
    volume_m3: float
    half_size_m: Vector
    unseen_share: float
    rgb: tuple[float, float, float] = (0.7, 0.7, 0.7)
    texture: Texture | None = None
    # Whether pictures of the table show it where it stands.
    pictured: bool = True

    @property
    def radius_m(self) -> float:
        """Of the circle around its footprint."""
        return float(np.linalg.norm(self.vertices[:, :2], axis=1).max())


def make_body(
    scanned: Scanned, described: CaptureObject | None, coacd_s: float = 0.0
) -> tuple[Body, list[Assumed], list[str]]:
    """The body of a scanned object, what was assumed of it and what there is to say. CoACD is given
    ``coacd_s`` [s] for what no primitive is; 0: it is not asked. DataError: its surface encloses
    nothing.
    """
    said: list[str] = []
    nearest = fit_primitive(scanned.vertices)
    fits = (
        nearest.error_m < _MEAN_VOXELS * scanned.voxel_m
        and nearest.worst_m < _WORST_VOXELS * scanned.voxel_m
    )
    T = _frame(scanned, nearest if fits else None)
    T_body_table = inverse(T)
    vertices = scanned.vertices @ T_body_table[:3, :3].T + T_body_table[:3, 3]
    whole = solid(vertices, scanned.faces)
    mass, assumed = _mass(scanned.name, whole.volume_m3, described)
    if not _LIGHTEST * whole.volume_m3 < mass.kg < _HEAVIEST * whole.volume_m3:
        said.append(
            f"{scanned.name}: {mass.kg:g} kg at {1e6 * whole.volume_m3:.0f} cm^3 is no mass of a"
            " solid thing, be it of foam or gold: mass_kg is in kilograms"
        )
    moments, spread = _moments(scanned, vertices, whole, mass)
    assumed.append(spread)
    drawn, faces = thinned(vertices, scanned.faces, DRAWN_FACES)
    primitive, parts = None, tuple[OwnVertices, ...]()
    tried = {nearest.kind: nearest.error_m}
    collision = nearest.kind
    if fits:
        primitive = replace(
            nearest,
            centre=T_body_table[:3, :3] @ nearest.centre + T_body_table[:3, 3],
            rotation=T_body_table[:3, :3] @ nearest.rotation,
        )
    else:
        cut = convex(drawn, faces, coacd_s)
        parts, tried = cut.parts, {**tried, **cut.error_m}
        collision = f"{len(parts)} convex parts by {cut.chosen}"
        if cut.said:
            said.append(f"{scanned.name}: {cut.said}")
    if scanned.unseen_share > 0.1:
        said.append(
            f"{scanned.name}: {scanned.unseen_share:.0%} of its surface was never seen and is"
            " closed by guess; take more views, from low down, too"
        )
    body = Body(
        name=scanned.name,
        T_table_body=T,
        vertices=drawn,
        faces=faces,
        primitive=primitive,
        parts=parts,
        nearest=nearest,
        tried_m=tried,
        collision=collision,
        mass=mass,
        centre_m=whole.centre_m,
        inertia=mass.kg * whole.inertia,
        moments=moments,
        volume_m3=whole.volume_m3,
        half_size_m=0.5 * np.ptp(vertices, axis=0),
        unseen_share=scanned.unseen_share,
    )
    return body, assumed, said


def _frame(scanned: Scanned, primitive: Primitive | None) -> Pose:
    """Upright, at the primitive's centre and along its x axis where that lies flat."""
    middle, yaw = upright(scanned.vertices)
    if primitive is None:
        return pose(rot_z(yaw), middle)
    level = [k for k in range(3) if abs(float(primitive.rotation[2, k])) < 0.2]
    if primitive.kind == "box" and level:
        # Of the two level sides the one that is nearest to the longer one's heading.
        headings = [yaw_of(rot_z(float(np.arctan2(*primitive.rotation[[1, 0], k])))) for k in level]
        turns = [(h - yaw + np.pi / 2) % np.pi - np.pi / 2 for h in headings]
        yaw += min(turns, key=abs)
    if primitive.kind != "box" and abs(float(primitive.rotation[2, 2])) > 0.8:
        yaw = 0.0
    return pose(rot_z(yaw), (primitive.centre[0], primitive.centre[1], middle[2]))


def _mass(
    name: str, volume_m3: float, described: CaptureObject | None
) -> tuple[Mass, list[Assumed]]:
    if described is not None and described.mass_kg is not None:
        kg = described.mass_kg
        return Mass(kg, kg, kg, described.mass_source or "given in capture.yaml"), []
    low, high = (d * volume_m3 for d in DENSITY_RANGE)
    mass = Mass(DENSITY * volume_m3, low, high, "assumed")
    why = (
        f"not weighed: {1e6 * volume_m3:.0f} cm^3 at {DENSITY:.0f} kg/m^3; between"
        f" {1e3 * low:.0f} and {1e3 * high:.0f} g"
    )
    return mass, [Assumed(f"mass of {name}", f"{1e3 * mass.kg:.0f} g", why)]


def _moments(
    scanned: Scanned, vertices: Vertices, whole: Solid, mass: Mass
) -> tuple[Moments, Assumed]:
    """Of a mass that is spread evenly in the closed surface: as far as the mass may be another, and
    the surface lies a voxel farther in or out.
    """
    off = scanned.voxel_m
    outward = _normals(vertices, scanned.faces)
    every = [_principal(whole.inertia)]
    for step in (-off, off):
        try:
            every.append(_principal(solid(vertices + step * outward, scanned.faces).inertia))
        except DataError:
            # So thin that nothing is left of it.
            every.append(np.zeros(3))
    values = mass.kg * every[0]
    low, high = mass.low_kg * np.min(every, axis=0), mass.high_kg * np.max(every, axis=0)
    weighed = "assumed" if mass.source == "assumed" else f"as known ({mass.source})"
    moments = Moments(
        *(_three(v) for v in (values, low, high)),
        source=f"assumed: the mass, {weighed}, is spread evenly in the closed surface",
    )
    text = ", ".join(
        f"{1e6 * v:.3g} ({1e6 * a:.3g} to {1e6 * b:.3g})"
        for v, a, b in zip(values, low, high, strict=True)
    )
    why = (
        "nobody measured how its mass is spread: evenly in the closed surface; between, as far as"
        f" its mass may be another and its surface lies {1e3 * off:.1f} mm farther in or out. Of a"
        " hollow thing they are larger"
    )
    return moments, Assumed(f"inertia of {scanned.name}", f"{text} kg mm^2", why)


def _three(values: Vector) -> tuple[float, float, float]:
    a, b, c = (float(v) for v in values)
    return a, b, c


def _principal(inertia: Inertia) -> Vector:
    return np.linalg.eigvalsh(inertia)


def _normals(vertices: Vertices, faces: Faces) -> Vertices:
    """Where the surface faces at every corner, of length 1."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    of_faces = np.cross(b - a, c - a)
    at = np.zeros_like(vertices)
    for k in range(3):
        np.add.at(at, faces[:, k], of_faces)
    return at / np.maximum(np.linalg.norm(at, axis=1, keepdims=True), 1e-12)


def apart_m(bodies: Sequence[Body], k: int) -> float:
    """How far a body may be moved in any direction before it can meet another one [m]."""
    at = [b.T_table_body[:2, 3] for b in bodies]
    gaps = [
        float(np.linalg.norm(at[k] - at[j])) - bodies[k].radius_m - bodies[j].radius_m
        for j in range(len(bodies))
        if j != k
    ]
    return max(0.0, min(gaps, default=1.0)) / 2
