import contextlib

import mujoco
import numpy as np
import pytest

from sim.scene.config import SignalConfig
from sim.scene.outlines import scene_outlines
from sim.worlds import make_world

SHAPES = """
<mujoco>
  <asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/></asset>
  <worldbody>
    <body name="thing" pos="1 2 3" euler="0 0 90">
      <freejoint/>
      <geom type="box" size=".1 .2 .3" mass="1"/>
      <geom type="sphere" size="5" group="3" mass="1"/>
      <geom type="sphere" size="5" rgba="1 1 1 0" mass="1"/>
      <body pos="1 0 0"><geom type="cylinder" size=".5 1" mass="1"/></body>
      <body pos="3 0 0"><joint/><geom type="box" size="1 1 1" mass="1"/></body>
    </body>
    <body name="lying" euler="90 0 0">
      <geom type="capsule" size=".1 .4"/>
      <geom type="ellipsoid" size=".1 .2 .3" pos="0 1 0"/>
      <geom type="mesh" mesh="wedge" pos="0 3 0"/>
      <geom type="plane" size="1 1 1"/>
    </body>
  </worldbody>
</mujoco>
"""


def outlined(body, kind="body_pose"):
    model = mujoco.MjModel.from_xml_string(SHAPES)
    return scene_outlines([SignalConfig(f"{body}/pose", kind, (body,), 20.0)], model)


def sides(polygon):
    points = np.array(polygon)
    return [points.min(axis=0).tolist(), points.max(axis=0).tolist()]


def test_a_thing_is_what_is_seen_of_it_and_of_what_is_fixed_to_it():
    (thing,) = outlined("thing")
    # In its own frame, wherever it stands and however it is turned.
    assert [sides(p) for p in thing.polygons] == [
        [[-0.1, -0.2], [0.1, 0.2]],
        [[0.5, -0.5], [1.5, 0.5]],
    ]
    assert (thing.name, len(thing.polygons[0]), thing.at) == ("thing", 4, None)


def test_shapes_that_lie_are_seen_from_above():
    capsule, ellipsoid, wedge = outlined("lying")[0].polygons
    assert sides(capsule) == [[-0.1, -0.5], [0.1, 0.5]]
    assert sides(ellipsoid) == [[-0.1, -0.3], [0.1, 0.3]]
    assert sorted(wedge) == [(0.0, -1.0), (0.0, 0.0), (1.0, 0.0)]


def test_joints_are_no_things():
    assert outlined("thing", kind="joint_position") == ()


@pytest.mark.parametrize("world", ["pick_place", "pick_place_ur5e"])
def test_the_cube_and_its_goal_are_drawn(world):
    with contextlib.closing(make_world(world)) as env:
        found = {outline.name: outline.polygons for outline in env.outlines()}
    assert list(found) == ["cube", "goal"]
    assert sides(found["cube"][0]) == [[-0.02, -0.02], [0.02, 0.02]]
