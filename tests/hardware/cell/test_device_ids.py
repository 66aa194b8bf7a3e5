"""Ids of the devices of a cell, with and without an answer."""

import dataclasses
import hashlib

from hardware.cell.device_ids import device_ids
from hardware.cell.load import load_cell
from hardware.devices.camera import StreamConfig
from hardware.devices.camera_config import CameraConfig
from tests.hardware.lab import CONFIG, address


def test_a_controller_that_does_not_answer_is_named_with_the_reason():
    cell = load_cell(CONFIG)
    silent = dataclasses.replace(cell, driver=cell.driver | {"address": address(77)})
    robot = device_ids(silent, timeout_s=0.2)["robot"]
    assert robot["address"] == address(77)
    assert robot["serial_number"].startswith(f"unknown: dashboard at {address(77)}:29999: ")


def test_calibrations_count_by_their_contents_and_cameras_by_their_address(tmp_path):
    file = tmp_path / "arm.yaml"
    file.write_text("arm: so101\n")
    cell = load_cell(CONFIG)
    driver = {"kind": "feetech", "port": str(tmp_path / "tty"), "calibration": str(file)}
    top = CameraConfig(
        driver={"kind": "mjpeg", "url": "http://127.0.0.1:30130/"},
        stream=StreamConfig("top", 64, 48),
    )
    found = device_ids(dataclasses.replace(cell, driver=driver, cameras=(top,)))
    assert found == {
        "robot": {
            "kind": "feetech",
            "port": str(tmp_path / "tty"),
            "calibration": str(file),
            "calibration_sha256": hashlib.sha256(b"arm: so101\n").hexdigest(),
            "adapter_serial": "",
        },
        "tracker block/pose": {"kind": "udp", "address": "127.0.0.1:30120", "object": "block"},
        "camera top": {"kind": "mjpeg", "url": "http://127.0.0.1:30130/"},
    }
    file.unlink()
    gone = device_ids(dataclasses.replace(cell, driver=driver))["robot"]
    assert gone["calibration_sha256"] == "unknown: No such file or directory"
