"""The next picture of a board is the one that tells most; what cannot be seen is not proposed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from robolearn.calibration.boards import Board
from robolearn.calibration.next_view import Outlook
from robolearn.calibration.rig import RigCamera, RigView
from robolearn.calibration.rig_fit import Chain, State, information
from robolearn.geometry import Pose, inverse, pose, rot_x
from tests.robolearn.calibration.rigs import SIZE, TrueRig, draw_rig

BOARD = Board("charuco", (7, 5), 0.03, 0.022)


def wrist(count: int = 10) -> tuple[RigCamera, list[RigView], TrueRig]:
    cameras, views, true = draw_rig(0, count)
    return cameras[0], [v for v in views if v.camera == "wrist"], true


@pytest.fixture(scope="module")
def outlook() -> Outlook:
    camera, views, _ = wrist()
    found = Outlook.of(camera, views, BOARD)
    assert found is not None
    return found


def turn_sigma(views: list[tuple[Pose, object]], true: TrueRig) -> float:
    """What is left of the camera's orientation [rad], by what is true."""
    lens, X = true.cameras["wrist"]
    state = State({"c": lens}, {"c": X, "b": true.T_base_board}, frozenset())
    chains = [Chain(v, "c", "c", "b", T, np.eye(4)) for T, v in views]  # type: ignore[arg-type]
    variance = np.diag(np.linalg.inv(information(chains, state, 0.3)))
    return float(np.sqrt(variance[state.columns()["c"]][3:].sum()))


def test_the_first_pose_tells_more_than_the_last(outlook: Outlook) -> None:
    _, views, true = wrist()
    so_far = [(v.T_base_tool, v.view) for v in views if v.T_base_tool is not None]
    X = true.cameras["wrist"][1]
    left = []
    ranked = outlook.poses(60, np.random.default_rng(0))
    assert len(ranked) > 10
    for T in (ranked[0], ranked[-1]):
        view = outlook.sees(inverse(T @ X) @ true.T_base_board)
        assert view is not None
        left.append(turn_sigma([*so_far, (T, view)], true))
    assert left[0] < 0.9 * left[1]
    assert left[0] < turn_sigma(so_far, true)


def test_a_picture_that_joins_makes_the_next_tell_less(outlook: Outlook) -> None:
    T = outlook.poses(40, np.random.default_rng(1))[0]
    _, views, true = wrist()
    view = outlook.sees(inverse(T @ true.cameras["wrist"][1]) @ true.T_base_board)
    assert view is not None
    joined = outlook.joined(replace(views[0], name="next", view=view, T_base_tool=T))
    assert len(joined.views) == len(outlook.views) + 1
    again = joined.poses(40, np.random.default_rng(1))[0]
    assert np.abs(again - T).max() > 1e-3


def test_what_is_seen_of_a_board(outlook: Outlook) -> None:
    # Its upper left corner is the origin of what the camera sees from 0.4 m.
    before = pose(rot_x(np.pi), (-0.105, 0.075, 0.4))
    whole = outlook.sees(before)
    assert whole is not None
    assert len(whole.points) == 24
    aside = before.copy()
    aside[0, 3] -= 0.21
    part = outlook.sees(aside)
    assert part is not None
    assert 6 <= len(part.points) < 24
    assert ((part.pixels > 0) & (part.pixels < np.array(SIZE) - 1)).all()
    # Without tags the whole board is needed.
    assert replace(outlook, whole=True).sees(before) is not None
    assert replace(outlook, whole=True).sees(aside) is None
    flat = pose(rot_x(np.pi + 1.1), (-0.105, 0.0, 0.4))
    assert outlook.sees(flat) is None
    assert outlook.sees(pose(rot_x(np.pi), (-0.105, 0.075, -0.4))) is None


def test_a_lens_that_is_kept_is_no_unknown() -> None:
    camera, views, true = wrist()
    known = Outlook.of(replace(camera, lens=true.cameras["wrist"][0]), views, BOARD)
    assert known is not None
    assert list(known.state.columns()) == ["wrist", "board"]
    assert known.poses(20, np.random.default_rng(0))


def test_too_few_pictures_tell_nothing() -> None:
    camera, views, _ = wrist()
    assert Outlook.of(camera, views[:4], BOARD) is None
