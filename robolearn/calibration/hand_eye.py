"""Finds where a camera sits on an arm's tool, or beside the arm, from pairs of poses.

Eye in hand: the camera moves with the tool and the board stays. Eye to hand: the camera stays and
the tool carries the board. Both are one equation,

    A_i X B_i = Y        A_i = T_base_tool (in hand) or its inverse (to hand), B_i = T_camera_board,

with X the camera's place on the tool (in the base) and Y that of the board in the base (on the
tool), which is found as well. Relative motions ``A_j^-1 A_i X = X B_j B_i^-1`` give a start (Park
and Martin 1994) from three poses; the start that the middle pose agrees with best (least median of
squares, Rousseeuw 1984) tells which pairs are wrong; X and Y together are fitted to all others,
every component of a board's pose weighted by how well it is measured. Intervals come from what
leaving poses out would change (the cluster-robust covariance CR3, Bell and McCaffrey 2002), which
holds when near and far boards are measured differently well; the poses of one place of the arm are
left out together, as they share what is wrong there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import cv2
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy import optimize, stats  # pyright: ignore[reportMissingTypeStubs]

from robolearn.calibration.pose_pairs import (
    LEAST_POSES,
    ContradictionError,
    PosePairs,
    Rows,
    Setup,
    count_places,
    inverses,
    places_of_arm,
    relative_motions,
    require_enough,
    thinned,
)
from robolearn.errors import DataError
from robolearn.geometry import (
    Pose,
    Rotation,
    RotvecPose,
    Vector,
    pose,
    pose_error,
    rotation_from_rotvec,
    rotvecs_from_rotations,
)
from robolearn.shapes import FloatRows, Floats

# SciPy comes without types.
_stats: Any = stats
least_squares: Callable[..., Any] = cast("Any", optimize).least_squares

# Position [m] and rotation [rad], of one pose and of X and Y.
Six = Float64[NDArray[np.float64], "6"]
Places = Float64[NDArray[np.float64], "12"]

# What the poses that are believed may leave over (root mean square); more is no calibration.
WORST_RMS_M, WORST_RMS_DEG = 0.010, 1.5
# Half an interval beyond which the answer is refused.
WORST_HALF_M, WORST_HALF_DEG = 0.02, 2.0
# Share of the poses that may be wrong.
MOST_OUTLIERS = 1 / 3
# Chance that some good pose is called an outlier, over all poses, were they equally good; as near
# boards are measured better than far ones, a good pose may be this much farther off.
_FALSE_ALARM, _UNEQUAL = 0.01, 1.5
# Rounding of exact poses is not measured against itself.
_FLOOR_M = 1e-6
# A step takes thirteen, one for every number that is found.
_CALLS = 200
# A third of the poses wrong: one of so many triples is right but for one case in a million.
_STARTS = 40
_MOST_FOR_METHODS = 100
_METHODS = {
    "tsai": cv2.CALIB_HAND_EYE_TSAI,
    "park": cv2.CALIB_HAND_EYE_PARK,
    "horaud": cv2.CALIB_HAND_EYE_HORAUD,
    "andreff": cv2.CALIB_HAND_EYE_ANDREFF,
    "daniilidis": cv2.CALIB_HAND_EYE_DANIILIDIS,
}


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One of OpenCV's closed forms on the poses that are believed: how far its camera is from the
    jointly fitted one [m], [rad]. NaN where it gave no answer.
    """

    name: str
    distance_m: float
    distance_rad: float


@dataclass(frozen=True, slots=True)
class HandEye:
    """The camera's place and how well it is known.

    ``T_parent_camera``: in the tool's frame (eye in hand) or the base's (eye to hand);
    ``T_parent_board``: in the other one. ``half_m [3]`` and ``half_rad [3]``: half widths of the
    95 % intervals of position (along the parent's axes) and of orientation (about them).
    ``outliers``: indices of pairs that were not believed, ``distances [n]``: how far each pair is
    from the answer, in standard deviations of the believed ones. ``rms_m``, ``rms_rad``: what the
    believed ones leave over; ``held_out_*``: the same for places that were left out one by one, and
    ``held_out [n, 6]`` of every pair, as :func:`residuals` has them (NaN: not believed, or a copy).
    ``places``: how many places of the arm the believed ones are of; ``copies``: indices of pairs
    that say, digit by digit, what an earlier one does, and were left out.
    """

    setup: Setup
    T_parent_camera: Pose
    T_parent_board: Pose
    half_m: Vector
    half_rad: Vector
    outliers: tuple[int, ...]
    distances: Floats
    rms_m: float
    rms_rad: float
    held_out_m: float
    held_out_rad: float
    held_out: FloatRows
    methods: tuple[MethodResult, ...]
    places: int
    copies: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fit:
    """X and Y fitted to pairs, with weights ``[6]`` (1 / standard deviation of x, y, z [1/m] and of
    rotation about them [1/rad], in the camera's frame).
    """

    X: Pose
    Y: Pose
    weights: Six


def hand_eye(pairs: PosePairs) -> HandEye:
    """Find the camera. DataError: too few poses, too alike, or in contradiction to each other, with
    what may have happened to them.
    """
    require_enough(pairs)
    good = believed(pairs)
    outliers = tuple(int(i) for i in np.setdiff1d(np.arange(len(pairs)), good))
    if len(good) < LEAST_POSES or len(outliers) > MOST_OUTLIERS * len(pairs):
        many = len(outliers) > MOST_OUTLIERS * len(pairs)
        raise ContradictionError(
            f"the poses contradict each other: {len(outliers)} of {len(pairs)} do not fit those"
            f" that agree best ({pairs.listed(outliers)}), "
            + (
                "at most a third may be wrong"
                if many
                else f"and {len(good)} are left where {LEAST_POSES} are needed: add poses"
            )
        )
    kept = pairs.of(good)
    require_enough(kept)
    fit = refine(kept, start(kept))
    residual = residuals(fit.X, fit.Y, kept)
    rms_m, rms_rad = _rms(residual)
    if rms_m > WORST_RMS_M or np.degrees(rms_rad) > WORST_RMS_DEG:
        raise ContradictionError(
            f"the poses contradict each other: {1e3 * rms_m:.1f} mm and"
            f" {np.degrees(rms_rad):.2f} degrees are left over, at most {1e3 * WORST_RMS_M:g} mm"
            f" and {WORST_RMS_DEG:g} degrees may be"
        )
    half, held_out = _uncertainty(fit, kept)
    half_m, half_rad = half[:3], half[3:]
    if half_m.max() > WORST_HALF_M or np.degrees(half_rad.max()) > WORST_HALF_DEG:
        raise DataError(
            f"the camera's place is known to +- {1e3 * half_m.max():.1f} mm and"
            f" {np.degrees(half_rad.max()):.2f} degrees only: add poses that turn the tool about"
            " other axes, by 30 degrees and more, nearer to the board"
        )
    held_m, held_rad = _rms(held_out)
    held_every = np.full((len(pairs), 6), np.nan)
    held_every[good] = held_out
    every = residuals(fit.X, fit.Y, pairs) * fit.weights
    methods = _methods(kept, fit.X)
    return HandEye(
        pairs.setup,
        fit.X,
        fit.Y,
        half_m,
        half_rad,
        outliers,
        np.linalg.norm(every, axis=1),
        rms_m,
        rms_rad,
        held_m,
        held_rad,
        held_every,
        methods,
        count_places(kept),
    )


def residuals(X: Pose, Y: Pose, pairs: PosePairs) -> FloatRows:
    """What X and Y leave over ``[n, 6]``: the board's position [m] and rotation [rad], as predicted
    less as seen, in the camera's frame.
    """
    predicted = np.linalg.inv(X) @ inverses(pairs.A) @ Y
    seen = pairs.T_camera_board
    turned = predicted[:, :3, :3] @ seen[:, :3, :3].transpose(0, 2, 1)
    moved = predicted[:, :3, 3] - seen[:, :3, 3]
    return np.concatenate([moved, rotvecs_from_rotations(turned)], axis=1)


def start(pairs: PosePairs) -> Pose:
    """X in closed form (Park and Martin 1994): axes of rotation by a rotation, then positions."""
    C, D = relative_motions(pairs)
    axes_c = rotvecs_from_rotations(C[:, :3, :3])
    axes_d = rotvecs_from_rotations(D[:, :3, :3])
    # Turns by nearly half a circle have either of two axes.
    clear = np.linalg.norm(axes_c, axis=1) < 3.0
    clear &= np.linalg.norm(axes_d, axis=1) < 3.0
    R = nearest_rotation(axes_c[clear].T @ axes_d[clear])
    left = (C[:, :3, :3] - np.eye(3)).reshape(-1, 3)
    right = (D[:, :3, 3] @ R.T - C[:, :3, 3]).reshape(-1)
    return pose(R, np.linalg.lstsq(left, right, rcond=None)[0])


def nearest_rotation(M: Rotation) -> Rotation:
    """The rotation that a matrix ``[3, 3]`` is nearest to (Kabsch 1976; Wahba's problem)."""
    U, _, Vt = (np.asarray(part, dtype=np.float64) for part in np.linalg.svd(M))
    return U @ np.diag([1.0, 1.0, float(np.linalg.det(U @ Vt))]) @ Vt


def middle(X: Pose, pairs: PosePairs) -> Pose:
    """Y as the mean over the pairs."""
    each = pairs.A @ X @ pairs.T_camera_board
    return pose(nearest_rotation(each[:, :3, :3].sum(axis=0)), each[:, :3, 3].mean(axis=0))


def refine(pairs: PosePairs, X: Pose, rounds: int = 3) -> Fit:
    """Fit X and Y together; weights are those of the residuals of the round before."""
    reach, places = _reach(pairs), count_places(pairs)
    fit = Fit(X, middle(X, pairs), _weights_alike(reach))
    for number in range(rounds):
        fit = _fitted(fit, pairs)
        if number + 1 < rounds:
            fit = Fit(
                fit.X, fit.Y, _measured_weights(residuals(fit.X, fit.Y, pairs), reach, places)
            )
    return fit


def believed(pairs: PosePairs) -> Rows:
    """Indices of the pairs that agree with each other."""
    reach, everyone, places = _reach(pairs), np.arange(len(pairs)), count_places(pairs)
    begin = _best_start(pairs, reach)
    far = _sizes(begin, _medoid(begin, pairs, reach), pairs, reach)
    # The median of the length of six normal components is 2.31 standard deviations.
    sigma = max(float(np.median(far)) / chi_below(0.5), _FLOOR_M)
    small = 1.0 + 5.0 / max(places - 2, 1)
    good = everyone[far <= small * _gate(len(pairs)) * sigma]
    for _ in range(5):
        if len(good) < LEAST_POSES:
            break
        fit = refine(pairs.of(good), begin, rounds=2)
        begin = fit.X
        # Of the believed ones, with what the fit took from them given back.
        left = residuals(fit.X, fit.Y, pairs)
        weights = _measured_weights(left[good], reach, places)
        far = np.linalg.norm(left * weights, axis=1)
        now = everyone[far <= small * _gate(len(pairs))]
        if np.array_equal(now, good):
            break
        good = now
    return good


def sizes_of(pairs: PosePairs, starts: int = _STARTS) -> Floats:
    """What the start that most agree with leaves of every pair ``[n]`` [m], rotations times the
    board's distance: tells assumptions about the pairs apart.
    """
    return _sizes(*places_of(pairs, starts), pairs, _reach(pairs))


def places_of(pairs: PosePairs, starts: int = _STARTS) -> tuple[Pose, Pose]:
    """About X and Y, from the start that most pairs agree with."""
    reach = _reach(pairs)
    X = _best_start(pairs, reach, starts)
    return X, _medoid(X, pairs, reach)


def _best_start(pairs: PosePairs, reach: float, starts: int = _STARTS) -> Pose:
    """X of the three poses that the pose in the middle agrees with best."""
    n = len(pairs)
    count = n * (n - 1) * (n - 2) // 6
    rng = np.random.default_rng(n)
    triples = (
        list(itertools.combinations(range(n), 3))
        if count <= starts
        else [tuple(rng.choice(n, 3, replace=False).tolist()) for _ in range(starts)]
    )
    best, least = np.eye(4), np.inf
    for triple in triples:
        some = pairs.of(triple)
        X = start(some)
        size = float(np.median(_sizes(X, middle(X, some), pairs, reach)))
        if size < least:
            best, least = X, size
    return best


def _medoid(X: Pose, pairs: PosePairs, reach: float) -> Pose:
    """The pair's own Y that the pair in the middle is nearest to (of some, where they are many)."""
    some = thinned(pairs, _MOST_FOR_METHODS)
    each = some.A @ X @ some.T_camera_board
    sizes = [float(np.median(_sizes(X, Y, pairs, reach))) for Y in each]
    return each[int(np.argmin(sizes))]


def _sizes(X: Pose, Y: Pose, pairs: PosePairs, reach: float) -> Floats:
    """Residuals ``[n]`` [m], rotations as what they move at the board's distance."""
    return np.linalg.norm(residuals(X, Y, pairs) * _weights_alike(reach), axis=1)


def _reach(pairs: PosePairs) -> float:
    """Distance of the board from the camera [m], of the pose in the middle."""
    far: Floats = np.linalg.norm(pairs.T_camera_board[:, :3, 3], axis=1)
    return max(float(np.median(far)), 1e-3)


def _weights_alike(reach: float) -> Six:
    return np.array([1.0, 1.0, 1.0, reach, reach, reach])


def _measured_weights(left: FloatRows, reach: float, places: int) -> Six:
    """1 / standard deviation of every component; few poses lend each other strength: half of each
    variance is that of its kind. The fit takes two places' worth away.
    """
    variance = (left * left).mean(axis=0) * places / max(places - 2, 1)
    for kind in (slice(0, 3), slice(3, 6)):
        variance[kind] = 0.5 * (variance[kind] + variance[kind].mean())
    floor = np.array([_FLOOR_M] * 3 + [_FLOOR_M / reach] * 3)
    return 1.0 / np.sqrt(variance + floor**2)


def chi_below(share: float) -> float:
    """Length that ``share`` of vectors of six standard normal components are shorter than."""
    return math.sqrt(float(_stats.chi2.ppf(share, 6)))


def _gate(count: int) -> float:
    """Standard deviations that hardly one of ``count`` good poses is beyond."""
    return _UNEQUAL * chi_below(1.0 - _FALSE_ALARM / count)


def moved(T: Pose, change: RotvecPose) -> Pose:
    """A pose moved by ``change [6]`` (position [m], rotation vector [rad]), along parent axes."""
    return pose(rotation_from_rotvec(change[3:]) @ T[:3, :3], T[:3, 3] + change[:3])


def _fitted(fit: Fit, pairs: PosePairs) -> Fit:
    """The least squares of weighted residuals."""

    def left(change: Places) -> Floats:
        X, Y = moved(fit.X, change[:6]), moved(fit.Y, change[6:])
        return (residuals(X, Y, pairs) * fit.weights).ravel()

    # From a start in closed form a few steps are enough; poses that contradict get no more.
    found = least_squares(left, np.zeros(12), method="lm", xtol=1e-14, ftol=1e-14, max_nfev=_CALLS)
    change = np.asarray(found.x, dtype=np.float64)
    return Fit(moved(fit.X, change[:6]), moved(fit.Y, change[6:]), fit.weights)


def _uncertainty(fit: Fit, pairs: PosePairs) -> tuple[Six, FloatRows]:
    """Half widths ``[6]`` of X's 95 % intervals (position [m], rotation [rad]), and the residuals
    ``[n, 6]`` of every pair as predicted by those of other places.
    """
    step = 1e-6

    def left(change: Places) -> FloatRows:
        X, Y = moved(fit.X, change[:6]), moved(fit.Y, change[6:])
        return residuals(X, Y, pairs) * fit.weights

    here = left(np.zeros(12))
    steps = step * np.eye(12)
    J = np.stack([(left(d) - left(-d)) / (2 * step) for d in steps], axis=2)
    H = np.linalg.inv(J.reshape(-1, 12).T @ J.reshape(-1, 12))
    meat, held_out = np.zeros((12, 12)), np.empty_like(here)
    place = places_of_arm(pairs)
    count = int(place.max()) + 1
    for number in range(count):
        rows = np.flatnonzero(place == number)
        slopes, value = J[rows].reshape(-1, 12), here[rows].ravel()
        # What the place would pull by, had it not been fitted to: (1 - S H S^T)^-1 by the matrix
        # inversion lemma, as poses may be many.
        score = np.linalg.solve(np.eye(12) - slopes.T @ slopes @ H, slopes.T @ value)
        held_out[rows] = (value + slopes @ H @ score).reshape(-1, 6)
        meat += np.outer(score, score)
    covariance = H @ meat @ H * (count - 1) / count
    # As exact as poses are written at best.
    floor = np.array([1e-9] * 6)
    sigma = np.sqrt(np.diag(covariance)[:6]) + floor
    return float(_stats.t.ppf(0.975, count - 3)) * sigma, held_out / fit.weights


def _rms(left: FloatRows) -> tuple[float, float]:
    """Root mean square lengths of positions [m] and rotations [rad]."""
    squares = (left * left).reshape(len(left), 2, 3).sum(axis=2).mean(axis=0)
    return float(np.sqrt(squares[0])), float(np.sqrt(squares[1]))


def _methods(pairs: PosePairs, X: Pose) -> tuple[MethodResult, ...]:
    """What OpenCV's five closed forms make of the same pairs, evenly thinned where they are many:
    their time grows with the square.
    """
    pairs = thinned(pairs, _MOST_FOR_METHODS)
    A, B = pairs.A, pairs.T_camera_board
    found: list[MethodResult] = []
    for name, method in _METHODS.items():
        R, at = cv2.calibrateHandEye(
            list(A[:, :3, :3]), list(A[:, :3, 3]), list(B[:, :3, :3]), list(B[:, :3, 3]),
            method=method,
        )  # fmt: skip
        T = pose(np.asarray(R, dtype=np.float64), np.asarray(at, dtype=np.float64).ravel())
        known = np.isfinite(T).all()
        found.append(MethodResult(name, *(pose_error(T, X) if known else (np.nan, np.nan))))
    return tuple(found)
