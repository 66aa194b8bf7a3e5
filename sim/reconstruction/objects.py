"""Finds the objects on a table: what stands above its plane, one cluster of voxels each.

A coarse volume over the workspace says where they are; each is fused again in a fine volume of its
own, so that memory and time follow the objects, not the table. An object is closed where it meets
the table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from scipy import ndimage, optimize, spatial

from robolearn.capture.config import CaptureObject
from robolearn.geometry import XY, Vector
from robolearn.shapes import Floats, OwnIndex
from sim.reconstruction.frames import Assumed, PosedFrame, points_of
from sim.reconstruction.shapes import (
    Faces,
    Field,
    Labels,
    OwnPoints,
    Points,
    VertexFlags,
    Vertices,
    Voxels,
)
from sim.reconstruction.volume import Volume, surface

_ndimage: Any = ndimage
_KDTree: Any = cast("Any", spatial).KDTree
_assign: Any = cast("Any", optimize).linear_sum_assignment

# Voxels of the coarse volume and of an object's own, at most about so many; sides [m].
_COARSE, _FINE = 1_200_000, 700_000
_COARSE_M, _FINE_M, _WIDEST_M = 0.004, 0.0015, 0.02
# Smaller clusters are specks [m^3], lower ones are not told from the table.
_LEAST_M3 = 1.5e-6
# Things that touch are cut at a neck, a cross-section of this share of both sides', or where it
# changes by this share.
_NECK, _STEP = 0.8, 0.2
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
    # Of one of several things that touch: where it is, and where the others are [m].
    own: OwnPoints | None = None
    others: OwnPoints | None = None
    # Which object of capture.yaml masks say that it is (the first is 1); 0: they do not say.
    number: int = 0

    @property
    def middle(self) -> Vector:
        """Of its box."""
        return 0.5 * (self.low + self.high)


@dataclass(frozen=True, slots=True)
class Scanned:
    """An object's closed surface in the table's frame [m], which of its corners no camera saw (they
    are a guess), their share above what it stands on, and the voxels it was found with [m].
    """

    name: str
    vertices: Vertices
    faces: Faces
    guessed: VertexFlags
    unseen_share: float
    voxel_m: float


def clearance_m(noise_m: float, voxel_m: float) -> float:
    """Height below which an object is not told from the table [m]."""
    return max(0.004, 1.5 * voxel_m, 1.5 * noise_m)


def find_clusters(
    frames: Sequence[PosedFrame],
    low: Vector,
    high: Vector,
    noise_m: float,
    seeds: Sequence[tuple[float, float]] = (),
) -> list[Cluster]:
    """Clusters on the table within the workspace, largest first. Masks part what touches; without,
    one that holds several ``seeds`` (places of different objects [m]) is cut between them where it
    is thinnest.
    """
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
    volume_high = below + voxel * (np.array(solid.shape) - 1.0)
    marks = _Marks.of(frames, low, high, clearance_m(noise_m, voxel))
    out: list[Cluster] = []
    for k, box in enumerate(_ndimage.find_objects(labels), 1):
        own = labels[box] == k
        size = float(own.sum()) * voxel**3
        # What no camera ever looked at is solid, too, but it has no surface that was seen.
        shell = own & ~_ndimage.binary_erosion(own)
        if size < _LEAST_M3 or float(seen[box][shell].mean()) < _SEEN_SHELL:
            continue
        first = np.array([s.start for s in box])
        at = below + voxel * (first + np.argwhere(own))
        parts = _parted(at, seeds, voxel) if marks is None else marks.nearest(at)
        for part in np.unique(parts):
            inside = parts == part
            if float(inside.sum()) * voxel**3 < _LEAST_M3:
                continue
            a, b = at[inside].min(axis=0), at[inside].max(axis=0)
            whole = bool(inside.all())
            rim = (a[:2] < below[:2] + 0.5 * voxel) | (b[:2] > volume_high[:2] - 0.5 * voxel)
            out.append(
                Cluster(
                    np.array([*(a[:2] - 0.5 * voxel), 0.0]),
                    b + 0.5 * voxel,
                    float(inside.sum()) * voxel**3,
                    bool(rim.any()),
                    None if whole else at[inside],
                    None if whole else at[~inside],
                    0 if marks is None else int(part),
                )
            )
    return sorted(out, key=lambda c: -c.volume_m3)


@dataclass(frozen=True, slots=True)
class _Marks:
    """What masks say: points that stand on the table, and the object of each (0: none)."""

    points: OwnPoints
    numbers: OwnIndex

    @classmethod
    def of(
        cls, frames: Sequence[PosedFrame], low: Vector, high: Vector, clear: float
    ) -> _Marks | None:
        """None where no picture has a mask."""
        masked = [f for f in frames if f.frame.mask_file is not None]
        points: list[OwnPoints] = []
        numbers: list[OwnIndex] = []
        for f in masked[:: max(1, len(masked) // 30)]:
            depth, marked = f.depth_m(), f.numbers()
            for number in np.unique(marked):
                own = np.where(marked == number, depth, 0.0).astype(np.float32)
                at = points_of(own, f.K, f.T_table_camera, 2)
                at = at[((at > [*low[:2], clear]) & (at < high)).all(axis=1)]
                points.append(at)
                numbers.append(np.full(len(at), number, dtype=np.int64))
        if not points:
            return None
        return cls(np.concatenate(points), np.concatenate(numbers))

    def nearest(self, at: Points) -> OwnIndex:
        """The object of the point that is nearest to each of ``at [n, 3]``."""
        if not len(self.points):
            return np.zeros(len(at), dtype=np.int64)
        return self.numbers[_KDTree(self.points).query(at)[1]]


def _parted(at: Points, seeds: Sequence[tuple[float, float]], voxel: float) -> OwnIndex:
    """Which seed's thing every voxel ``[n]`` of a cluster is: of every two seeds in it, on which
    side of the plane that cuts it between them; all 0 where fewer than two are in it.
    """
    inside = [np.array(s) for s in seeds if (np.abs(at[:, :2] - s).max(axis=1) < 1.5 * voxel).any()]
    if len(inside) < 2:
        return np.zeros(len(at), dtype=np.int64)
    away = np.stack([np.linalg.norm(at[:, :2] - s, axis=1) for s in inside], axis=1)
    lost = np.zeros(away.shape, dtype=np.int64)
    for i in range(len(inside)):
        for j in range(i + 1, len(inside)):
            along = (at[:, :2] - inside[i]) @ _unit(inside[j] - inside[i])
            cut = _cut_between(along, float(np.linalg.norm(inside[j] - inside[i])), voxel)
            lost[:, j] += along < cut
            lost[:, i] += along >= cut
    # Who loses against fewest; the nearest of these.
    return np.argmin(lost + 1e-3 * away / (away.max() + 1e-9), axis=1).astype(np.int64)


def _cut_between(along: Floats, length: float, voxel: float) -> float:
    """Where a row of voxels is cut between its ends 0 and ``length`` [m]: at a neck, else where
    its cross-section changes most, else in the middle.
    """
    edges = np.arange(0.15 * length, 0.85 * length + voxel, voxel)
    if len(edges) < 4:
        return 0.5 * length
    area = np.histogram(along, edges)[0].astype(np.float64)
    middles = 0.5 * (edges[1:] + edges[:-1])
    thin = int(np.argmin(area))
    sides = [float(np.median(part)) for part in (area[: thin + 1], area[thin:])]
    if 0 < thin < len(area) - 1 and area[thin] < _NECK * min(sides):
        return float(middles[thin])
    step = np.abs(np.diff(area))
    most = int(np.argmax(step))
    if step[most] > _STEP * float(np.median(area)):
        return float(edges[most + 1])
    return 0.5 * length


def _unit(v: XY) -> XY:
    return v / max(float(np.linalg.norm(v)), 1e-9)


def name_clusters(
    clusters: Sequence[Cluster], objects: Sequence[CaptureObject], apart: Collection[str] = ()
) -> tuple[dict[str, Cluster], list[str], list[Assumed]]:
    """Which cluster is which object of capture.yaml: by masks, by where it says, the others by
    size. Objects that were seen ``apart`` need not be on the table.

    Returns the clusters by name, sentences about what is missing or too many, and what was assumed.
    """
    named: dict[str, Cluster] = {}
    said: list[str] = []
    assumed: list[Assumed] = []
    left = list(clusters)
    for number, o in enumerate(objects, 1):
        own = [c for c in left if c.number == number]
        if own:
            named[o.name] = own[0]
    left = [c for c in left if all(c is not other for other in named.values())]
    placed = [o for o in objects if o.at_m is not None and o.name not in named]
    if placed and left:
        at = np.array([o.at_m for o in placed], dtype=np.float64)
        cost = np.linalg.norm(at[:, None] - np.stack([c.middle[:2] for c in left])[None], axis=2)
        for i, j in zip(*_assign(np.minimum(cost, 10 * _NAMED_M)), strict=True):
            if cost[i, j] < _NAMED_M:
                named[placed[i].name] = left[j]
        left = [c for c in left if all(c is not other for other in named.values())]
    rest = [o for o in objects if o.at_m is None and o.name not in named]
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
    missing = [o.name for o in objects if o.name not in named and o.name not in apart]
    if missing:
        said.append(
            f"{', '.join(missing)}: not found; {len(clusters)} thing(s) stand on the table,"
            f" capture.yaml names {len(objects)}. Things that touch are seen as one: move them"
            " 2 cm apart, or give at_m of each so that they are cut apart; what is flatter than a"
            " few millimetres, black or shiny is not seen"
        )
    for cluster in left[len(rest) :]:
        name = next(n for n in (f"object_{k}" for k in range(1, 1000)) if n not in named)
        named[name] = cluster
        if objects:
            said.append(
                f"{name}: something at {cluster.middle[0]:.2f}, {cluster.middle[1]:.2f} m that"
                " capture.yaml does not name; take it away, or name it"
            )
    touching = [n for n, c in named.items() if c.others is not None and not c.number]
    if touching:
        text = ", ".join(touching)
        why = "they touch; cut between the places of at_m, where together they are thin or change"
        assumed.append(Assumed("where one thing ends and the next begins", text, why))
        said.append(f"{text} touch other things: move them 2 cm apart for surfaces that were seen")
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
    if cluster.own is not None and cluster.others is not None:
        solid = np.argwhere(field < 0)
        at = low + voxel * solid
        foreign = _KDTree(cluster.others).query(at)[0] < _KDTree(cluster.own).query(at)[0]
        field[tuple(solid[foreign].T)] = 0.5
    kept = _own(field, heights, clearance_m(noise_m, voxel), low, voxel, cluster)
    # Whatever is not the object is free; the table's plane is its lower side.
    field = np.where(kept, field, np.maximum(field, 0.5))
    field = np.maximum(field, (-heights / volume.truncation_m)[None, None].astype(np.float32))
    vertices, faces = surface(field, low, voxel)
    guessed = unseen(volume, vertices, low, voxel)
    above = vertices[:, 2] > voxel
    share = float((guessed & above).sum() / max(1, above.sum()))
    return Scanned(name, vertices, faces, guessed, share, voxel)


def unseen(volume: Volume, vertices: Vertices, low: Vector, voxel: float) -> VertexFlags:
    """Which of a surface's corners ``[v, 3]`` no camera saw anything near."""
    at = np.clip(np.rint((vertices - low) / voxel).astype(int), 0, np.array(volume.shape) - 1)
    near = _ndimage.binary_dilation(volume.seen & (np.abs(volume.field()) < 0.99), iterations=1)
    return ~near[at[:, 0], at[:, 1], at[:, 2]]


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
