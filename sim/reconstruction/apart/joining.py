"""Brings objects that were seen from all sides by themselves into the scene of a table.

Where the scan shows one, it stands as seen there; else where capture.yaml says that it lies, or on
a free spot, which is marked as assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from robolearn.capture.config import CaptureObject
from robolearn.geometry import Pose, Vector, pose, rot_x
from sim.reconstruction.apart.align import Surface, align
from sim.reconstruction.apart.turned import Turned
from sim.reconstruction.bodies import Body
from sim.reconstruction.frames import Assumed, PosedFrame
from sim.reconstruction.objects import Scanned

# Both surfaces may lie so far apart [m], or in voxels, and be of one thing.
_ALIKE_M, _ALIKE_VOXELS = 0.0035, 1.5
# Of a scan, points this high are the object's, not the table's [m].
_CLEAR_M = 0.006
# A free spot keeps clear of others by so much, and is looked for in such steps [m].
_APART_M, _STEP_M = 0.02, 0.01


@dataclass(frozen=True, slots=True)
class Joined:
    """A surface in the table's frame, the pictures of it alone (none: the scan's are used), and
    what there is to say; ``pictured``: whether pictures of the table show it.
    """

    scanned: Scanned
    frames: tuple[PosedFrame, ...]
    notes: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    pictured: bool = True


def joined_to_scan(turned: Turned, scanned: Scanned) -> Joined:
    """The object where the scan of the table shows it, with the surface of which more was seen; the
    scan's own surface where both are not of one thing.
    """
    name = scanned.name
    own = scanned.guessed | (scanned.vertices[:, 2] <= _CLEAR_M)
    part = Surface(scanned.vertices[~own], scanned.vertices[own])
    whole = turned.scanned
    model = Surface(whole.vertices[~whole.guessed], whole.vertices[whole.guessed])
    worst = max(_ALIKE_M, _ALIKE_VOXELS * scanned.voxel_m)
    found = align(model, part, upright=True) if turned.upright else None
    otherwise = ""
    if found is None or found.off_m > worst:
        otherwise = "" if found is None else ", where it lies otherwise than on the turntable"
        found = align(model, part, upright=False)
    if found.off_m > worst:
        apart = (
            f"{1e3 * found.off_m:.1f} mm apart at best"
            if np.isfinite(found.off_m)
            else "too little of it was seen on both sides to tell"
        )
        text = (
            f"{name}: what was turned before the camera does not look like what stands on the table"
            f" ({apart}): as the scan has it. Is it the same"
            " thing, and 'object' or at_m of capture.yaml right?"
        )
        return Joined(scanned, (), said=(text,))
    note = f"{turned.note}; {1e3 * found.off_m:.1f} mm from what the scan saw{otherwise}"
    if scanned.unseen_share < whole.unseen_share:
        note += (
            f". The scan saw more of it ({scanned.unseen_share:.0%} unseen, not"
            f" {whole.unseen_share:.0%}): its surface is kept"
        )
        return Joined(scanned, (), notes=(note,))
    return Joined(_placed(whole, found.T), _moved(turned, found.T), notes=(note,))


def joined_elsewhere(
    turned: Turned,
    described: CaptureObject | None,
    bodies: Sequence[Body],
    low: Vector,
    high: Vector,
) -> Joined:
    """The object where capture.yaml says that it lies, or where there is room in the workspace
    ``low`` to ``high`` [m]: no picture of the table shows it.
    """
    name, assumed = turned.scanned.name, list[Assumed]()
    T = np.eye(4) if turned.upright else pose(rot_x(np.pi))
    vertices = turned.scanned.vertices @ T[:3, :3].T
    down, up = vertices.min(axis=0), vertices.max(axis=0)
    radius = 0.5 * float(np.linalg.norm((up - down)[:2]))
    at = described.at_m if described is not None and described.at_m is not None else None
    if at is None:
        at = _spot(radius, bodies, low, high)
        why = "no picture of the table shows it, and capture.yaml has no at_m"
        assumed.append(Assumed(f"where {name} stands", f"{at[0]:.2f}, {at[1]:.2f} m", why))
    how = "as on the turntable" if turned.upright else "as a gripper from above holds it"
    why = "no picture of the table shows it"
    assumed.append(Assumed(f"how {name} is turned", how, why))
    middle = 0.5 * (down + up)
    T = pose(None, (at[0] - middle[0], at[1] - middle[1], -down[2])) @ T
    text = (
        f"{name}: no picture of the table shows it: nothing judges where it stands. Put it there,"
        " and take the scan again"
    )
    return Joined(
        _placed(turned.scanned, T),
        _moved(turned, T),
        (turned.note,),
        (text,),
        tuple(assumed),
        pictured=False,
    )


def _spot(radius: float, bodies: Sequence[Body], low: Vector, high: Vector) -> tuple[float, float]:
    """The free spot that is nearest to the workspace's middle; beside everything where none is."""
    xs, ys = (np.arange(low[k] + radius, high[k] - radius + 1e-9, _STEP_M) for k in range(2))
    grid = np.stack(np.meshgrid(xs, ys), axis=-1).reshape(-1, 2)
    free = np.ones(len(grid), dtype=np.bool_)
    for b in bodies:
        away = np.linalg.norm(grid - b.T_table_body[:2, 3], axis=1)
        free &= away > radius + b.radius_m + _APART_M
    if free.any():
        middle = 0.5 * (low + high)[:2]
        x, y = min(grid[free].tolist(), key=lambda p: float(np.linalg.norm(p - middle)))
        return (x, y)
    return (float(high[0]) + radius + _APART_M, float(0.5 * (low + high)[1]))


def _placed(scanned: Scanned, T: Pose) -> Scanned:
    return replace(scanned, vertices=scanned.vertices @ T[:3, :3].T + T[:3, 3])


def _moved(turned: Turned, T: Pose) -> tuple[PosedFrame, ...]:
    return tuple(f.moved(T) for f in turned.frames)
