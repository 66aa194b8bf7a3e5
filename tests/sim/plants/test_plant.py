"""The lab's workcell, by PyBullet and by MuJoCo."""

import numpy as np
import pytest

from hardware.emulators.plant import Plant
from robolearn.arms.limiter import TableMapping
from robolearn.arms.models import UR5E
from robolearn.errors import ConfigError, DataError
from robolearn.pusht import GOAL
from sim.plants.plant_view import PlantView
from sim.plants.pusht import PlantConfig, PyBulletPlant
from sim.plants.scene import ScenePlant, ScenePlantConfig

CONFIG = PlantConfig()
HOME = np.array(CONFIG.home)
DT = 0.002
WORKCELL = TableMapping.level(
    CONFIG.origin_m,
    CONFIG.heading_rad,
    tool_length_m=CONFIG.tool_length_m,
    tip_height_m=0.005,
    tool_yaw=np.pi,
    home=CONFIG.home,
)


SCENE = ScenePlantConfig(objects={"block": (0.256, 0.256, 0.0)})
WORLDS = {
    "pybullet": lambda seed=0: PyBulletPlant(CONFIG, seed),
    "mujoco": lambda seed=0: ScenePlant(SCENE, seed),
}


@pytest.fixture(params=list(WORLDS))
def world(request):
    return request.param


@pytest.fixture
def plant(world):
    plant = WORLDS[world]()
    yield plant
    plant.close()


def sweep(plant, ticks=300):
    """Turn the shoulder pan slowly; poses of the block and joints on the way."""
    out = []
    for i in range(ticks):
        q = HOME.copy()
        q[0] += 0.3 * i / ticks
        plant.set_joint_targets(q, np.array([0.3 / ticks / DT, 0, 0, 0, 0, 0]))
        plant.step(DT)
        out.append(np.concatenate([plant.true_pose("block"), plant.joint_positions()]))
    return np.array(out)


def test_the_engine_agrees_with_the_published_kinematics():
    plant = PyBulletPlant(CONFIG)
    p = plant.engine.p
    rng = np.random.default_rng(0)
    for _ in range(5):
        q = rng.uniform(-2, 2, 6)
        plant.set_joints(q)
        state = p.getLinkState(
            plant.engine.body, UR5E.dof, computeForwardKinematics=1, **plant.engine.id
        )
        T = UR5E.fk(q)
        np.testing.assert_allclose(state[4], T[:3, 3], atol=1e-6)
        R = np.array(p.getMatrixFromQuaternion(state[5])).reshape(3, 3)
        np.testing.assert_allclose(R, T[:3, :3], atol=1e-6)
    plant.close()


def test_it_is_a_plant(plant):
    offered: Plant = plant
    assert offered.object_names == ("block",)
    assert offered.tool_pose().shape == (6,)
    assert offered.joint_torques().shape == (6,)


@pytest.mark.parametrize("pose", [(0.1, 0.3, -3.0), (0.3, 0.2, 0.5), GOAL])
def test_a_placed_block_stays_where_it_was_put(plant, pose):
    plant.place_object("block", np.array(pose))
    np.testing.assert_allclose(plant.true_pose("block"), pose, atol=1e-7)
    for _ in range(100):
        plant.set_joint_targets(HOME, np.zeros(6))
        plant.step(DT)
    np.testing.assert_allclose(plant.true_pose("block"), pose, atol=1e-5)
    np.testing.assert_allclose(plant.tool_force(), 0.0)


def test_the_tool_pushes_the_block_and_feels_it(plant):
    plant.place_object("block", np.array([0.256, 0.36, 0.0]))
    q, forces = HOME, []
    for i in range(500):
        q = WORKCELL.joints(UR5E, (0.256, 0.4 - 0.1 * i / 500), near=q)
        plant.set_joint_targets(q, np.zeros(6))
        plant.step(DT)
        forces.append(np.linalg.norm(plant.tool_force()))
    # The tool's front is a radius below its centre; the bar's far edge lies there in the end.
    x, y, yaw = plant.true_pose("block")
    assert y == pytest.approx(0.3 - 0.015, abs=0.004)
    assert abs(x - 0.256) < 0.01
    assert abs(yaw) < 0.1
    assert 0.2 < max(forces) < 200


def test_joints_track_a_smooth_target_closely(plant):
    sweep(plant)
    error = plant.joint_positions() - (HOME + np.array([0.3 * 299 / 300, 0, 0, 0, 0, 0]))
    assert np.abs(error).max() < 2e-3


def test_after_a_reset_everything_repeats_bit_for_bit():
    plant, runs = PyBulletPlant(CONFIG), []
    for _ in range(2):
        plant.reset()
        plant.place_object("block", np.array([0.2, 0.38, 1.0]))
        runs.append(sweep(plant))
    np.testing.assert_array_equal(runs[0], runs[1])
    plant.close()


def test_the_seed_decides_what_is_hidden_and_all_that_follows(world):
    runs = []
    for seed in (0, 0, 1):
        plant = WORLDS[world](seed)
        plant.place_object("block", np.array([0.2, 0.38, 1.0]))
        runs.append(sweep(plant, 200))
        plant.close()
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[2] - runs[0]).max() > 1e-7


def test_the_hidden_mass_is_near_the_given_one():
    for seed in (0, 1):
        plant = PyBulletPlant(CONFIG, seed)
        mass = plant.engine.p.getDynamicsInfo(plant._block, -1, **plant.engine.id)[0]
        assert 0.9 <= mass / CONFIG.block_mass_kg <= 1.1
        plant.close()


def test_pictures_show_block_and_goal(world):
    view = PlantView(WORLDS[world]())
    far = view.draw("top", 128, 128, HOME, {"block": np.array([0.1, 0.1, 0.0])})
    near = view.draw("top", 128, 128, HOME, {"block": np.array(GOAL)})
    assert far.shape == (128, 128, 3)
    green = np.array([143, 212, 143])

    def goal_pixels(image):
        return int((np.abs(image.astype(int) - green).sum(axis=-1) < 60).sum())

    assert goal_pixels(far) > 200
    assert goal_pixels(near) < 0.2 * goal_pixels(far)
    np.testing.assert_allclose(
        far[:, 1], [[168, 173, 181]] * 128, atol=25
    )  # the rim at the left edge
    # Table x is right and y is up: the block at (0.1, 0.1) is in the lower left quarter.
    changed = np.abs(far.astype(int) - near.astype(int)).sum(axis=-1) > 60
    rows, columns = np.nonzero(changed[:, :40])
    assert rows.mean() > 80
    assert columns.size > 100
    assert view.draw("perspective", 64, 48, HOME, {}).shape == (48, 64, 3)
    view.close()
    view.close()


def test_what_does_not_fit_is_refused(plant):
    with pytest.raises(DataError, match="no object 'ball'"):
        plant.true_pose("ball")
    with pytest.raises(DataError, match="no view"):
        plant.picture("side", 32, 32)
    with pytest.raises(ConfigError, match="multiple"):
        plant.step(0.0013)
    with pytest.raises(ConfigError, match="6 joint angles"):
        PlantConfig(home=(0.0,))
