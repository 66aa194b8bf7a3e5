"""What a scan has not seen of what stands on a table is known, and from where it would be seen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hardware.commissioning.reach import looking_from
from sim.reconstruction.table.unseen import Looked, eyes
from tests.boxes_seen import SIZE, K, depth_of

LOW, HIGH = np.array([0.06, -0.02, 0.0]), np.array([0.10, 0.04, 0.05])
MIDDLE = 0.5 * (LOW + HIGH)


def seen_from(turn_deg: float, up_deg: float = 40.0) -> np.ndarray:
    turn, up = np.radians([turn_deg, up_deg])
    away = np.array([np.cos(up) * np.cos(turn), np.cos(up) * np.sin(turn), np.sin(up)])
    return looking_from(MIDDLE + 0.4 * away, MIDDLE, 0.3)


def looked(*turns: float) -> Looked:
    """Twice from each side."""
    found = Looked(0.3)
    for turn in turns:
        for up_deg in (38.0, 44.0):
            T = seen_from(turn, up_deg)
            found.add(depth_of(LOW, HIGH, T), K, T)
    return found


def test_what_stands_is_where_it_stands() -> None:
    (thing,) = looked(0.0, 90.0, 180.0, 270.0).standing()
    np.testing.assert_allclose(thing.low, LOW, atol=0.008)
    np.testing.assert_allclose(thing.high, HIGH, atol=0.008)
    assert thing.radius_m == pytest.approx(0.036, abs=0.01)


def test_a_side_that_was_not_seen_is_seen_from_there_and_from_nowhere_else() -> None:
    rims = looked(0.0, 45.0, -45.0).rims()
    assert len(rims.at) > 30
    # Behind it, as seen by the cameras; free space is farther back.
    assert np.median(rims.at[:, 0]) < MIDDLE[0]
    assert rims.out[:, 0].mean() < -0.3
    behind = rims.shown(K, SIZE, seen_from(180.0))
    assert behind > 0.5 * len(rims.at)
    assert behind > 4 * rims.shown(K, SIZE, seen_from(0.0))
    # Not in the picture, it is not shown.
    aside = looking_from(np.array([-0.3, 0.0, 0.3]), np.array([-0.3, 0.3, 0.0]), 0.0)
    assert rims.shown(K, SIZE, aside) == 0
    drawn = itertools.islice(eyes(rims, np.random.default_rng(0), 0.3), 20)
    assert np.mean([eye[0] < LOW[0] for eye, _ in drawn]) > 0.8


def test_nothing_is_left_to_see_of_what_was_seen_from_all_sides() -> None:
    few = len(looked(0.0, 90.0, 180.0, 270.0).rims().at)
    assert few < 0.1 * len(looked(0.0).rims().at)


def test_one_picture_alone_does_not_count() -> None:
    """It may be the one that is kept back to judge by."""
    found = looked(0.0, 45.0, -45.0)
    before = len(found.rims().at)
    T = seen_from(180.0)
    found.add(depth_of(LOW, HIGH, T), K, T)
    assert len(found.rims().at) > 0.5 * before


def test_an_empty_table_asks_for_nothing() -> None:
    nothing = np.zeros(3)
    found = Looked(0.3)
    for turn in (0.0, 90.0, 200.0):
        T = seen_from(turn)
        found.add(depth_of(nothing, nothing, T), K, T)
    assert not found.standing()
    assert not len(found.rims().at)
