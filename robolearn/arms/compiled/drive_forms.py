"""Makes the forms of a tool's drive again of the arrays that ``robolearn/arms/packed.py`` made."""

from __future__ import annotations

from robolearn.arms.compiled.forms import (
    Chain,
    DriveBounds,
    DriveState,
    JointBounds,
    JointState,
    Norms,
    PathBounds,
    PathState,
    StepBounds,
)
from robolearn.arms.compiled.kernel import part
from robolearn.shapes import OwnFloats, OwnIndex

# Where things are in ``sizes``: joints, numbers of a link, rows of both moving means.
DOF, LINK, PATH_ROWS, JOINT_ROWS = range(4)
# Numbers of a path's row.
_PATH = 13


@part
def bounds_of(a: OwnFloats, sizes: OwnIndex) -> DriveBounds:
    """In the order of the fields."""
    n: int = sizes[DOF]
    w: int = sizes[LINK]
    chain = Chain(a[0:12], a[12:24], a[24 : 24 + n * w].reshape((n, w)))
    k = 24 + n * w
    path = PathBounds(
        *(a[k], a[k + 1], a[k + 2]),
        Norms(a[k + 3], a[k + 4], a[k + 5]),
        Norms(a[k + 6], a[k + 7], a[k + 8]),
        *(a[k + 9], a[k + 10 : k + 13], a[k + 13 : k + 16]),
    )
    k += 16
    step = StepBounds(
        *(a[k : k + n], a[k + n : k + 2 * n], a[k + 2 * n : k + 3 * n], a[k + 3 * n : k + 4 * n]),
        *(a[k + 4 * n], a[k + 4 * n + 1], a[k + 4 * n + 2]),
        *(a[k + 4 * n + 3], a[k + 4 * n + 4], a[k + 4 * n + 5]),
    )
    k += 4 * n + 6
    # One row, then its speeds.
    joints = JointBounds(
        *(a[k : k + n], a[k + n : k + 2 * n], a[k + 2 * n : k + 3 * n]),
        *(a[k + 3 * n : k + 4 * n], a[k + 4 * n : k + 5 * n]),
        *(a[k + 5 * n], a[k + 5 * n + 1], a[k + 5 * n + 2]),
        a[k + 5 * n + 3 : k + 5 * n + 9].reshape((2, 3)),
    )
    k += 5 * n + 9
    return DriveBounds(chain, path, step, joints, a[k], a[k + 1], a[k + 2], a[k + 3])


@part
def state_of(a: OwnFloats, marks: OwnIndex, sizes: OwnIndex) -> DriveState:
    """In the order of the fields."""
    n: int = sizes[DOF]
    rows: int = sizes[PATH_ROWS]
    now, goal, T, twist = a[0:13], a[13:20], a[20:36].reshape((4, 4)), a[36:42]
    k = 42 + _PATH * rows
    path = PathState(now, goal, T, twist, a[42:k].reshape((rows, _PATH)), marks[0:1])
    rows = sizes[JOINT_ROWS]
    q, qd, sent = a[k : k + n], a[k + n : k + 2 * n], a[k + 2 * n : k + 4 * n]
    k += 4 * n
    newest = a[k : k + 2 * n * rows].reshape((rows, 2 * n))
    joints = JointState(q, qd, sent, newest, marks[1:2])
    k += 2 * n * rows
    jacobian, inverse = a[k : k + 6 * n], a[k + 6 * n : k + 12 * n]
    k += 12 * n
    told = a[k : k + 2]
    return DriveState(
        path, joints, jacobian.reshape((6, n)), inverse.reshape((n, 6)), told, marks[2:4]
    )
