"""``robolearn calibrate camera``: what it prints and writes, and its bad input."""

import json

import cv2
import numpy as np
import pytest

from hardware.cell.load import load_cell
from robolearn.cli.main import main
from robolearn.geometry import pose_error
from tests.hardware.lab import CONFIG
from tests.robolearn.calibration.studio import AT, Studio


@pytest.fixture(scope="module")
def studio(tmp_path_factory):
    made = Studio(tmp_path_factory.mktemp("studio"))
    yield made
    made.close()


def test_the_command_writes_the_lens_and_refuses_what_is_too_little(studio, tmp_path, capsys):
    config = tmp_path / "cell.yaml"
    config.write_text(
        CONFIG.read_text()
        + "  cameras:\n    - driver: {kind: fake} # mine\n"
        + "      stream: {name: top, width: 640, height: 480}\n"
    )
    pictures, alike = tmp_path / "pictures", tmp_path / "alike"
    for folder, images in ((pictures, studio.shown()), (alike, [studio.lying()] * 8)):
        folder.mkdir()
        for k, image in enumerate(images):
            cv2.imwrite(str(folder / f"{k:02d}.png"), image[..., ::-1])
    lying = tmp_path / "lying.png"
    cv2.imwrite(str(lying), studio.lying()[..., ::-1])
    plain = ["calibrate", "camera", "--config", str(config), "--table-picture", str(lying)]
    plain += ["--at", *map(str, AT)]
    words = [*plain, "--json"]
    assert main([*words, "--pictures", str(pictures), "--write"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["views"] == 9
    lens = load_cell(config).cameras[0].lens
    assert max(pose_error(lens.T_table_camera, studio.T_table_camera)) < 0.006
    np.testing.assert_allclose(told["position_m"], lens.position_m, atol=1e-5)
    assert np.array(told["T_base_camera"]).shape == (4, 4)
    # How well every number is known, and what pictures say that had no part in it.
    for name, count in (("focal", 2), ("centre", 2)):
        assert 0 < min(told[f"{name}_error_px"]) < max(told[f"{name}_error_px"]) < 5.0
        assert len(told[f"{name}_px"]) == count
    assert len(told["distortion_error"]) == 4
    assert 0 < max(told["distortion_error"]) < 0.1
    off_m = np.abs(np.array(told["position_m"]) - studio.T_table_camera[:3, 3])
    assert (off_m < 4 * np.array(told["position_error_m"])).all()
    assert max(told["position_error_m"]) < 0.005
    assert 0 < max(told["rotation_error_deg"]) < 0.5
    assert told["rms_px"] < told["held_out_px"] < 0.5
    assert 0 < told["place_held_out_px"] < 0.5
    assert "# mine" in config.read_text()
    # The lens that is there, and only the place.
    assert main([*words, "--keep-lens"]) == 0
    kept = json.loads(capsys.readouterr().out)
    np.testing.assert_allclose(kept["position_m"], told["position_m"], atol=1e-4)
    assert [kept[k] for k in ("focal_error_px", "distortion_error", "held_out_px")] == [None] * 3
    assert 0 < max(kept["position_error_m"]) < max(told["position_error_m"])
    assert main([*plain, "--keep-lens"]) == 0
    assert "as it was: nothing here says how well it is known" in capsys.readouterr().out
    assert main([*plain, "--pictures", str(pictures)]) == 0
    out = capsys.readouterr().out
    assert "the board was found in 9 picture(s)" in out
    assert "px in 9 view(s), the worst" in out
    assert "px in views that were left out" in out
    for what in ("centre        ", "distortion    k1 ", "place         "):
        assert f"\n{what}" in out
    for wrong, why in (
        (["--pictures", str(alike)], "at least"),
        (["--pictures", str(tmp_path)], "1 picture(s)"),
        (["--pictures", str(config.parent / "none")], "--pictures: no .png or .jpg in"),
        (["--pictures", str(pictures), "--squares", "7", "5"], "picture(s)"),
        (["--pictures", str(pictures), "--camera", "topp"], "--camera: no camera 'topp'. Did you"),
        (["--board", "tags"], "found by tags: []"),
    ):
        assert main([*words, *wrong]) == 2
        assert why in capsys.readouterr().err
    for missing in ("--config", "--at"):
        left = plain[: plain.index(missing)] if missing == "--at" else plain[:2]
        assert main(left) == 2
        assert f"{missing}" in capsys.readouterr().err
    assert main([*plain[:4], *plain[6:], "--pictures", str(pictures)]) == 2
    assert "as --at says, step back, and there is no terminal to ask: give --table-picture" in (
        capsys.readouterr().err
    )
