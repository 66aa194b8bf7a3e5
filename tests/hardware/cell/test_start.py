"""How far a start is from the one that was asked for, and when that is too far."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.cell.start import StartOffset, StartTolerance, require_start, start_offsets
from robolearn.errors import StartError


def test_offsets_are_of_places_headings_widths_and_joints():
    wanted = {
        "block/pose": (0.3, 0.2, 3.1),
        "tool/xy_table": (0.1, 0.1),
        "gripper/width": (0.04,),
        "arm/joint_position": (0.0, 1.0),
        "cube/pose": (0.1, 0.2, 0.02, 1.0, 0.0, 0.0, 0.0),
    }
    achieved = {
        "block/pose": np.array([0.303, 0.204, -3.1]),
        "tool/xy_table": np.array([0.1, 0.1]),
        "gripper/width": np.array([0.042]),
        "arm/joint_position": np.array([0.01, 0.95]),
        # 3 mm higher and turned by 0.1 rad; a quaternion and its opposite are one rotation.
        "cube/pose": -np.array([-0.1, -0.2, -0.023, np.cos(0.05), 0.0, 0.0, np.sin(0.05)]),
    }
    told = [offset.text() for offset in start_offsets(wanted, achieved)]
    assert told == [
        "block/pose off by 5.0 mm and 4.8 deg",
        "tool/xy_table off by 0.0 mm",
        "gripper/width off by 2.0 mm",
        "arm/joint_position off by 0.0500 rad",
        "cube/pose off by 3.0 mm and 5.7 deg",
    ]


def test_a_block_298_mm_away_is_refused_with_what_to_do():
    offset = StartOffset.of("block/pose", (0.1, 0.1, 0.0), np.array([0.398, 0.1, 0.0]))
    with pytest.raises(StartError, match=r"298.0 mm.*within 20 mm and 10 deg.*Place it again"):
        require_start("pusht-7", [offset], StartTolerance())


@given(
    st.floats(0.0, 0.3),
    st.floats(-np.pi, np.pi),
    st.floats(-3.0, 3.0),
    st.sampled_from([StartTolerance(), StartTolerance(0.05, 0.4)]),
)
def test_the_tolerance_is_a_border(distance_m, way, turn, tolerance):
    place = distance_m * np.array([np.cos(way), np.sin(way)])
    offset = StartOffset.of("block/pose", (0.0, 0.0, 0.0), np.array([*place, turn]))
    far = distance_m > tolerance.position_m + 1e-12 or abs(turn) > tolerance.angle_rad + 1e-12
    near = distance_m < tolerance.position_m - 1e-12 and abs(turn) < tolerance.angle_rad - 1e-12
    assert offset.beyond(tolerance) or not far
    assert not (near and offset.beyond(tolerance))


def test_what_is_not_a_number_is_too_far():
    for bad in (np.array([np.nan, 0.0, 0.0]), np.array([0.0, 0.0, np.nan])):
        assert StartOffset.of("block/pose", (0.0, 0.0, 0.0), bad).beyond(StartTolerance())
