"""Says what may have happened to pairs of poses that contradict each other, and refuses known ones.

Every cause is an assumption that is put to the test: with it undone, the poses agree. The board's
size is one number more of the same fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.calibration.hand_eye import (
    HandEye,
    hand_eye,
    least_squares,
    moved,
    places_of,
    residuals,
    sizes_of,
    start,
)
from robolearn.calibration.hand_eye_moved import moved_after
from robolearn.calibration.pose_pairs import (
    LEAST_POSES,
    ContradictionError,
    PosePairs,
    Rows,
    first_alike,
    relative_motions,
    thinned,
    thinned_rows,
)
from robolearn.errors import DataError
from robolearn.geometry import PoseRows, quat_from_rotation, rotation_from_quat
from robolearn.shapes import Floats

PlacesAndScale = Float64[NDArray[np.float64], "13"]
# Undoing the true cause makes residuals smaller by this much at least.
_CLEARLY = 4.0
# Pictures that a board's pose may be late by.
_LATEST = 3
# Farther than any arm or board [m]: lengths are in another unit.
_TOO_FAR_M = 20.0
# As centimetres a board or an arm would be nearer than that.
_MILLIMETRES_M = 200.0
_ROUND, _ROUND_M = 1e-3, 1e-6
# Of the board's stated size that the poses may disagree with.
_WRONG_SCALE, _SIGMAS = 0.01, 4.0
# A board that would have to be this much smaller or larger explains nothing.
_SMALLEST = 5e-4
# Of the poses of a part, so many agree.
_MOST = 0.8
# Poses that an assumption is tried with, at most.
_TRIED = 40
# Four of five poses of a part agree: of so many triples one is right but for two cases in 10,000.
_STARTS = 12
# Clocks are tried that are out of step by so many tenths of a second; less than this harms nobody
# who stands still [s].
_SHIFTS, _LATE_S = 10, 0.03
# A camera on a tool is hardly farther from its tip [m].
_ON_TOOL_M = 0.3


@dataclass(frozen=True, slots=True)
class _Guess:
    """What may have happened, and the pairs with it undone."""

    text: str
    undone: PosePairs


def calibrate(pairs: PosePairs) -> HandEye:
    """:func:`robolearn.calibration.hand_eye.hand_eye`; a DataError names the likeliest cause, and
    poses that agree under a board of another size are refused, and those between which camera,
    board or base was moved. Copies of a pair are left out: what is there twice is not known better.
    """
    first = first_alike(pairs)
    rows = np.unique(first)
    if len(rows) == len(pairs):
        return _calibrate(pairs)
    names = tuple(pairs.name(int(i)) for i in rows)
    try:
        found = _calibrate(replace(pairs.of(rows), names=names))
    except DataError as error:
        raise type(error)(
            f"{len(pairs) - len(rows)} of {len(pairs)} poses are copies of earlier ones and were"
            f" left out; of the others: {error}"
        ) from error
    held_out = np.full((len(pairs), 6), np.nan)
    held_out[rows] = found.held_out
    return replace(
        found,
        held_out=held_out,
        outliers=tuple(int(rows[i]) for i in found.outliers),
        distances=found.distances[np.searchsorted(rows, first)],
        copies=tuple(int(i) for i in np.setdiff1d(np.arange(len(pairs)), rows)),
    )


def _calibrate(pairs: PosePairs) -> HandEye:
    try:
        found = hand_eye(pairs)
    except ContradictionError as error:
        cause = likeliest(pairs)
        raise ContradictionError(f"{error}. {cause or _ADVICE}") from error
    good = [i for i in range(len(pairs)) if i not in found.outliers]
    scale, sigma = board_scale(pairs.of(good), found)
    if abs(scale - 1.0) > max(_WRONG_SCALE, _SIGMAS * sigma):
        raise ContradictionError(_scaled(scale))
    move = moved_after(pairs, found)
    if move is not None:
        raise ContradictionError(
            f"{_parts(pairs, move.before, move.after)} (the {move.what} would be elsewhere by"
            f" {1e3 * move.by_m:.1f} mm and {math.degrees(move.by_rad):.2f} degrees)"
        )
    return found


_ADVICE = (
    "None of the usual causes explains it: check that arm and camera were read while the arm stood"
    " still, that the board did not slip, and that the tool's frame was the same throughout"
)


def likeliest(pairs: PosePairs) -> str:
    """The cause whose undoing makes the poses agree clearly better, in words; "" when none does."""
    some = thinned(pairs, _TRIED)
    before = _rms_of(some)
    scaled = _rescaled(some)
    near = pairs.of(range(min(_TRIED, len(pairs))))
    for guesses in (_other_frames(some), _other_rotations(some), _other_moments(near)):
        tried = [(_rms_of(guess.undone), guess.text) for guess in guesses]
        if scaled is not None:
            tried.append(scaled)
        left, text = min(tried, default=(math.inf, ""))
        if left * _CLEARLY < before:
            return text
    return _moved(pairs)


def _rms_of(pairs: PosePairs, starts: int = 40) -> float:
    return float(np.median(sizes_of(pairs, starts)))


def exchanged(pairs: PosePairs, found: HandEye) -> tuple[tuple[int, int], ...]:
    """Outliers that fit each other's arm pose: the two pictures were exchanged."""
    X, Y = found.T_parent_camera, found.T_parent_board
    swapped: list[tuple[int, int]] = []
    for n, i in enumerate(found.outliers):
        for j in found.outliers[n + 1 :]:
            seen = pairs.T_camera_board[[j, i]]
            both = replace(pairs.of([i, j]), T_camera_board=seen)
            far = np.linalg.norm(residuals(X, Y, both)[:, :3], axis=1).max()
            if far < max(_SIGMAS * found.rms_m, _ROUND):
                swapped.append((i, j))
    return tuple(swapped)


def board_scale(pairs: PosePairs, found: HandEye) -> tuple[float, float]:
    """How much larger than its poses say the board is, fitted together with both places, and the
    standard error of that.
    """
    weights = np.repeat([1.0 / max(found.rms_m, _ROUND_M), 1.0 / max(found.rms_rad, _ROUND_M)], 3)

    def left(change: PlacesAndScale) -> Floats:
        X, Y = moved(found.T_parent_camera, change[:6]), moved(found.T_parent_board, change[6:12])
        return (residuals(X, Y, _times(pairs, 1.0 + float(change[12]))) * weights).ravel()

    fit = least_squares(left, np.zeros(13), method="lm")
    variance = 2.0 * float(fit.cost) / max(6 * len(pairs) - 13, 1)
    slopes = np.asarray(fit.jac, dtype=np.float64)
    covariance = np.linalg.inv(slopes.T @ slopes) * variance
    return 1.0 + float(fit.x[12]), math.sqrt(float(covariance[12, 12]))


def _linear_scale(pairs: PosePairs) -> float:
    """The same without a start: ``(R_C - 1) t_X - s R_X t_D = -t_C`` for all relative motions,
    linear in ``t_X`` and ``s``.
    """
    C, D = relative_motions(pairs)
    turned = (D[:, :3, 3] @ start(pairs)[:3, :3].T).reshape(-1)
    left = np.column_stack([(C[:, :3, :3] - np.eye(3)).reshape(-1, 3), -turned])
    return float(np.linalg.lstsq(left, -C[:, :3, 3].reshape(-1), rcond=None)[0][3])


def _times(pairs: PosePairs, scale: float) -> PosePairs:
    B = pairs.T_camera_board.copy()
    B[:, :3, 3] *= scale
    return replace(pairs, T_camera_board=B)


def _other_frames(pairs: PosePairs) -> Iterator[_Guess]:
    B = pairs.T_camera_board
    yield _other_setup(pairs)
    mirror = np.diag([1.0, 1.0, -1.0, 1.0])
    yield _Guess(
        "They agree when one side is mirrored: the poses of arm or camera are those of a"
        " left-handed frame; turn the sign of one axis at their source",
        replace(pairs, T_camera_board=mirror @ B @ mirror),
    )


def _other_rotations(pairs: PosePairs) -> Iterator[_Guess]:
    A, B = pairs.T_base_tool, pairs.T_camera_board
    for what, undo in _MISREAD:
        for which, arm, board in (
            ("T_base_tool", undo(A), B),
            ("T_camera_board", A, undo(B)),
            ("both", undo(A), undo(B)),
        ):
            yield _Guess(
                f"They agree when the rotations of {which} are read otherwise: {what}",
                PosePairs(arm, board, pairs.setup),
            )


def _other_setup(pairs: PosePairs) -> _Guess:
    """The other setup, one column inverted, the other column inverted: the same equation."""
    other = "eye-to-hand" if pairs.setup == "eye-in-hand" else "eye-in-hand"
    undone = replace(pairs, setup=other)
    X, Y = (float(np.linalg.norm(T[:3, 3])) for T in places_of(undone))
    moving, still = ("base", "tool") if other == "eye-to-hand" else ("tool", "base")
    return _Guess(
        f"They agree as '{other}': that is the setup (the camera would be {X:.2f} m from the"
        f" {moving}, the board {Y:.2f} m from the {still}), or the arm's poses are those of the"
        " base in the tool's frame (inverted), or the board's poses are inverted: T_camera_board is"
        " the board in the camera's frame, these would be the camera's in the board's. The poses"
        " alone cannot tell which of the three",
        undone,
    )


def _transposed(T: PoseRows) -> PoseRows:
    out = T.copy()
    out[:, :3, :3] = T[:, :3, :3].transpose(0, 2, 1)
    return out


def _reordered(T: PoseRows, order: Sequence[int]) -> PoseRows:
    """Rotations of the quaternions ``wxyz`` in another ``order``."""
    out = T.copy()
    out[:, :3, :3] = rotation_from_quat(quat_from_rotation(T[:, :3, :3])[:, order])
    return out


_MISREAD: tuple[tuple[str, Callable[[PoseRows], PoseRows]], ...] = (
    ("each was transposed; columns of the upper left 3 x 3 are the axes", _transposed),
    ("a quaternion w x y z was taken for x y z w", lambda T: _reordered(T, (1, 2, 3, 0))),
    ("a quaternion x y z w was taken for w x y z", lambda T: _reordered(T, (3, 0, 1, 2))),
)


def _other_moments(pairs: PosePairs) -> Iterator[_Guess]:
    A, B = pairs.T_base_tool, pairs.T_camera_board
    for late in range(1, min(_LATEST, len(pairs) - LEAST_POSES) + 1):
        for text, first, second in (("late", A[:-late], B[late:]), ("early", A[late:], B[:-late])):
            yield _Guess(
                f"They agree when the pictures are {late} {text}: arm and camera were not read at"
                " the same moments (a time offset, or one list lacks an entry)",
                PosePairs(first, second, pairs.setup),
            )


def stamped_late(pairs_at: Callable[[float], PosePairs]) -> float | None:
    """By how much the pictures' times are later than the pictures [s] (negative: earlier), where
    the poses agree clearly better then; None: they do not. ``pairs_at(s)``: the pairs with the
    arm's poses of ``s`` seconds before.
    """
    here = _rms_of(pairs_at(0.0), _STARTS)
    best, least = 0.0, here
    for step_s in (0.1, 0.02):
        around = best
        for k in range(-_SHIFTS, _SHIFTS + 1) if step_s == 0.1 else range(-5, 6):
            left = _rms_of(pairs_at(around + k * step_s), _STARTS)
            if left < least:
                best, least = around + k * step_s, left
    return best if abs(best) >= _LATE_S and least * _CLEARLY < here else None


def _rescaled(pairs: PosePairs) -> tuple[float, str] | None:
    """What is left over with the board's poses scaled, and the cause in words."""
    scale = _linear_scale(pairs)
    if not _SMALLEST < scale < 1.0 / _SMALLEST:
        return None
    # In the units of the poses as they are: small boards always leave little.
    return _rms_of(_times(pairs, scale)) / scale, _scaled(scale)


def _scaled(scale: float) -> str:
    for factor, text in ((1e-3, "millimetres"), (1e-2, "centimetres"), (0.0254, "inches")):
        if abs(scale / factor - 1.0) < 0.1:
            return f"The board's poses are in {text}, not in metres"
        if abs(scale * factor - 1.0) < 0.1:
            return f"The arm's poses are in {text}, not in metres"
    return (
        f"The board is {scale:.3f} times as large as its poses say: measure the side of its"
        " squares, on the print"
    )


def _moved(pairs: PosePairs) -> str:
    """Whether two parts of the list agree each by itself, but not with each other."""
    rows = thinned_rows(len(pairs), _TRIED)
    at, agree = _best_split(pairs.of(rows), range(LEAST_POSES, len(rows) - LEAST_POSES + 1))
    if not agree:
        return ""
    # Of many poses some were tried: the place is between two of them.
    low, high = int(rows[at - 1]) + 1, int(rows[at])
    begin, end = max(0, low - _TRIED // 2), min(len(pairs), high + _TRIED // 2)
    near = pairs.of(range(begin, end))
    at = low if low == high else begin + _best_split(near, range(low - begin, high - begin + 1))[0]
    return _parts(pairs, at - 1, at)


def _parts(pairs: PosePairs, before: int, after: int) -> str:
    return (
        f"Poses {pairs.name(0)} to {pairs.name(before)} agree, and so do {pairs.name(after)} to"
        f" {pairs.name(len(pairs) - 1)}, but not with each other:"
        " camera, board or the arm's base was moved in between; calibrate with one of the parts"
    )


def _best_split(pairs: PosePairs, places: Sequence[int]) -> tuple[int, bool]:
    """Where the parts before and after agree best, and whether clearly better than all together."""
    splits: list[tuple[float, float, int]] = []
    for k in places:
        parts = (range(k), range(k, len(pairs)))
        sizes = [sizes_of(pairs.of(part), _STARTS) for part in parts]
        most = max(float(np.quantile(part, _MOST)) for part in sizes)
        splits.append((most, float(np.concatenate(sizes).sum()), k))
    if not splits:
        return 0, False
    least = min(most for most, _, _ in splits)
    # Of the splits that most agree with, the one that leaves least altogether.
    at = min((total, k) for most, total, k in splits if most <= 2.0 * least)[1]
    return at, least * _CLEARLY <= float(np.quantile(sizes_of(pairs), _MOST))


def doubts(pairs: PosePairs, found: HandEye) -> tuple[str, ...]:
    """What fits and is hardly meant: sentences, none where all is as usual."""
    notes: list[str] = []
    if found.copies:
        notes.append(
            f"{len(found.copies)} of {len(pairs)} poses are copies of earlier ones, digit by digit"
            f" ({pairs.listed(found.copies)}), and were left out"
        )
    used = len(pairs) - len(found.outliers) - len(found.copies)
    if found.places < used:
        notes.append(
            f"{used} poses are of {found.places} places of the arm: the intervals count places"
        )
    behind = np.flatnonzero(pairs.T_camera_board[:, 2, 3] <= 0)
    if len(behind):
        notes.append(
            f"the board lies behind the camera in {len(behind)} of {len(pairs)} poses: a camera"
            " looks along +z (x right, y down), so that T_camera_board has z above 0. A camera of"
            " OpenGL looks along -z: multiply T_camera_board from the left by diag(1, -1, -1, 1)."
            " Or T_camera_board is inverted"
        )
    camera, board = (
        float(np.linalg.norm(T[:3, 3])) for T in (found.T_parent_camera, found.T_parent_board)
    )
    far, near = (camera, board) if found.setup == "eye-in-hand" else (board, camera)
    if far > max(_ON_TOOL_M, near):
        who, other = ("camera", "board") if found.setup == "eye-in-hand" else ("board", "camera")
        notes.append(
            f"the {who} would be {far:.2f} m from the tool, and the {other} {near:.2f} m from the"
            " arm's base. If that cannot be: T_base_tool and T_camera_board fit as well when both"
            " are inverted, or exchanged for each other"
        )
    return tuple(notes)


def pairs_of(document: Any, setup: str, where: str) -> PosePairs:
    """Pairs from a list of ``{"T_base_tool": 4x4, "T_camera_board": 4x4}``; DataError tells which
    entry is no pose, and why.
    """
    if not isinstance(document, list) or not document:
        raise DataError(
            f'{where}: expected a list of {{"T_base_tool": 4x4, "T_camera_board": 4x4}}, one entry'
            f" per pose, got {_kind(document)}"
        )
    entries = cast("list[Any]", document)
    columns = {
        key: _poses([_entry(entry, key, i, where) for i, entry in enumerate(entries)], key, where)
        for key in ("T_base_tool", "T_camera_board")
    }
    if setup not in ("eye-in-hand", "eye-to-hand"):
        raise DataError(f"setup is eye-in-hand or eye-to-hand, got '{setup}'")
    return PosePairs(columns["T_base_tool"], columns["T_camera_board"], setup)


def _entry(entry: Any, key: str, i: int, where: str) -> Any:
    values = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    if key not in values:
        there = sorted(values) if values else _kind(entry)
        raise DataError(f"{where}: pose {i} lacks '{key}'; there is {there}")
    return values[key]


# What else poses are written as, and what to do.
_SHAPES: dict[tuple[int, ...], str] = {
    (16,): "; write them as four rows of four",
    (3, 4): "; add the last row 0 0 0 1",
    (6,): "; a position and a rotation vector: convert it to a matrix",
    (7,): "; a position and a quaternion: convert it to a matrix",
}


def _words(value: Any) -> list[str | bool]:
    """What numpy would take for numbers without saying so."""
    words: list[str | bool] = []
    # Lists in lists may be deeper than Python calls functions.
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += cast("list[Any]", part)[::-1]
        elif isinstance(part, str | bool):
            words.append(part)
    return words


def _poses(values: Sequence[Any], key: str, where: str) -> PoseRows:
    out = np.empty((len(values), 4, 4))
    for i, value in enumerate(values):
        if _words(value):
            raise DataError(
                f"{where}: {key} of pose {i} must be 4 x 4 numbers, got {_words(value)!r} among"
                " them: numbers are written without quotes"
            )
        try:
            T = np.array(value, dtype=np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{where}: {key} of pose {i} is not 4 x 4 numbers (four rows of four): {error}"
            ) from error
        if T.shape != (4, 4) or not np.isfinite(T).all():
            raise DataError(
                f"{where}: {key} of pose {i} must be 4 x 4 finite numbers, got shape {T.shape}"
                f"{'' if np.isfinite(T).all() else ' with some that are not finite'}"
                f"{_SHAPES.get(T.shape, '')}"
            )
        out[i] = T
    _require_rigid(out, key, where)
    return out


def _require_rigid(T: PoseRows, key: str, where: str) -> None:
    last = np.abs(T[:, 3] - [0.0, 0.0, 0.0, 1.0]).max(axis=1)
    # Numbers that no rotation has are not multiplied: they may overflow.
    large = np.abs(T[:, :3, :3]).max(axis=(1, 2)) > 1.0 + _ROUND
    R = np.where(large[:, None, None], 0.0, T[:, :3, :3])
    handed = np.flatnonzero(np.linalg.det(R) < 0)
    if len(handed):
        raise DataError(
            f"{where}: {key} is left-handed (determinant -1) at poses {_listed(handed)}: a pose"
            " turns and moves, it never mirrors; turn the sign of one axis at their source"
        )
    off = np.abs(R @ R.transpose(0, 2, 1) - np.eye(3)).max(axis=(1, 2))
    wrong = np.flatnonzero((off > _ROUND) | (last > 1e-9))
    if len(wrong):
        raise DataError(
            f"{where}: {key} is no rigid transform at poses {_listed(wrong)}: the upper left 3 x 3"
            " must be a rotation (with five decimals and more, not scaled), the last row 0 0 0 1"
            " (positions stand in the last column)"
        )
    far: Floats = np.abs(T[:, :3, 3]).max(axis=1)
    if (far > _TOO_FAR_M).any():
        unit = (
            "millimetres"
            if float(np.median(far[far > _TOO_FAR_M])) > _MILLIMETRES_M
            else "centimetres or inches"
        )
        raise DataError(
            f"{where}: {key} is {far[far > _TOO_FAR_M][0]:.4g} m away at poses"
            f" {_listed(np.flatnonzero(far > _TOO_FAR_M))}: positions are in metres; these look"
            f" like {unit}"
        )


def _listed(rows: Sequence[int] | Rows) -> str:
    """Indices for a sentence: the first eight."""
    more = f" and {len(rows) - 8} more" if len(rows) > 8 else ""
    return f"{[int(i) for i in rows[:8]]}{more}"


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object with {sorted(cast('dict[str, Any]', value))[:8]}"
    return "an empty list" if value == [] else type(value).__name__
