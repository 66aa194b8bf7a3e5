import pytest

from hardware.cell.config import CellConfig
from hardware.devices.camera import StreamConfig
from hardware.devices.camera_config import CameraConfig, require_camera, require_cameras
from hardware.devices.gripper_config import GripperCellConfig
from robolearn.errors import ConfigError

STREAM = StreamConfig("top", 64, 48, 30.0)


def robot(driver):
    # What makes a driver's config of a cell reads nothing of it but the driver.
    cell = object.__new__(CellConfig)
    object.__setattr__(cell, "driver", driver)
    return cell


DEVICES = {
    "robot.driver": robot,
    "camera 'top', driver": lambda driver: CameraConfig(driver, STREAM),
    "robot.gripper.driver": lambda driver: GripperCellConfig(driver, 0.08),
}


@pytest.mark.parametrize("where", DEVICES)
def test_every_device_says_where_its_kind_or_key_is_wrong(where):
    def made(**driver):
        return DEVICES[where](driver).driver_config()

    assert type(made(kind="fake")).__module__.startswith("hardware.drivers.fakes.")
    with pytest.raises(ConfigError, match=rf"^{where}: no .*driver 'fakee'\. Did you mean 'fake'"):
        made(kind="fakee")
    with pytest.raises(ConfigError, match=rf"^{where}: no .*driver ''\."):
        made()
    with pytest.raises(ConfigError, match=rf"^{where}\b.*colour"):
        made(kind="fake", colour="red")


def test_a_drivers_class_of_ones_own_is_asked_for_where_the_driver_is():
    with pytest.raises(ConfigError, match=r"^robot\.driver: 'nowhere:Driver' cannot be imported"):
        robot({"kind": "nowhere:Driver"}).driver_config()


def test_cameras_have_names_of_their_own_and_a_key_names_one_of_them():
    camera = CameraConfig({"kind": "fake"}, STREAM)
    require_cameras([camera])
    require_camera("top", [camera], key="align")
    require_camera("", [], key="align")
    with pytest.raises(ConfigError, match=r"\['top'\] occur\(s\) more than once"):
        require_cameras([camera, camera])
    with pytest.raises(ConfigError, match=r"^align: no camera 'topp'\. Did you mean 'top'"):
        require_camera("topp", [camera], key="align")
