"""The motion that a capture keeps becomes a scene's arm; what is no motion is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robolearn.capture.config import CaptureArm, CaptureCamera, CaptureConfig, CaptureSet
from robolearn.capture.write import CaptureWriter, write_motion
from robolearn.cli.main import main
from robolearn.errors import ConfigError, DataError
from robolearn.operations.scenes.identify_arm import identify_capture
from sim.identification.arm_excitation import multisine
from sim.identification.arm_fit import FitConfig
from sim.identification.arm_identify import ArmIdentifyConfig
from sim.identification.arm_model import ArmModel
from sim.identification.arm_motion import ArmMotion
from sim.scene.load import load_scene
from tests.sim.identification.arm_lab import hidden, record, room

QUICK = ArmIdentifyConfig(
    FitConfig(starts=0, first_iterations=0, iterations=0, last_iterations=0), held_out=0.25
)
EPOCH_S = 1.7e9


@pytest.fixture(scope="module")
def motion() -> ArmMotion:
    model = ArmModel(load_scene("pusht_ur5e"))
    return record(hidden(11), multisine(room(model), 8.0, seed=3, lines=6), smoothing=True)


def _capture(folder: Path, model: str = "ur5e") -> Path:
    config = CaptureConfig(
        schema=1,
        name="excited",
        cameras={"eye": CaptureCamera("hand", (32, 24))},
        sets=(CaptureSet("scan", "eye", "scan"),),
        arm=CaptureArm(model),
    )
    CaptureWriter(folder, config).add("scan", np.full((24, 32, 3), 99, np.uint8))
    return folder


def _moved(folder: Path, motion: ArmMotion) -> Path:
    write_motion(
        folder,
        motion.sent_t_s + EPOCH_S,
        motion.sent,
        motion.measured_t_s + EPOCH_S,
        motion.measured,
    )
    return folder


def test_the_motion_of_a_capture_becomes_a_scene(motion: ArmMotion, tmp_path: Path) -> None:
    folder = _moved(_capture(tmp_path / "c"), motion)
    result = identify_capture(folder, "pusht_ur5e", tmp_path / "cell", settings=QUICK)
    found = result.found
    assert found.after.worst_deg < 0.15 < found.before.worst_deg
    assert (found.fit_s, found.held_out_s) == pytest.approx((6.0, 2.0), abs=0.1)
    assert result.scene.config.provenance.source == "capture c"
    assert load_scene(str(tmp_path / "cell")).content_hash == result.scene.content_hash


def test_what_is_no_motion_of_this_arm_is_refused(
    motion: ArmMotion, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    still = _capture(tmp_path / "still")
    with pytest.raises(ConfigError, match=r"no motion/sent\.csv and no motion/measured\.csv"):
        identify_capture(still, "pusht_ur5e", tmp_path / "cell")
    other = _moved(_capture(tmp_path / "other", "panda"), motion)
    with pytest.raises(ConfigError, match="has the arm ur5e, the capture panda"):
        identify_capture(other, "pusht_ur5e", tmp_path / "cell")
    degrees = _capture(tmp_path / "degrees")
    write_motion(
        degrees,
        motion.sent_t_s,
        np.degrees(motion.sent),
        motion.measured_t_s,
        motion.measured,
    )
    with pytest.raises(DataError, match="in other units than rad"):
        identify_capture(degrees, "pusht_ur5e", tmp_path / "cell")
    words = ["identify", "--capture", str(still), "--out", str(tmp_path / "cell")]
    assert main(words) == 2
    assert "--scene is missing" in capsys.readouterr().err
    assert main([*words, "--robot", "configs/hardware/lab_ur5e.yaml"]) == 2
    assert "give one of" in capsys.readouterr().err
    assert not (tmp_path / "cell").exists()
