import numpy as np
import pytest

from hardware.teleop.device import Thing, View
from hardware.teleop.devices.keyboard import status_line
from hardware.teleop.session.seen import fingers_of, pictures_of, things_of, tool_of
from tests.mocks import observation

UP = [1.0, 0.0, 0.0, 0.0]
QUARTER = [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]


def test_tool_and_things_are_told_from_their_signals():
    seen = observation(
        0,
        tool__pose=np.array([0.1, 0.2, 0.3, *QUARTER]),
        cube__pose=np.array([0.0, 0.1, 0.02, *UP]),
        block__pose=np.array([0.25, 0.3, 0.5]),
        arm__joint_position=np.zeros(6),
        top__image=np.zeros((4, 6, 3), np.uint8),
    )
    tool = tool_of(seen)
    assert (tool.name, tool.at) == ("tool", (0.1, 0.2, 0.3))
    assert tool.yaw == pytest.approx(np.pi / 2)
    assert things_of(seen) == (
        Thing("cube", (0.0, 0.1, 0.02)),
        Thing("block", (0.25, 0.3), 0.5),
    )
    assert [(n, p.shape) for n, p in pictures_of(seen).items()] == [("top", (4, 6, 3))]


def test_fingers_are_told_as_they_are_measured():
    assert fingers_of(observation(0, gripper__width=np.array([0.041]))) == 0.041
    assert fingers_of(observation(0, arm__joint_position=np.zeros(6))) is None


def test_a_tool_on_the_table_has_no_height():
    assert tool_of(observation(0, tool__xy_table=np.array([0.1, 0.2]))) == Thing("tool", (0.1, 0.2))
    assert tool_of(observation(0, arm__joint_position=np.zeros(6))) is None


def test_the_terminal_tells_the_same():
    view = View("running", Thing("tool", (0.1, 0.2)), (Thing("block", (0.25, 0.3), 0.5),))
    assert "mm: tool 100 200  block 250 300 29 deg" in status_line(view)


def test_the_heading_of_a_tool_that_points_down_is_that_of_its_x_axis():
    down = np.array([0.0, 0.0, 0.1, 0.0, np.cos(0.2), np.sin(0.2), 0.0])
    assert tool_of(observation(0, tool__pose=down)).yaw == pytest.approx(0.4)


@pytest.mark.parametrize("values", [np.full(3, np.nan), np.full(7, np.nan), np.zeros(7)])
def test_a_goal_that_nobody_named_is_nowhere(values):
    assert things_of(observation(0, goal__pose=values)) == ()
