"""What hides between a controller and its arm: nothing by default, else what was configured."""

import numpy as np
import pytest

from hardware.emulators.drivetrain import (
    Drivetrain,
    DrivetrainConfig,
    ServoDrivetrain,
    behind,
    behind_servos,
)
from hardware.emulators.plant import KinematicPlant, Plant, ServoPlant
from robolearn.errors import ConfigError
from sim.plants.chain import ChainPlant, ChainPlantConfig
from sim.plants.pusht import PlantConfig, PyBulletPlant
from sim.plants.scene import ScenePlant, ScenePlantConfig

DT = 0.002
HOME = np.array(PlantConfig().home)
SO101 = (0.0, -0.9, 0.9, 0.6, 0.0, 0.5)


def driven(plant, inside, targets, joint=0):
    """Truth (``inside``) and measurement of a joint whose motor gets ``targets`` from the start."""
    start, truth, told = inside.joint_positions(), [], []
    for i, target in enumerate(targets):
        q, qd = start.copy(), np.zeros(len(start))
        q[joint] += target
        qd[joint] = (target - targets[max(0, i - 1)]) / DT
        plant.set_joint_targets(q, qd)
        plant.step(DT)
        truth.append(inside.joint_positions()[joint] - start[joint])
        told.append(plant.joint_positions()[joint] - start[joint])
    return np.array(truth), np.array(told)


def there_and_back(amplitude, ticks):
    """Up, down below the start, and up again."""
    return amplitude * np.interp(np.arange(ticks) / ticks, [0, 0.2, 0.6, 1.0], [0, 1, -1, 1])


def test_without_values_the_controller_moves_the_plant_itself():
    plant = KinematicPlant(HOME)
    for config in (DrivetrainConfig(), DrivetrainConfig((0.0,) * 6, spread=0.2)):
        assert behind(plant, config, 0) is plant
        assert behind_servos(plant, config, 0) is plant
    assert isinstance(behind_servos(plant, DrivetrainConfig((0.01,)), 0), ServoPlant)


@pytest.mark.parametrize("world", ["pybullet", "mujoco"])
def test_zeros_change_no_bit(world):
    runs = []
    for through in (False, True):
        plant = PyBulletPlant(PlantConfig()) if world == "pybullet" else ScenePlant(SCENE)
        arm: Plant = Drivetrain(plant, DrivetrainConfig(), 0) if through else plant
        seen = []
        for target in there_and_back(0.05, 50):
            arm.set_joint_targets(HOME + target, np.full(6, target))
            arm.step(DT)
            seen.append(np.r_[arm.joint_positions(), arm.joint_velocities(), arm.joint_torques()])
        runs.append(np.array(seen))
        plant.close()
    np.testing.assert_array_equal(*runs)


SCENE = ScenePlantConfig(objects={"block": (0.256, 0.256, 0.0)})
PLANTS = {
    "kinematic": (lambda: KinematicPlant(HOME), 1e-12),
    "pybullet": (lambda: PyBulletPlant(PlantConfig()), 2e-4),
    "mujoco": (lambda: ScenePlant(SCENE), 5e-4),
    "so101": (lambda: ChainPlant("so101", ChainPlantConfig(SO101)), 5e-4),
}


@pytest.mark.parametrize("name", list(PLANTS))
def test_a_joint_goes_through_a_loop_as_wide_as_its_backlash(name):
    make, tolerance = PLANTS[name]
    plant, width = make(), 0.02
    joints = len(plant.joint_positions())
    # Of one joint only: the others have none.
    play = DrivetrainConfig((width, *[0.0] * (joints - 1)))
    targets = there_and_back(0.1, 600)
    truth, told = driven(Drivetrain(plant, play, 0), plant, targets)
    # The motor shows what it was told; the link is half a width behind it, on either side.
    up, down = slice(430, 600), slice(180, 330)
    assert np.abs(truth[up] - (told[up] - width / 2)).max() < tolerance
    assert np.abs(truth[down] - (told[down] + width / 2)).max() < tolerance
    # The loop: at the same angle of the motor, links apart by the width.
    middle = [
        float(np.interp(0.0, s * told[part], truth[part])) for s, part in ((1, up), (-1, down))
    ]
    assert middle[1] - middle[0] == pytest.approx(width, abs=2 * tolerance)
    # At the turn the link stands still until the motor has crossed the gap.
    across = (0.1 - targets[120:360] > 0.3 * width) & (0.1 - targets[120:360] < 0.9 * width)
    assert np.ptp(truth[120:360][across]) < tolerance
    plant.close()


@pytest.mark.parametrize("name", ["pybullet", "mujoco"])
def test_a_step_is_answered_as_much_later_as_the_delays_say(name):
    make, _ = PLANTS[name]
    responses = {}
    for delays in ((0.0, 0.0), (0.06, 0.0), (0.06, 0.03)):
        plant = make()
        arm = Drivetrain(plant, DrivetrainConfig((), *delays), 0)
        responses[delays] = driven(arm, plant, np.full(150, 0.02))
        plant.close()
    truth, told = responses[0.0, 0.0]
    np.testing.assert_array_equal(truth, told)
    late, told_late = responses[0.06, 0.0]
    np.testing.assert_allclose(late[30:], truth[:-30], atol=3e-5)
    np.testing.assert_array_equal(late, told_late)
    assert np.abs(late[:30]).max() < 1e-4 < np.abs(truth[:30]).max()
    later, told_later = responses[0.06, 0.03]
    np.testing.assert_array_equal(later, late)
    np.testing.assert_array_equal(told_later[15:], later[:-15])


def test_noise_is_on_what_is_told_only_and_repeats_with_the_seed():
    config = DrivetrainConfig(position_noise_rad=0.001, velocity_noise_rad_s=0.002)
    runs = []
    for seed in (0, 0, 1):
        plant = KinematicPlant(HOME)
        arm = ServoDrivetrain(plant, config, seed)
        rows = []
        for _ in range(500):
            arm.step(DT)
            assert np.array_equal(arm.joint_positions(), arm.joint_positions())
            rows.append(np.r_[arm.joint_positions() - HOME, arm.joint_velocities()])
        runs.append(np.array(rows))
        assert np.array_equal(plant.joint_positions(), HOME)
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    np.testing.assert_allclose(runs[0].std(axis=0), [0.001] * 6 + [0.002] * 6, rtol=0.15)


def test_hidden_values_are_drawn_around_the_given_ones():
    config = DrivetrainConfig((0.01,), 0.07, 0.02, spread=0.1)
    drawn = [config.drawn(6, seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(drawn[0].backlash, drawn[1].backlash)
    assert drawn[0].command_delay_s == drawn[1].command_delay_s != drawn[2].command_delay_s
    for one in drawn:
        assert np.all(np.abs(one.backlash - 0.01) <= 0.001)
        assert np.ptp(one.backlash) > 0.0
        assert abs(one.command_delay_s - 0.07) <= 0.007
        assert one.position_noise_rad == 0.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"command_delay_s": 0.6}, r"command_delay_s must be in \[0, 0.5\], got 0.6"),
        ({"state_delay_s": -0.1}, "state_delay_s"),
        ({"position_noise_rad": float("nan")}, "position_noise_rad"),
        ({"velocity_noise_rad_s": 0.01}, "velocity_noise_rad_s"),
        ({"backlash_rad": (0.01, -0.1)}, "backlash_rad must be in"),
        ({"spread": 1.0}, "spread"),
    ],
)
def test_values_that_make_no_sense_are_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        DrivetrainConfig(**values)


def test_a_backlash_for_another_number_of_joints_is_refused():
    with pytest.raises(ConfigError, match=r"one per joint \(6\), got 2"):
        behind(KinematicPlant(HOME), DrivetrainConfig((0.01, 0.01)), 0)
