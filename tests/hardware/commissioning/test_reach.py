"""Poses for pictures are reached within the limits, clear of the table."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from hardware.cell.load import load_cell
from hardware.commissioning.excite import excitation_cell
from hardware.commissioning.reach import Reach, around, looking_at

CELL = Path("configs/hardware/lab_ur5e_capture.yaml")


def test_what_is_reached_is_inside_the_limits_and_clear_of_the_table() -> None:
    still = excitation_cell(load_cell(CELL))
    reach = Reach.of(still)
    assert still.joints is not None
    home = np.array(still.joints.home)
    start = reach.arm.fk(home)
    rng = np.random.default_rng(0)
    found = [
        q
        for T in itertools.islice(around(start, 0.0, rng, tilt_deg=16.0, shift_m=0.05), 12)
        if (q := reach.joints(T, home)) is not None
    ]
    assert len(found) >= 6
    assert reach.model is not None
    for q in found:
        assert (q >= reach.low).all()
        assert (q <= reach.high).all()
        assert reach.model.distance(q) > 0.02
    down = start.copy()
    down[2, 3] -= 0.3
    assert reach.joints(down, home) is None


def test_turns_are_about_the_point_ahead_and_cameras_look_at_theirs() -> None:
    rng = np.random.default_rng(1)
    T = next(around(np.eye(4), 0.4, rng, tilt_deg=20.0, shift_m=0.0))
    np.testing.assert_allclose(T @ [0.0, 0.0, 0.4, 1.0], [0.0, 0.0, 0.4, 1.0], atol=1e-12)
    target = np.array([0.5, 0.1, 0.0])
    for T in itertools.islice(looking_at(target, rng), 6):
        ahead = (target - T[:3, 3]) @ T[:3, :3]
        np.testing.assert_allclose(ahead[:2], 0.0, atol=1e-12)
        assert 0.3 <= ahead[2] <= 0.5
        assert T[2, 3] > 0.15
