"""Distances between capsules, against MuJoCo and by hand."""

import importlib.util
from pathlib import Path

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.arms.collision import Capsule, CollisionModel, Plane
from robolearn.arms.models import APART, ARMS, CAPSULES, PANDA, UR5E
from robolearn.errors import ConfigError, DataError
from tests.robolearn.arms.segments import segment_distance

POINT = st.tuples(*(st.floats(-1, 1),) * 3)
PLANE = st.sampled_from((Plane((0.0, 0.0, 1.0), 0.0), Plane((0.6, 0.0, 0.8), -0.3)))
READY = {
    "ur5e": np.array([-0.3345, -1.3191, 2.4190, -2.6707, -1.5708, -0.3345]),
    "panda": np.array([0.0, -0.785, 0.0, -2.356, 0.0, 1.571, 0.785]),
    "xarm7": np.array([0.0, -0.6, 0.0, 0.8, 0.0, 1.4, 0.0]),
    "so101": np.array([0.0, -0.9, 0.9, 0.6, 0.0]),
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


def textbook_distances(model: CollisionModel, q: np.ndarray, plane: Plane) -> np.ndarray:
    """Pairs, then the table: every capsule's ends one by one."""
    frames = [*model.arm.frames(q), model.arm.fk(q)]
    ends = np.array(
        [[(frames[c.link] @ [*p, 1.0])[:3] for p in (c.start, c.end)] for c in model.capsules]
    )
    radius = np.array([c.radius for c in model.capsules])
    one, two = np.array(model.pairs).T
    pairs = segment_distance(ends[one, 0], ends[one, 1], ends[two, 0], ends[two, 1])
    above = [k for k, c in enumerate(model.capsules) if c.link > 1]
    heights = (ends @ np.array(plane.normal)).min(axis=1) - plane.offset - radius
    return np.concatenate([pairs - radius[one] - radius[two], heights[above]])


@settings(max_examples=40)
@given(st.lists(st.tuples(POINT, POINT), min_size=1, max_size=3), st.integers(0, 99), PLANE)
def test_all_distances_at_once_are_those_of_the_textbook(things, seed, plane):
    obstacles = [Capsule(0, a, b, 0.05, f"thing {k}") for k, (a, b) in enumerate(things)]
    # A ball, one along the base's axis, and one that is parallel to the upper arm.
    obstacles.append(Capsule(0, (0.3, 0.1, 0.2), (0.3, 0.1, 0.2), 0.1, "ball"))
    obstacles.append(Capsule(8 - 1, (0.0, 0.0, 0.0), (0.0, 0.0, 0.12), 0.02, "tool"))
    model = CollisionModel(UR5E, [*CAPSULES["ur5e"], *obstacles], table=plane)
    rng = np.random.default_rng(seed)
    rows = (*rng.uniform(-np.pi, np.pi, (2, 6)), np.zeros(6))
    expected = [textbook_distances(model, q, plane) for q in rows]
    np.testing.assert_allclose(model.distances_rows(rows), expected, rtol=0, atol=1e-9)


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
    return np.array([mujoco.mj_geomDistance(world, data, i, j, 5.0, None) for i, j in model.pairs])


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


# Outermost points of the meshes of TheRobotStudio/SO-ARM100, Simulation/SO101, by link [mm].
SO101_POINTS = {
    0: (
        (-35, -8, 30),
        (-22, 37, 30),
        (-12, -48, 30),
        (-10, -49, 45),
        (-5, 47, 65),
        (-3, 47, 98),
        (6, -36, 88),
        (8, 6, 102),
        (35, -36, 88),
        (44, 47, 98),
        (53, -48, 30),
        (64, 37, 30),
        (76, -8, 30),
    ),
    1: (
        (-51, -19, -37),
        (-46, -18, 35),
        (-46, 19, 35),
        (-43, -26, -37),
        (-43, -14, -61),
        (-43, 15, -61),
        (-40, -14, -64),
        (-35, -14, 46),
        (-21, 15, -64),
        (-21, 29, -26),
        (-18, -14, -61),
        (7, -9, 45),
        (8, 8, 45),
        (12, -1, -7),
    ),
    2: (
        (-130, -11, -2),
        (-130, 10, -5),
        (-129, 10, 42),
        (-128, 12, -2),
        (-125, -35, 4),
        (-125, -35, 33),
        (-122, -38, 4),
        (-62, 7, -14),
        (-26, -6, 54),
        (8, -8, -12),
        (8, -8, 48),
        (8, 8, -12),
        (8, 8, 48),
        (12, -1, -8),
    ),
    3: (
        (-145, -4, 4),
        (-145, -4, 33),
        (-145, 15, 4),
        (-145, 15, 33),
        (-119, 22, 36),
        (-118, -15, 0),
        (-41, -7, -12),
        (-21, -4, 52),
        (6, -10, 40),
        (6, 10, 40),
        (8, -8, -10),
        (8, 8, -10),
        (12, -1, -7),
    ),
    4: (
        (-20, -48, 10),
        (-15, -66, 37),
        (-15, -62, 53),
        (-14, -62, 53),
        (-14, -48, 1),
        (-10, -34, -9),
        (-8, 7, 43),
        (-8, 8, -7),
        (-1, 12, 36),
        (7, 8, -7),
        (8, 8, 43),
        (14, -62, 53),
        (14, -47, 0),
        (16, -57, 18),
    ),
    5: (
        (-35, -13, -8),
        (-34, -15, -7),
        (-34, 15, -7),
        (-13, -2, -103),
        (-12, 0, -104),
        (-12, 2, -103),
        (-12, 24, -28),
        (-8, -3, -103),
        (-8, 2, -103),
        (-3, -12, 1),
        (3, -28, -11),
        (26, 21, -6),
        (27, -21, -6),
        (30, -14, -33),
    ),
}
# Frames of robosuite's models at zero angles, seen from the base of ours.
TURNED = {"ur5e": np.diag([-1.0, -1.0, 1.0]), "panda": np.eye(3), "xarm7": np.eye(3)}


def outside(name, link, points):
    """How far points of a link stick out of its capsules and its neighbours' at zero angles [m]."""
    frames = ARMS[name].frames(np.zeros(ARMS[name].dof))
    seen = points @ frames[link][:3, :3].T + frames[link][:3, 3]
    found = np.full(len(points), np.inf)
    for c in CAPSULES[name]:
        if abs(c.link - link) <= 1:
            ends = [(frames[c.link] @ [*p, 1.0])[:3] for p in (c.start, c.end)]
            start, end = (np.broadcast_to(p, points.shape) for p in ends)
            found = np.minimum(found, segment_distance(start, end, seen, seen) - c.radius)
    return float(found.max())


def meshes(name):
    """Vertices of the meshes of robosuite's model by link, in the frames of our kinematics."""
    spec = importlib.util.find_spec("robosuite")
    if spec is None or spec.origin is None:
        pytest.skip("robosuite, whose meshes these are, is not installed")
    file = Path(spec.origin).parent / "models" / "assets" / "robots" / name / "robot.xml"
    world = mujoco.MjModel.from_xml_path(str(file))
    data = mujoco.MjData(world)
    mujoco.mj_forward(world, data)
    frames = ARMS[name].frames(np.zeros(ARMS[name].dof))
    chain = [int(world.jnt_bodyid[j]) for j in range(world.njnt)]
    for geom in range(world.ngeom):
        mesh, body = int(world.geom_dataid[geom]), int(world.geom_bodyid[geom])
        if world.geom_type[geom] != mujoco.mjtGeom.mjGEOM_MESH:
            continue
        link = chain.index(body) + 1 if body in chain else 0
        at = world.mesh_vertadr[mesh]
        vertices = world.mesh_vert[at : at + world.mesh_vertnum[mesh]]
        turn = data.geom_xmat[geom].reshape(3, 3)
        seen = (vertices @ turn.T + data.geom_xpos[geom]) @ TURNED[name].T
        yield link, (seen - frames[link][:3, 3]) @ frames[link][:3, :3]


@pytest.mark.parametrize(("name", "margin_m"), [("xarm7", 0.0), ("ur5e", 0.015), ("panda", 0.022)])
def test_what_the_capsules_leave_out_of_the_meshes(name, margin_m):
    worst = {}
    for link, points in meshes(name):
        worst[link] = max(worst.get(link, -1.0), outside(name, link, points))
    if name == "panda":
        # The cables' socket behind the base, and a camera's bracket on the flange.
        del worst[0], worst[7]
    assert max(worst.values()) <= margin_m, worst


@pytest.mark.parametrize("link", sorted(SO101_POINTS))
def test_the_capsules_cover_the_so101(link):
    points = 1e-3 * np.array(SO101_POINTS[link], dtype=np.float64)
    assert outside("so101", link, points) <= 0.0005, "the points are rounded to 1 mm"


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


def test_a_plane_whose_normal_is_no_direction_is_refused():
    with pytest.raises(ConfigError, match="length 1"):
        Plane((0.0, 0.0, 2.0), 0.0)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_told_and_never_near_nor_far(bad):
    model = CollisionModel(UR5E, CAPSULES["ur5e"])
    broken = np.array([0.0, 0.0, bad, 0.0, 0.0, 0.0])
    with pytest.raises(DataError, match="finite joint positions"):
        model.clearance(broken)
    with pytest.raises(DataError, match="6 finite"):
        model.clearance(np.zeros(5))
