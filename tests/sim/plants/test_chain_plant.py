"""Arms as plants, by PyBullet and by MuJoCo: kinematics, weight, motors without power."""

import numpy as np
import pytest

from robolearn.arms.models import ARMS
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import quat_heading
from sim.plants.chain import ChainPlant, ChainPlantConfig
from sim.plants.scene import ScenePlant, ScenePlantConfig

HOMES = {
    "ur5e": (-0.3, -1.3, 2.4, -2.6, -1.5, -0.3),
    "panda": (0.1, -0.4, 0.2, -2.0, 0.1, 1.8, 0.5),
    "xarm7": (0.2, -0.3, 0.1, 0.7, -0.2, 1.0, 0.3),
    "so101": (0.3, -0.6, 0.7, 0.4, -0.5, 0.2),
}


def plant_of(name, **changes):
    return ChainPlant(name, ChainPlantConfig(home=HOMES[name], **changes), seed=3)


@pytest.mark.parametrize("name", sorted(HOMES))
def test_links_are_where_the_kinematics_say(name):
    plant, arm = plant_of(name), ARMS[name]
    p, body = plant.engine.p, plant.engine.body
    last = p.getLinkState(body, arm.dof - 1, computeForwardKinematics=True, **plant.engine.id)
    R = np.array(p.getMatrixFromQuaternion(last[5])).reshape(3, 3)
    at = np.array(last[4])
    if arm.convention == "standard":
        link = arm.links[-1]
        at = at + R @ np.array([0.0, 0.0, link.d])
    else:
        at = at + R[:, 2] * arm.links[-1].d
    T = arm.frames(np.array(HOMES[name])[: arm.dof])[-1]
    assert np.allclose(at, T[:3, 3], atol=1e-5)
    assert np.allclose(R[:, 2], T[:3, 2] if arm.convention == "modified" else R[:, 2], atol=1e-5)
    plant.close()


def scene_of(**changes):
    config = ScenePlantConfig("so101_table", HOMES["so101"], serial_servos=True, **changes)
    return ScenePlant(config, seed=3)


@pytest.mark.parametrize("make", [lambda: plant_of("so101"), scene_of], ids=["pybullet", "mujoco"])
def test_weight_is_held_by_power_and_falls_without(make):
    plant = make()
    home = np.array(HOMES["so101"])
    for _ in range(200):
        plant.set_joint_targets(home, np.zeros(6))
        plant.step(0.002)
    assert np.abs(plant.joint_positions() - home).max() < 0.03
    # The oracle: potential energy m g h of the links, differentiated.
    torques = plant.joint_torques()
    assert abs(torques[0]) < 0.02, "the base turns about the vertical"
    step = 1e-5
    expected = np.zeros(5)
    for i in range(5):
        for sign in (1, -1):
            q = plant.joint_positions()[:5]
            q[i] += sign * step
            expected[i] += sign * potential(plant, q) / (2 * step)
    assert np.allclose(torques[1:4], expected[1:4], atol=0.05)
    plant.set_powered(np.zeros(6, dtype=bool))
    plant.set_joint_targets(home, np.zeros(6))
    for _ in range(100):
        plant.step(0.002)
    assert np.abs(plant.joint_positions() - home).max() > 0.2
    plant.close()


def potential(plant, q):
    frames = plant.arm.frames(q)[1:]
    links = plant.arm.links
    heights = [(T @ np.array([*k.com, 1.0]))[2] for T, k in zip(frames, links, strict=True)]
    own = sum(9.81 * k.mass_kg * h for k, h in zip(links, heights, strict=True))
    jaw = frames[-1] @ np.array([0.0202, 0.0188, -0.0234, 1.0])
    return own + 9.81 * 0.012 * jaw[2]


def test_the_seed_decides_what_is_hidden():
    runs = []
    for seed in (1, 1, 2):
        plant = ChainPlant("so101", ChainPlantConfig(home=HOMES["so101"]), seed)
        plant.set_powered(np.zeros(6, dtype=bool))
        plant.set_joint_targets(np.array(HOMES["so101"]), np.zeros(6))
        for _ in range(100):
            plant.step(0.002)
        runs.append(plant.joint_positions())
        plant.close()
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.abs(runs[2] - runs[0]).max() > 1e-4


def test_wrong_values_are_refused():
    with pytest.raises(ConfigError, match="home of so101 needs 6"):
        ChainPlant("so101", ChainPlantConfig(home=(0.0,)))
    with pytest.raises(ConfigError, match="no kinematics"):
        ChainPlant("koch", ChainPlantConfig(home=(0.0,)))
    with pytest.raises(ConfigError, match="servo_gain"):
        ChainPlantConfig(home=(0.0,), servo_gain=0.0)
    plant = plant_of("so101")
    with pytest.raises(DataError, match="no object"):
        plant.true_pose("block")
    plant.close()


def on_table(pose):
    """x, y [m] and heading [rad] of a pose in space."""
    return (*pose[:2], quat_heading(pose[None, 3:]).item())


def test_a_scene_arm_meets_the_things_on_its_table():
    plant = scene_of(objects={"cube": (0.05, 0.02, 0.4)})
    assert plant.object_names == ("cube",)
    assert np.allclose(on_table(plant.true_pose("cube")), (0.05, 0.02, 0.4), atol=1e-6)
    plant.place_object("cube", np.array([0.0, 0.0, -1.0]))
    plant.step(0.1)
    assert np.allclose(on_table(plant.true_pose("cube")), (0.0, 0.0, -1.0), atol=1e-3)
    assert np.allclose(plant.tool_force(), 0.0)
    plant.close()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (ScenePlantConfig("pusht_reference"), "has no arm"),
        (ScenePlantConfig("panda_bimanual", home=(0.0,)), "needs 7 joint angles"),
        (ScenePlantConfig("xarm7_table", serial_servos=True), "no gripper of one joint"),
        (ScenePlantConfig("so101_table", friction=0.5, objects={"cub": (0.0,) * 3}), "'cube'"),
    ],
)
def test_what_a_scene_does_not_have_is_refused(config, message):
    with pytest.raises(ConfigError, match=message):
        ScenePlant(config)
    with pytest.raises(ConfigError, match="servo_gain"):
        ScenePlantConfig(servo_gain=0.0)
