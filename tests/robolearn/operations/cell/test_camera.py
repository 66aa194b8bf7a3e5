"""A camera is calibrated by a function: with live pictures, and with those of a folder."""

from __future__ import annotations

import dataclasses

import cv2
import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.devices.camera import Frame, StreamedCamera
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import pose_error
from robolearn.operations.cell.camera import CameraListener, calibrate_camera, store_lens
from robolearn.operations.cell.camera_options import CameraOptions
from tests.hardware.lab import CONFIG
from tests.robolearn.calibration.studio import AT, Studio

CAMERA = """  cameras:
    - driver: {kind: fake} # mine
      stream: {name: top, width: 640, height: 480}
"""


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    made = Studio(tmp_path_factory.mktemp("studio"))
    yield made
    made.close()


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "cell.yaml"
    path.write_text(CONFIG.read_text() + CAMERA)
    return path


def test_a_live_camera_is_shown_the_board_and_looks_at_the_table(
    studio, config, monkeypatch, capsys
):
    shown, told = studio.shown(), []
    waiting = list(shown)

    def latest(self: StreamedCamera) -> Frame:
        return Frame(0, 0, 0, 0.0, waiting.pop(0))

    monkeypatch.setattr(StreamedCamera, "latest", latest)
    listener = CameraListener(
        lay=lambda: waiting.append(studio.lying()),
        on_live=lambda: told.append("live"),
        on_view=lambda taken, of: told.append((taken, of)),
        on_found=told.append,
    )
    found = calibrate_camera(config, AT, CameraOptions(count=9), listener)
    assert told == ["live", *((k, 9) for k in range(1, 10)), 9]
    assert found.camera == "top"
    assert len(found.lens.view_rms_px) == 9
    lens = found.placed.lens
    assert max(pose_error(lens.T_table_camera, studio.T_table_camera)) < 0.006
    base = np.array(load_cell(config).table.mapping().T_base_table) @ lens.T_table_camera
    np.testing.assert_array_equal(found.T_base_camera, base)
    store_lens(config, found)
    written = load_cell(config).cameras[0].lens
    np.testing.assert_allclose(written.position_m, lens.position_m, atol=1e-5)
    assert "# mine" in config.read_text()
    with pytest.raises(ConfigError, match="Did you mean 'top'"):
        store_lens(config, dataclasses.replace(found, camera="topp"))
    assert capsys.readouterr() == ("", "")


def test_pictures_of_another_size_and_a_lens_that_is_not_there_are_refused(
    studio, config, tmp_path
):
    cv2.imwrite(str(tmp_path / "small.png"), studio.lying()[::2, ::2, ::-1])
    (tmp_path / "torn.png").write_bytes(b"\x89PNG")
    for options, error, why in (
        (CameraOptions(pictures=tmp_path), DataError, "320 x 240 px, the config says 640 x 480"),
        (CameraOptions(keep_lens=True), ConfigError, "keep_lens: camera 'top' has no lens"),
        (CameraOptions(pictures=tmp_path / "none"), ConfigError, "pictures: no .png or .jpg"),
        (CameraOptions(camera="side"), ConfigError, r"no camera 'side'.*Has: \['top'\]"),
        (CameraOptions(board="tags"), ConfigError, "board tags: expected a signal"),
    ):
        with pytest.raises(error, match=why):
            calibrate_camera(config, AT, options)
    (tmp_path / "small.png").unlink()
    with pytest.raises(DataError, match=r"torn\.png is not a picture"):
        calibrate_camera(config, AT, CameraOptions(pictures=tmp_path))
