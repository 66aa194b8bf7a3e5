"""The way from a pose to joint set-points: pure, at 100 Hz, in the limits whatever is asked for."""

import dataclasses

import mujoco
import numpy as np
import pytest

from robolearn.arms.differential import DampedStep, Limited, smallest_gradient
from robolearn.arms.models import PANDA, UR5E
from robolearn.arms.tool_commands import TOOL_COMMANDS
from robolearn.arms.tool_drive import ToolDrive
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.arms.tool_path import ToolPathLimits
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import inverse, pose, pose_error, rot_z, rotation_from_rotvec
from sim.scene.load import SCENES

HOME = np.array([2.8717, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407])
PANDA_HOME = np.array([0.0, -0.0418, 0.0, -2.3343, 0.0, 2.2925, 0.7854])
TABLE = pose(rot_z(0.0), (0.5, 0.0, 0.0))
TIP = pose(None, (0.0, 0.0, 0.145))
UR = ToolKinematics(UR5E, TABLE, TIP)
WIDE = ToolPathLimits((-1.4, -1.4, -1.0), (1.0, 1.4, 1.4))
RATE_HZ = 100.0


def down(x, y, z, yaw):
    return TOOL_COMMANDS["xyz_yaw"].target(np.array([x, y, z, yaw]), np.eye(4))


def drive(limits=WIDE, kinematics=UR, q=HOME):
    made = ToolDrive(kinematics, limits, 1.0 / RATE_HZ)
    made.reset(np.array(q))
    return made


def led(made, T, seconds):
    """Set-points on the way to a pose ``[n, dof]``, the first where it was."""
    made.follow(T)
    rows = [made.q, *(made.advance() for _ in range(round(seconds * RATE_HZ)))]
    within(made, np.array(rows))
    return np.array(rows)


def within(made, q):
    """Every limit, of joints and tool, over set-points ``[n, dof]``."""
    limits, arm = made.limits, made.kinematics.arm
    margin = limits.joint_margin - 1e-9
    assert np.all((q >= np.array(arm.low) + margin) & (q <= np.array(arm.high) - margin))
    assert np.abs(np.diff(q, axis=0)).max() * RATE_HZ <= 1.001 * limits.max_joint_speed
    bent = np.abs(np.diff(q, n=2, axis=0)).max() * RATE_HZ**2
    assert bent <= 1.01 * limits.max_joint_acceleration
    T = made.kinematics.pose_rows(q)
    place = T[:, :3, 3]
    assert np.linalg.norm(np.diff(place, axis=0), axis=1).max() * RATE_HZ <= 1.01 * limits.max_speed
    push = np.linalg.norm(np.diff(place, n=2, axis=0), axis=1).max() * RATE_HZ**2
    assert push <= 1.1 * limits.max_acceleration
    turn = max(pose_error(a, b)[1] for a, b in zip(T[:-1:5], T[1::5], strict=False)) * RATE_HZ
    assert turn <= 1.01 * limits.max_rotation_speed


def smallest(made, q):
    return min(np.linalg.svd(made.kinematics.pose_jacobian(row)[1])[1][-1] for row in q[::10])


@pytest.mark.parametrize("kinematics", [UR, ToolKinematics(PANDA, TABLE, TIP)])
def test_pose_and_jacobian_of_the_tip_agree_with_each_other_and_with_the_arm(kinematics):
    turned = dataclasses.replace(kinematics, T_base_frame=pose(rot_z(0.7), (0.3, -0.2, 0.1)))
    q = np.linspace(-0.5, -1.2, turned.arm.dof) * (1 + np.arange(turned.arm.dof) % 2)
    T, J = turned.pose_jacobian(q)
    expected = np.linalg.inv(turned.T_base_frame) @ turned.arm.fk(q) @ TIP
    np.testing.assert_allclose(T, expected, atol=1e-12)
    np.testing.assert_allclose(turned.pose(q), expected, atol=1e-12)
    np.testing.assert_allclose(turned.pose_rows(q[None])[0], expected, atol=1e-12)
    step = np.zeros((6, turned.arm.dof))
    for k, e in enumerate(1e-6 * np.eye(turned.arm.dof)):
        more, less = turned.pose(q + e), turned.pose(q - e)
        R = more[:3, :3] @ less[:3, :3].T
        step[:3, k] = (more[:3, 3] - less[:3, 3]) / 2e-6
        step[3:, k] = np.array([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]]) / 4e-6
    np.testing.assert_allclose(J, step, atol=1e-7)


@pytest.mark.parametrize("kinematics", [UR, ToolKinematics(PANDA, TABLE, TIP)])
def test_the_gradient_of_the_smallest_singular_value_is_its_derivative(kinematics):
    q = np.linspace(0.3, 1.1, kinematics.arm.dof)

    def value(at):
        return np.linalg.svd(kinematics.pose_jacobian(at)[1])[1][-1]

    J = kinematics.pose_jacobian(q)[1]
    U, _, Vt = np.linalg.svd(J, full_matrices=False)
    found = smallest_gradient(J, U[:, -1].copy(), Vt[-1].copy())
    steps = 1e-6 * np.eye(len(q))
    np.testing.assert_allclose(
        found, [(value(q + e) - value(q - e)) / 2e-6 for e in steps], atol=1e-6
    )


def test_a_pose_is_reached_in_a_straight_line():
    made = drive()
    start = made.kinematics.pose(HOME)[:3, 3]
    goal = down(0.1, -0.2, 0.1, 0.4)
    q = led(made, goal, 2.2)
    assert pose_error(made.kinematics.pose(q[-1]), goal)[0] < 5e-4
    place = made.kinematics.pose_rows(q)[:, :3, 3] - start
    along = (goal[:3, 3] - start) / np.linalg.norm(goal[:3, 3] - start)
    assert np.abs(place - np.outer(place @ along, along)).max() < 5e-4
    assert made.limited is Limited.NONE


def test_the_way_is_the_same_at_a_scenes_rate_and_at_a_supervisors():
    goal = down(0.1, 0.2, 0.4, 0.5)
    slow, fast = drive(), ToolDrive(UR, WIDE, 0.002)
    fast.reset(HOME)
    for made in (slow, fast):
        made.follow(goal)
    for _ in range(30):
        a, b = [slow.advance() for _ in range(2)][-1], [fast.advance() for _ in range(10)][-1]
        assert pose_error(UR.pose(a), UR.pose(b))[0] < 3e-3
        np.testing.assert_allclose(a, b, atol=0.01)


@pytest.mark.parametrize("bend", [-0.3, 0.3])
def test_a_wrist_singularity_is_not_entered_from_either_side_and_is_left_again(bend):
    q = np.array([*HOME[:4], bend, HOME[5]])
    made = drive(q=q)
    begin, beyond = (UR.pose(np.array([*q[:4], b, q[5]])) for b in (bend, -bend))
    inwards = led(made, beyond, 2.0)
    assert Limited.SINGULAR in made.limited
    assert smallest(made, inwards) > 0.027
    assert np.all(inwards[:, 4] * bend > 0.0)
    led(made, begin, 2.5)
    assert pose_error(UR.pose(made.q), begin)[0] < 2e-3
    assert made.q[4] == pytest.approx(bend, abs=0.05)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_an_arm_that_stands_in_a_singularity_can_leave_it(side):
    q = np.array([*HOME[:4], 0.0, HOME[5]])
    made = drive(q=q)
    out = UR.pose(np.array([*q[:4], side * 0.5, q[5]]))
    led(made, out, 3.0)
    assert made.smallest > 0.06
    assert pose_error(UR.pose(made.q), out)[0] < 5e-3


def test_beyond_its_reach_the_arm_slides_along_and_comes_back():
    made = drive()
    stretched = UR.pose(led(made, down(0.9, 0.0, 0.3, 0.0), 2.5)[-1])[:3, 3]
    assert 0.2 < stretched[0] < 0.45
    assert Limited.SINGULAR in made.limited
    assert UR.pose(led(made, down(0.9, 0.6, 0.3, 0.0), 1.5)[-1])[1, 3] > 0.1
    back = led(made, down(0.0, 0.0, 0.3, 0.0), 3.0)
    np.testing.assert_allclose(UR.pose(back[-1])[:3, 3], [0.0, 0.0, 0.3], atol=2e-3)


def test_at_a_joints_margin_the_tool_stops_turning_and_goes_on_travelling():
    q = HOME.copy()
    q[5] = UR5E.high[5] - 0.3
    made = drive(q=q)
    T = UR.pose(q)
    # The last joint turns the tool about its own axis.
    beyond = T.copy()
    beyond[:3, :3] = T[:3, :3] @ rot_z(0.8)
    turned = led(made, beyond, 1.5)
    assert UR5E.high[5] - WIDE.joint_margin - turned[-1, 5] == pytest.approx(0.0, abs=0.01)
    assert Limited.MARGIN in made.limited
    # To one side the arm's pan turns the tool further, which the last joint cannot undo any more.
    J = UR.pose_jacobian(made.q)[1]
    side = -np.sign(np.linalg.solve(J, np.array([0.0, 1.0, 0.0, 0.0, 0.0, 0.0]))[5])
    beyond[1, 3] += side * 0.1
    moved = led(made, beyond, 1.5)
    np.testing.assert_allclose(UR.pose(moved[-1])[:3, 3], beyond[:3, 3], atol=3e-3)
    led(made, T, 2.0)
    assert made.q[5] == pytest.approx(q[5], abs=0.03)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_asked_for_the_limits_hold_and_braking_ends_where_it_was_told(seed):
    """Jumps, walks and pauses; tilting tools; two arms."""
    rng = np.random.default_rng(seed)
    arm = ToolKinematics(PANDA, TABLE, TIP) if seed == 3 else UR
    home = PANDA_HOME if seed == 3 else HOME
    jerk = 20.0 if seed == 2 else None
    made = drive(dataclasses.replace(WIDE, max_jerk=jerk), arm, home)
    rows = [made.q]
    T = arm.pose(home)
    for _ in range(16):
        if rng.random() < 0.3:
            T = down(*rng.uniform([-0.4, -0.5, 0.0, -4.0], [0.5, 0.5, 0.7, 4.0]))
        tilt = rotation_from_rotvec(rng.normal(0.0, 0.2, 3))
        T = pose(tilt @ T[:3, :3], T[:3, 3] + rng.normal(0.0, 0.03, 3))
        made.follow(T)
        pauses = rng.random() < 0.1
        if pauses:
            told = made.rest(made.q)
        rows += [made.brake() if pauses else made.advance() for _ in range(100 if pauses else 15)]
        if pauses:
            assert made.still
            np.testing.assert_allclose(told, rows[-1], atol=0.08)
    within(made, np.array(rows))


@pytest.mark.parametrize("seed", [20, 23])
def test_near_singularities_the_tool_is_no_faster_and_no_rougher(seed):
    """From one bent pose to another at 500 Hz; these two once led to a stop."""
    rng = np.random.default_rng(seed)
    speed, push, turn, joint = (rng.choice(v) for v in _CHOICES)
    frequency = float(rng.choice([5.0, 20.0, 40.0]))
    limits = dataclasses.replace(
        WIDE,
        max_speed=float(speed),
        max_acceleration=float(push),
        max_rotation_acceleration=float(turn),
        max_joint_speed=float(joint),
        natural_frequency=frequency,
    )
    low, high = np.array(UR5E.low) + 0.2, np.array(UR5E.high) - 0.2
    begin = np.clip(HOME + rng.normal(0.0, 0.4, 6), low, high)
    made = ToolDrive(UR, limits, 0.002)
    made.reset(begin)
    rows, T = [made.q], UR.pose(begin)
    for _ in range(12):
        if rng.random() < 0.5:
            T = UR.pose(np.clip(begin + rng.normal(0.0, 0.8, 6), low, high))
        made.follow(T)
        rows += [made.advance() for _ in range(120)]
    place = UR.pose_rows(np.array(rows))[:, :3, 3]
    fastest = np.linalg.norm(np.diff(place, axis=0), axis=1).max() * 500.0
    assert fastest <= 1.01 * limits.max_speed
    hardest = np.linalg.norm(np.diff(place, n=2, axis=0), axis=1).max() * 500.0**2
    assert hardest <= 1.1 * limits.max_acceleration


_CHOICES = ([0.05, 0.25, 0.6], [0.5, 1.0, 3.0], [1.0, 3.0, 8.0], [0.3, 1.0, 2.0])


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="joint_margin"):
        drive(dataclasses.replace(WIDE, joint_margin=4.0))
    with pytest.raises(ConfigError, match="max_speed"):
        dataclasses.replace(WIDE, max_speed=float("nan"))
    with pytest.raises(ConfigError, match="below"):
        dataclasses.replace(WIDE, workspace_low=(2.0, 0.0, 0.0))
    with pytest.raises(DataError, match="joint limits"):
        drive(q=np.array(UR5E.high))


@pytest.mark.parametrize(
    ("scene", "arm", "home", "tip"),
    [
        ("ur5e_table", UR5E, HOME, TIP),
        ("panda_table", PANDA, PANDA_HOME, pose(rot_z(-np.pi / 4), (0.0, 0.0, 0.1034))),
    ],
    ids=["ur5e", "panda"],
)
def test_a_regular_step_is_that_of_a_quadratic_program(scene, arm, home, tip):
    """mink (0.0.5 and later) as the oracle, at random poses: the same joint speeds where nothing
    limits them; of an arm with a joint to spare the smallest ones.
    """
    mink = pytest.importorskip("mink", reason="the oracle is not installed")
    solvers = pytest.importorskip("qpsolvers").available_solvers
    if not solvers:
        pytest.skip("no solver of quadratic programs is installed")
    model = mujoco.MjModel.from_xml_path(str(SCENES / scene / "scene.xml"))
    configuration = mink.Configuration(model)
    at = [int(model.joint(name).qposadr[0]) for name in arm.joint_names]
    columns = [int(model.joint(name).dofadr[0]) for name in arm.joint_names]
    base = configuration.get_transform_frame_to_world("base", "body").as_matrix()
    kinematics = ToolKinematics(arm, inverse(base), tip)
    task = mink.FrameTask("tool", "site", position_cost=1.0, orientation_cost=1.0)
    rng, dt, compared = np.random.default_rng(5), 0.01, 0
    low, high = np.array(arm.low) + 0.3, np.array(arm.high) - 0.3
    step = DampedStep(arm.low, arm.high, (9.0,) * arm.dof, (99.0,) * arm.dof)
    while compared < 20:
        q = np.clip(home + rng.normal(0.0, 0.5, arm.dof), low, high)
        T, J = kinematics.pose_jacobian(q)
        if smallest_of(J) < 0.12:
            # Motions are damped and held back below; the oracle knows no singularities.
            continue
        full = np.zeros(model.nq)
        full[at] = q
        configuration.update(full)
        # A small step, in the tool's axes.
        begin, change = (
            configuration.get_transform_frame_to_world("tool", "site"),
            rng.normal(size=6),
        )
        np.testing.assert_allclose(begin.as_matrix(), T, atol=1e-6)
        task.set_target(begin.multiply(mink.SE3.exp(1e-4 * change)))
        found = mink.solve_ik(configuration, [task], dt, solver=solvers[0], damping=1e-12)[columns]
        twist = 1e-4 / dt * np.concatenate([T[:3, :3] @ change[:3], T[:3, :3] @ change[3:]])
        qd = step.speeds(q, J, twist).qd
        assert np.linalg.norm(qd) > 1e-3
        np.testing.assert_allclose(qd, found, atol=2e-4)
        compared += 1


def smallest_of(J):
    return float(np.linalg.svd(J, compute_uv=False)[-1])
