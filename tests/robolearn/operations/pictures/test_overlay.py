"""The start that is wanted lies over the camera's picture."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.errors import ConfigError
from robolearn.operations.pictures.overlay import overlay

FIRST = "reach-0000"
SUITE = Path(__file__).parents[4] / "configs" / "eval" / "so101_reach.yaml"


def test_outlines_stay_where_the_blend_is_faint() -> None:
    wanted, seen = np.zeros((40, 60, 3), np.uint8), np.full((40, 60, 3), 100, np.uint8)
    wanted[10:30, 20:40] = 255
    mixed = overlay(wanted, seen, 0.5)
    assert mixed[0, 0].tolist() == [50, 50, 50]
    assert abs(int(mixed[20, 30, 0]) - 178) <= 1
    outlines = overlay(wanted, seen, 0.0)
    red = (outlines == (255, 40, 40)).all(axis=2)
    assert 60 <= red.sum() <= 100
    assert (outlines[~red] == 100).all()
    for opacity in (-0.1, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="opacity"):
            overlay(wanted, seen, opacity)


def test_a_suites_start_is_laid_over_a_photo(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photo, out = tmp_path / "photo.png", tmp_path / "start.png"
    cv2.imwrite(str(photo), np.full((48, 64, 3), 90, np.uint8))
    argv = ["scene", "overlay", str(photo), "--scene", "so101_reach", "--suite", str(SUITE)]
    argv += ["--out", str(out)]
    assert main([*argv, "--camera", "nowhere", "--condition", FIRST]) == 2
    assert "has no camera 'nowhere'" in capsys.readouterr().err
    assert main([*argv, "--camera", "top", "--condition", "none"]) == 2
    assert "has no condition 'none'" in capsys.readouterr().err
    assert not out.exists()
    assert main([*argv, "--camera", "top", "--condition", FIRST]) == 0
    assert cv2.imread(str(out)).shape == (48, 64, 3)
    (tmp_path / "bad.png").write_bytes(b"no picture")
    argv[2] = str(tmp_path / "bad.png")
    assert main([*argv, "--camera", "top", "--condition", FIRST]) == 2
    assert "is not a picture" in capsys.readouterr().err
