"""The lab's gripper workcells: fingers meet the cube, hold it and let it go; alike in both."""

from pathlib import Path

import mujoco
import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.emulators.plant import FingerPlant, Plant
from hardware.emulators.robotiq import RobotiqEmulator
from robolearn.arms.models import UR5E
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import pose, rot_x
from robolearn.operations.lab.workcell import load_lab
from sim.plants.fingers import SceneFingers
from sim.plants.grip import CUBE, GripPlant, GripPlantConfig
from sim.plants.scene import ScenePlant, ScenePlantConfig
from sim.scene.load import load_scene

LAB = Path(__file__).parents[3] / "configs/hardware/lab_ur5e_gripper.yaml"
REACH_M, SIDE_M = 0.145, 0.04
HOME = np.array(GripPlantConfig().home)


def worlds():
    bullet = GripPlant(GripPlantConfig(), seed=3)
    scene = ScenePlant(ScenePlantConfig("ur5e_table"), seed=3)
    return {"bullet": (bullet, bullet), "mujoco": (scene, SceneFingers(scene))}


@pytest.fixture(params=["bullet", "mujoco"])
def cell(request):
    made = Cell(*worlds()[request.param])
    yield made
    made.plant.close()


class Cell:
    """A plant, its gripper's emulator, and simulated time."""

    def __init__(self, plant, fingers):
        self.plant, self.fingers = plant, fingers
        self.gripper, self.now_ns = RobotiqEmulator(fingers, activated=True), 0
        self.gripper.step(0)

    def grip(self, counts, force=100):
        assert self.gripper.answer(f"SET POS {counts} SPE 255 FOR {force} GTO 1") == "ack"

    def move(self, q, seconds):
        start, steps = self.plant.joint_positions().copy(), round(seconds * 500)
        for i in range(steps):
            share = min(1.0, 1.25 * (i + 1) / steps)
            share *= share * (3.0 - 2.0 * share)
            self.plant.set_joint_targets(start + share * (q - start), np.zeros(UR5E.dof))
            self.now_ns += 2_000_000
            self.gripper.step(self.now_ns)
            self.plant.step(0.002)


def joints_over(plant, x, y, z, near):
    flange = pose(rot_x(np.pi), (x, y, z)) @ pose(None, (0.0, 0.0, -REACH_M))
    return UR5E.ik(plant.T_base_table @ flange, near)


def test_the_fingers_pick_the_cube_up_and_put_it_down(cell):
    plant, fingers = cell.plant, cell.fingers
    assert isinstance(plant, Plant)
    assert isinstance(fingers, FingerPlant)
    plant.place_object(CUBE, np.array([0.05, -0.08, 0.0]))
    above = joints_over(plant, 0.05, -0.08, 0.12, HOME)
    down = joints_over(plant, 0.05, -0.08, 0.02, above)
    cell.move(above, 0.8)
    cell.move(down, 0.6)
    assert fingers.width() == pytest.approx(0.085, abs=1e-3)
    cell.grip(228)
    cell.move(down, 0.7)
    assert cell.gripper.status()["OBJ"] == 2
    assert fingers.width() == pytest.approx(SIDE_M, abs=1.5e-3)
    cell.move(above, 0.6)
    assert fingers.object_height(CUBE) == pytest.approx(0.12, abs=0.004)
    assert cell.gripper.status()["OBJ"] == 2
    cell.grip(3)
    cell.move(above, 0.9)
    assert fingers.object_height(CUBE) == pytest.approx(SIDE_M / 2, abs=2e-3)
    assert cell.gripper.status()["OBJ"] == 3


def test_a_box_lies_there_instead_of_the_cube():
    plant = GripPlant(GripPlantConfig(box_m=(0.06, 0.05, 0.044), cube_pose=(0.1, 0.0, 0.3)))
    try:
        assert plant.true_pose(CUBE)[2] == pytest.approx(0.022)
        for _ in range(100):
            plant.step(0.002)
        at = plant.true_pose(CUBE)
        assert at[:3] == pytest.approx([0.1, 0.0, 0.022], abs=1e-3)
    finally:
        plant.close()
    for wrong in ((0.06, 0.05), (0.06, 0.05, 0.0), (0.06, float("nan"), 0.05)):
        with pytest.raises(ConfigError):
            GripPlantConfig(box_m=wrong)


def test_what_lies_on_the_table_stays_there():
    plant = GripPlant(GripPlantConfig(cube_pose=(0.03, 0.1, 0.4)))
    try:
        plant.step(1.0)
        before = plant.true_pose(CUBE)
        plant.step(3.0)
        after = plant.true_pose(CUBE)
    finally:
        plant.close()
    # The engine's own accuracy let it creep by 7 um/s: millimetres in a scan of ten minutes.
    assert np.linalg.norm(after[:3] - before[:3]) < 3 * 0.1e-6
    assert after[2] == pytest.approx(SIDE_M / 2, abs=2e-5)


def test_what_does_not_fit_is_refused():
    plant = GripPlant(GripPlantConfig())
    try:
        with pytest.raises(DataError, match="no object 'block'"):
            plant.true_pose("block")
        plant.place_object(CUBE, np.array([0.1, 0.05, 0.7]))
        lying = [0.1, 0.05, 0.02, np.cos(0.35), 0.0, 0.0, np.sin(0.35)]
        np.testing.assert_allclose(plant.true_pose(CUBE), lying, atol=1e-9)
        tilted = np.array([0.05, -0.1, 0.2, 0.8, 0.6, 0.0, 0.0])
        for name in plant.object_names:
            plant.place_object(name, tilted)
            np.testing.assert_allclose(plant.true_pose(name), tilted, atol=1e-9)
        plant.step(0.002)
        assert plant.true_pose("goal")[2] == 0.2, "a mark does not fall"
        plant.step(1.0)
        assert plant.true_pose(CUBE)[2] < 0.03
    finally:
        plant.close()
    for wrong in ({"spread": 1.0}, {"cube_mass_kg": 0.0}, {"home": (0.0,)}):
        with pytest.raises(ConfigError):
            GripPlantConfig(**wrong)
    with pytest.raises(ConfigError, match="has no gripper"):
        SceneFingers(ScenePlant(ScenePlantConfig("pusht_ur5e")))


def test_the_scene_of_the_task_has_the_nominal_physics_of_the_lab():
    config = load_lab(LAB).gripping
    scene = load_scene("pick_place_ur5e")
    model = scene.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    at = data.site("table").xpos - data.body("base").xpos
    assert at == pytest.approx(config.origin_m)
    assert scene.config.control["arms"][0]["home"] == list(config.home)
    assert load_cell(LAB).joints.home == config.home
    cube, table = model.geom("cube"), model.geom("table")
    assert 2 * cube.size == pytest.approx([config.cube_side_m] * 3)
    assert model.body("cube").mass[0] == pytest.approx(config.cube_mass_kg)
    assert cube.friction[0] == table.friction[0] == config.table_friction
    pads = {model.geom(p).id for p in ("pad_left", "pad_right")}
    pairs = zip(model.pair_geom1, model.pair_geom2, model.pair_friction, strict=True)
    touching = {g for *of, friction in pairs for g in of if friction[0] == config.pad_friction}
    assert touching == {*pads, cube.id}
