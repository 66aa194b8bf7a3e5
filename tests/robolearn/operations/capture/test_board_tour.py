"""Pictures of a board are taken from where they tell most; nothing is known of camera or board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robolearn.calibration.next_view import Outlook
from robolearn.geometry import pose_error
from tests.robolearn.operations.capture.drawn_board import DrawnTour


def test_chosen_poses_tell_more_than_as_many_that_are_far_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = DrawnTour("beside", 0, 16, tmp_path / "chosen")
    assert chosen.run() == ()
    (camera,) = chosen.found().cameras
    assert camera.place is not None
    away, angle = pose_error(camera.place.T, chosen.T_parent_camera)
    assert away < 0.002
    assert np.degrees(angle) < 0.3
    with monkeypatch.context() as patched:
        patched.setattr(Outlook, "of", classmethod(lambda cls, *_: None))
        apart = DrawnTour("beside", 0, 16, tmp_path / "apart")
        assert apart.run() == ()
    told, untold = chosen.least_sigma()[3:], apart.least_sigma()[3:]
    assert np.linalg.norm(told) < 0.75 * np.linalg.norm(untold)


def test_a_pose_that_was_blind_is_not_tried_again(tmp_path: Path) -> None:
    tour = DrawnTour("riding", 1, 12, tmp_path / "c")
    seen_by, look = [], tour.look

    def half_hidden(T: np.ndarray) -> object:
        # Something stands before the left side: what is reckoned to be seen there is not.
        view = look(T)
        if view is not None and len(tour.views) >= 8 and view.pixels[:, 0].mean() < 250:
            seen_by.append(T)
            return None
        return view

    tour.look = half_hidden  # type: ignore[method-assign]
    tour.run()
    assert len(tour.views) >= 12
    blind = [pose_error(a, b) for i, a in enumerate(seen_by) for b in seen_by[:i]]
    assert all(away / 0.1 + angle / 0.35 > 0.4 for away, angle in blind)
