"""A world says which bodies touch."""

from __future__ import annotations

import mujoco

from sim.env.contacts import TouchingEnv, touching
from sim.worlds import make_world

BOXES = """
<mujoco><worldbody><geom type="plane" size="1 1 .1"/>
<body name="b" pos="0 0 0.09"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
<body name="a" pos="0 0 0.28"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
<body name="far" pos="1 0 0.5"><freejoint/><geom type="box" size=".1 .1 .1"/></body>
</worldbody></mujoco>
"""


def test_bodies_that_overlap_touch() -> None:
    model = mujoco.MjModel.from_xml_string(BOXES)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    assert touching(model, data) == {("a", "b"), ("b", "world")}
    data.qpos[2] = data.qpos[9] = 2.0
    data.qpos[7] = 0.5
    mujoco.mj_forward(model, data)
    assert touching(model, data) == frozenset()


def test_scenes_can_say_it() -> None:
    env = make_world("pusht_naive")
    assert isinstance(env, TouchingEnv)
    env.close()
