"""The attempt in small: curves and strips, at any length."""

import numpy as np
import pytest

from hardware.teleop.session.seen import CURVES, PICTURES, POINTS, WIDTH_PX, QuickLook, thinned
from tests.mocks import observation


def seen(k, **values):
    own = {"arm__joint_position": np.full(7, 0.01 * k), "gripper__width": np.array([0.08])}
    picture = np.full((48, 64, 3), min(k, 255), np.uint8)
    return observation(k, **{**own, "top__image": picture, **values})


@pytest.mark.parametrize("ticks", [1, 3, 40, 500])
def test_an_attempt_of_any_length_is_a_few_points_and_pictures(ticks):
    small = QuickLook()
    for k in range(ticks):
        small.add(seen(k))
    look = small.look
    assert [curve.name for curve in look.curves] == [
        *(f"joint {k}" for k in range(1, 8)),
        "fingers",
    ]
    first = look.curves[0].values
    assert len(first) == min(ticks, POINTS)
    assert (first[0], first[-1]) == (0.0, pytest.approx(0.01 * (ticks - 1)))
    ((name, strip),) = look.strips
    assert name == "top"
    assert len(strip) == min(ticks, PICTURES)
    assert all(picture.shape == (48, 64, 3) for picture in strip)
    grey = [int(picture[0, 0, 0]) for picture in strip]
    assert grey == sorted(grey)
    # From the first to one that is not long ago.
    assert grey[0] == 0
    assert grey[-1] >= min(255, 0.75 * (ticks - 1))


def test_pictures_are_small_in_their_own_shape_and_the_same_until_something_is_added():
    small = QuickLook()
    small.add(seen(1, top__image=np.zeros((480, 640, 3), np.uint8)))
    ((_, (picture,)),) = small.look.strips
    assert picture.shape == (54, WIDTH_PX, 3)
    assert thinned(picture, 8, 12).shape == (8, 12, 3)
    assert small.look is small.look
    before = small.look
    small.add(seen(2))
    assert small.look is not before


def test_a_new_attempt_begins_empty_and_what_is_no_number_is_a_gap():
    small = QuickLook()
    small.add(seen(1))
    small.begin()
    assert small.look.curves == small.look.strips == ()
    small.add(seen(2, arm__joint_position=np.array([np.nan, np.inf, 1.0])))
    values = [curve.values[0] for curve in small.look.curves[:3]]
    assert np.isnan(values[:2]).all()
    assert values[2] == 1.0


def test_two_arms_are_cut_and_an_arm_without_joints_shows_its_tool():
    small = QuickLook()
    small.add(seen(1, arm__joint_position=np.zeros(14)))
    assert len(small.look.curves) == CURVES
    small.begin()
    small.add(observation(0, tool__pose=np.array([0.1, 0.2, 0.3, 1.0, 0.0, 0.0, 0.0])))
    assert [curve.name for curve in small.look.curves] == ["tool x", "tool y", "tool z"]
