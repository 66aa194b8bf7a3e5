"""Poses for pictures are reached within the limits, clear of the table."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np

from hardware.cell.load import load_cell
from hardware.commissioning.excite import excitation_cell
from hardware.commissioning.reach import Reach, around, looking_at
from robolearn.arms.collision import Capsule
from robolearn.operations.capture.plan import still_cell

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


def test_a_capture_has_room_to_look_from_the_far_side_and_excitation_has_not() -> None:
    cell = load_cell(CELL)
    wide, close = Reach.of(still_cell(cell)), Reach.of(excitation_cell(cell))
    assert still_cell(cell).rest == excitation_cell(cell).rest
    home = np.array(still_cell(cell).rest)
    turned = home + np.array([0.0, 0.0, 0.0, 0.0, 0.0, 2.5])
    assert close.joints(close.arm.fk(turned), home) is None
    q = wide.joints(wide.arm.fk(turned), home)
    assert q is not None
    np.testing.assert_allclose(q, turned, atol=1e-6)
    # Where nobody knows what the arm may run into, it stays near home.
    blind = dataclasses.replace(cell, collision=None)
    assert still_cell(blind).joints == excitation_cell(blind).joints


def test_what_stands_on_the_table_is_kept_clear_of() -> None:
    reach = Reach.of(still_cell(load_cell(CELL)))
    home = np.array(still_cell(load_cell(CELL)).rest)
    tip = (reach.arm.fk(home) @ [0.0, 0.0, reach.tool_m, 1.0])[:3]
    beside = tuple(np.add(tip, [0.0, 0.12, 0.0]).tolist())
    there = home + np.array([0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert reach.clear(home, there)
    thing = Capsule(0, beside, (beside[0], beside[1], beside[2] - 0.1), 0.03, "thing 1")
    assert not reach.beside([thing]).clear(home - 0.3 * np.eye(6)[0], there)
    assert reach.beside([]).clear(home, there)
