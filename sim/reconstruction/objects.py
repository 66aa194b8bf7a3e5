"""Finds the objects on a table: what stands above its plane, one cluster of voxels each.

A coarse volume over the workspace says where they are; each is fused again in a fine volume of its
own, so that memory and time follow the objects, not the table. An object is closed where it meets
the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import ndimage, optimize

from robolearn.capture.config import CaptureObject
from robolearn.geometry import Vector
from robolearn.shapes import Floats
from sim.reconstruction.frames import Assumed, PosedFrame
from sim.reconstruction.shapes import Faces, Field, Labels, Vertices, Voxels
from sim.reconstruction.volume import Volume, surface

_ndimage: Any = ndimage
_assign: Any = cast("Any", optimize).linear_sum_assignment

# Voxels of the coarse volume and of an object's own, at most about so many; sides [m].
_COARSE, _FINE = 1_200_000, 700_000
_COARSE_M, _FINE_M, _WIDEST_M = 0.004, 0.0015, 0.02
# Smaller clusters are specks [m^3], lower ones are not told from the table.
_LEAST_M3 = 1.5e-6
# Share of its outer voxels that some camera saw.
_SEEN_SHELL = 0.4
# An object named in capture.yaml lies this near to where it says.
_NAMED_M = 0.08


@dataclass(frozen=True, slots=True)
class Cluster:
    """Something that stands on the table: its box [m] and about its volume [m^3]."""

    low: Vector
    high: Vector
    volume_m3: float
    cut: bool

    @property
    def middle(self) -> Vector:
        """Of its box."""
        return 0.5 * (self.low + self.high)


@dataclass(frozen=True, slots=True)
class Scanned:
    """An object's closed surface in the table's frame [m], how much of it no camera saw, and the
    voxels it was found with [m].
    """

    name: str
    vertices: Vertices
    faces: Faces
    unseen_share: float
    voxel_m: float


def clearance_m(noise_m: float, voxel_m: float) -> float:
    """Height below which an object is not told from the table [m]."""
    return max(0.004, 1.5 * voxel_m, 1.5 * noise_m)


def find_clusters(
    frames: Sequence[PosedFrame], low: Vector, high: Vector, noise_m: float
) -> list[Cluster]:
    """Clusters on the table within the workspace, largest first."""
    extent = high - low
    voxel = max(_COARSE_M, float(extent.prod() / _COARSE) ** (1 / 3))
    below = np.array([low[0], low[1], -2.0 * voxel])
    volume = Volume(below, high, voxel, max(4 * voxel, 3 * noise_m))
    # Half of the pictures say well enough where something is.
    for f in frames[:: max(1, len(frames) // 30)]:
        volume.integrate(f.depth_m(), f.K, f.T_table_camera)
    solid = volume.solid()
    solid[:, :, volume.centres(2) < clearance_m(noise_m, voxel)] = False
    labels, _ = _labelled(solid)
    seen = volume.seen
    out: list[Cluster] = []
    for k, box in enumerate(_ndimage.find_objects(labels), 1):
        own = labels[box] == k
        size = float(own.sum()) * voxel**3
        # What no camera ever looked at is solid, too, but it has no surface that was seen.
        shell = own & ~_ndimage.binary_erosion(own)
        if size < _LEAST_M3 or float(seen[box][shell].mean()) < _SEEN_SHELL:
            continue
        first = np.array([s.start for s in box])
        last = np.array([s.stop - 1 for s in box])
        rim = bool((first[:2] == 0).any() or (last[:2] == np.array(labels.shape[:2]) - 1).any())
        a, b = below + voxel * (first - 0.5), below + voxel * (last + 0.5)
        out.append(Cluster(np.array([a[0], a[1], 0.0]), b, size, rim))
    return sorted(out, key=lambda c: -c.volume_m3)


def name_clusters(
    clusters: Sequence[Cluster], objects: Sequence[CaptureObject]
) -> tuple[dict[str, Cluster], list[str], list[Assumed]]:
    """Which cluster is which object of capture.yaml: by where it says, the others by size.

    Returns the clusters by name, sentences about what is missing or too many, and what was assumed.
    """
    named: dict[str, Cluster] = {}
    said: list[str] = []
    assumed: list[Assumed] = []
    left = list(clusters)
    placed = [o for o in objects if o.at_m is not None]
    if placed and left:
        at = np.array([o.at_m for o in placed], dtype=np.float64)
        cost = np.linalg.norm(at[:, None] - np.stack([c.middle[:2] for c in left])[None], axis=2)
        for i, j in zip(*_assign(np.minimum(cost, 10 * _NAMED_M)), strict=True):
            if cost[i, j] < _NAMED_M:
                named[placed[i].name] = left[j]
        left = [c for c in left if all(c is not other for other in named.values())]
    rest = [o for o in objects if o.at_m is None]
    for o, cluster in zip(rest, left, strict=False):
        named[o.name] = cluster
    if len(rest) > 1 or (rest and len(left) > len(rest)):
        assumed.append(
            Assumed(
                "which object is which",
                ", ".join(o.name for o in rest),
                "largest first, in the order of capture.yaml; at_m would say",
            )
        )
    missing = [o.name for o in objects if o.name not in named]
    if missing:
        said.append(
            f"{', '.join(missing)}: not found; {len(clusters)} thing(s) stand on the table,"
            f" capture.yaml names {len(objects)}. Things that touch are seen as one: move them"
            " 2 cm apart; what is flatter than a few millimetres, black or shiny is not seen"
        )
    for cluster in left[len(rest) :]:
        name = next(n for n in (f"object_{k}" for k in range(1, 1000)) if n not in named)
        named[name] = cluster
        if objects:
            said.append(
                f"{name}: something at {cluster.middle[0]:.2f}, {cluster.middle[1]:.2f} m that"
                " capture.yaml does not name; take it away, or name it"
            )
    for name, cluster in named.items():
        if cluster.cut:
            said.append(f"{name} reaches out of the workspace; enlarge it in capture.yaml")
    return named, said, assumed


def scan_object(
    name: str, cluster: Cluster, frames: Sequence[PosedFrame], noise_m: float
) -> Scanned:
    """Fuse one object in its own fine volume and close its surface on the table."""
    margin = 0.012
    low = np.array([cluster.low[0] - margin, cluster.low[1] - margin, 0.0])
    high = cluster.high + margin
    voxel = max(_FINE_M, float((high - low).prod() / _FINE) ** (1 / 3))
    # The table lies between two layers, so that no corner of the surface falls onto a voxel.
    low[2] = -1.5 * voxel
    volume = Volume(low, high, voxel, max(4 * voxel, 3 * noise_m))
    for f in frames:
        volume.integrate(f.depth_m(), f.K, f.T_table_camera)
    field = volume.field()
    heights = volume.centres(2)
    kept = _own(field, heights, clearance_m(noise_m, voxel), low, voxel, cluster)
    # Whatever is not the object is free; the table's plane is its lower side.
    field = np.where(kept, field, np.maximum(field, 0.5))
    field = np.maximum(field, (-heights / volume.truncation_m)[None, None].astype(np.float32))
    vertices, faces = surface(field, low, voxel)
    at = np.clip(np.rint((vertices - low) / voxel).astype(int), 0, np.array(field.shape) - 1)
    near = _ndimage.binary_dilation(volume.seen & (np.abs(volume.field()) < 0.99), iterations=1)
    above = vertices[:, 2] > voxel
    unseen = ~near[at[:, 0], at[:, 1], at[:, 2]] & above
    share = float(unseen.sum() / max(1, above.sum()))
    return Scanned(name, vertices, faces, share, voxel)


def _own(
    field: Field, heights: Floats, clear: float, low: Vector, voxel: float, cluster: Cluster
) -> Voxels:
    """The voxels that may be the object's: its own cluster and a rim about it, and below the
    clearance the column under it.
    """
    solid = field < 0
    first = int(np.searchsorted(heights, clear))
    solid[:, :, :first] = False
    labels, _ = _labelled(solid)
    a = np.maximum(np.rint((cluster.low - low) / voxel).astype(int), 0)
    b = np.rint((cluster.high - low) / voxel).astype(int) + 1
    inside = labels[a[0] : b[0], a[1] : b[1], first : b[2]]
    counts = np.bincount(inside.ravel())
    counts[:1] = 0
    own = labels == int(np.argmax(counts)) if counts.sum() else solid
    grown: Voxels = _ndimage.binary_dilation(own, iterations=2) & ~(solid & ~own)
    foot = _ndimage.binary_dilation(own[:, :, first], iterations=1)
    grown[:, :, :first] = foot[..., None]
    return grown


def _labelled(solid: Voxels) -> tuple[Labels, int]:
    labels, count = _ndimage.label(solid)
    return np.asarray(labels, dtype=np.int32), int(count)
