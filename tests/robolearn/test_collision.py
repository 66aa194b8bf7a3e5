"""Distances between capsules, against MuJoCo and by hand."""

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.arm_capsules import APART, CAPSULES
from robolearn.arms import ARMS, PANDA, UR5E
from robolearn.collision import Capsule, CollisionModel, Plane, segment_distance
from robolearn.errors import ConfigError, DataError

POINT = st.tuples(*(st.floats(-1, 1),) * 3)
READY = {
    "ur5e": np.array([-0.3345, -1.3191, 2.4190, -2.6707, -1.5708, -0.3345]),
    "panda": np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785]),
}


@settings(max_examples=200)
@given(POINT, POINT, POINT, POINT)
def test_no_point_of_the_segments_is_nearer(a, b, c, d):
    p1, q1, p2, q2 = (np.array([v]) for v in (a, b, c, d))
    s = np.linspace(0, 1, 41)
    one, two = p1 + s[:, None] * (q1 - p1), p2 + s[:, None] * (q2 - p2)
    grid = np.linalg.norm(one[:, None] - two[None], axis=-1).min()
    found = segment_distance(p1, q1, p2, q2)[0]
    assert found <= grid + 1e-9
    # The grid is at most half a step of each segment away from the true closest points.
    step = (np.linalg.norm(q1 - p1) + np.linalg.norm(q2 - p2)) / 80
    assert found >= grid - step - 1e-9


def test_crossing_parallel_and_point_segments():
    p1 = np.array([[0, 0, 0], [0, 0, 0], [0, 0, 0.0]])
    q1 = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0.0]])
    p2 = np.array([[0.5, -1, 0.2], [2, 0.3, 0], [3, 4, 0.0]])
    q2 = np.array([[0.5, 1, 0.2], [5, 0.3, 0], [3, 4, 0.0]])
    expected = [0.2, np.hypot(1, 0.3), 5.0]
    np.testing.assert_allclose(segment_distance(p1, q1, p2, q2), expected, atol=1e-12)


def mujoco_distances(model: CollisionModel, q: np.ndarray) -> np.ndarray:
    """The same capsules as geoms of free bodies, measured by MuJoCo's own routine."""
    arm = model.arm
    frames = [*arm.frames(q), arm.fk(q)]
    geoms = ""
    for c in model.capsules:
        ends = [(frames[c.link] @ [*p, 1.0])[:3] for p in (c.start, c.end)]
        if np.allclose(*ends):
            geoms += f'<geom type="sphere" pos="{" ".join(map(str, ends[0]))}" size="{c.radius}"/>'
            continue
        fromto = " ".join(map(str, np.concatenate(ends)))
        geoms += f'<geom type="capsule" fromto="{fromto}" size="{c.radius}"/>'
    world = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
    data = mujoco.MjData(world)
    mujoco.mj_forward(world, data)
    return np.array(
        [
            mujoco.mj_geomDistance(world, data, int(i), int(j), 5.0, None)
            for i, j in zip(model._one, model._two, strict=True)
        ]
    )


@pytest.mark.parametrize("name", sorted(CAPSULES))
def test_distances_agree_with_mujoco(name):
    arm = ARMS[name]
    model = CollisionModel(arm, CAPSULES[name], apart=APART[name])
    rng = np.random.default_rng(0)
    for _ in range(15):
        q = rng.uniform(np.array(arm.low), np.array(arm.high))
        ours, theirs = model.distances(q), mujoco_distances(model, q)
        apart = theirs > 1e-4
        np.testing.assert_allclose(ours[apart], theirs[apart], atol=1e-6)
        assert np.all(ours[~apart] < 1.1e-4)


@pytest.mark.parametrize("name", sorted(READY))
def test_a_ready_arm_is_clear_and_a_folded_one_is_not(name):
    model = CollisionModel(ARMS[name], CAPSULES[name], apart=APART[name])
    assert model.distance(READY[name]) > 0.02


def test_a_ur_that_folds_into_itself_is_noticed_and_named():
    model = CollisionModel(UR5E, CAPSULES["ur5e"], apart=APART["ur5e"])
    folded = np.array([0.0, -1.57, 2.9, 1.0, 1.57, 0.0])
    clearance = model.clearance(folded)
    assert clearance.distance_m < 0.0
    assert {"forearm", "upper arm"} & set(clearance.between) or "wrist" in str(clearance.between)


def test_the_table_is_seen_by_all_but_the_tool():
    tool = Capsule(7, (0.0, 0.0, 0.0), (0.0, 0.0, 0.12), 0.015, "tool")
    capsules = (*CAPSULES["ur5e"], tool)
    table = Plane((0.0, 0.0, 1.0), 0.0)
    free = CollisionModel(UR5E, capsules, table=table, touching=("tool",), apart=APART["ur5e"])
    assert free.distance(READY["ur5e"]) > 0.02
    flat = np.array([0.0, 0.15, 0.1, 0.0, 1.57, 0.0])
    assert free.clearance(flat).between[1] == "table"
    assert free.clearance(flat).distance_m < 0.0
    touching = CollisionModel(UR5E, capsules, table=table, apart=APART["ur5e"])
    assert touching.clearance(READY["ur5e"]).between == ("tool", "table")


def test_obstacles_are_capsules_of_the_base():
    post = Capsule(0, (0.3, 0.0, 0.0), (0.3, 0.0, 1.0), 0.05, "post")
    model = CollisionModel(PANDA, (*CAPSULES["panda"], post), apart=APART["panda"])
    reached = np.array([0.0, 0.3, 0.0, -1.8, 0.0, 2.0, 0.8])
    assert model.clearance(reached).distance_m < 0.0
    assert "post" in model.clearance(reached).between


def test_bad_models_and_joints_are_refused():
    with pytest.raises(ConfigError, match="radius"):
        Capsule(0, (0.0, 0.0, 0.0), (0.0, 0.0, 1.0), float("nan"), "x")
    with pytest.raises(ConfigError, match="does not have"):
        CollisionModel(UR5E, [Capsule(9, (0.0, 0.0, 0.0), (0.0, 0.0, 1.0), 0.1, "x")])
    with pytest.raises(ConfigError, match="no capsules"):
        CollisionModel(UR5E, [])
    with pytest.raises(DataError, match="finite"):
        CollisionModel(UR5E, CAPSULES["ur5e"]).distances(np.full(6, np.nan))
