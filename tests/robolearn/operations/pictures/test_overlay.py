"""The start that is wanted lies over the camera's picture."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.errors import ConfigError, RobolearnError
from robolearn.operations.pictures.overlay import StartOverlay, draw_start, overlay
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import Condition

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


CELL = EmbodimentSpec("cell", (SignalSpec("top/image", (48, 64, 3), dtype="uint8"),), (), 20.0)


def start(x: float) -> Condition:
    return Condition(f"at {x}", 1, {"cube/pose": (x, 0.1, 0.02, 1.0, 0.0, 0.0, 0.0)})


def test_a_start_is_drawn_once_per_size_and_written_when_it_is_another(tmp_path: Path) -> None:
    path = tmp_path / "own-start.png"
    shown = StartOverlay.of("top=pick_place", CELL, path)
    assert shown is not None
    seen = np.full((48, 64, 3), 90, np.uint8)
    assert {outline.name: len(outline.polygons) for outline in shown.outlines}["cube"] == 1
    shown.require(start(0.0))
    assert not path.exists()
    first = shown.over(start(0.0), seen)
    # The one mechanism: bit for bit what trials and 'scene overlay' show.
    drawn = draw_start("pick_place", "top", start(0.0), 64, 48)
    np.testing.assert_array_equal(first, overlay(drawn, seen, 0.5))
    kept = cv2.imread(str(path))
    np.testing.assert_array_equal(kept[..., ::-1], first)
    # Somebody's hand comes into the picture: the file shows what was there at first.
    assert shown.over(start(0.0), seen + 40).mean() > first.mean() + 10
    assert shown.over(start(0.0), seen[::2, ::2]).shape == (24, 32, 3)
    np.testing.assert_array_equal(cv2.imread(str(path)), kept)
    other = shown.over(start(-0.1), seen)
    assert (other != first).any()
    np.testing.assert_array_equal(cv2.imread(str(path))[..., ::-1], other)
    assert str(path) in shown.note
    shown.close()
    shown.close()


def test_what_cannot_be_drawn_or_written_ends_no_session(tmp_path: Path) -> None:
    seen = np.full((48, 64, 3), 90, np.uint8)
    # No folder can be made below a file, as none can on a disk that is full or read-only.
    (tmp_path / "file").write_bytes(b"")
    shown = StartOverlay.of("top=pick_place", CELL, tmp_path / "file" / "own-start.png")
    assert shown is not None
    assert (shown.over(start(0.0), seen) != seen).any()
    assert "was not written" in shown.note
    alien = Condition("alien", 1, {"moon/pose": (0.0,) * 7})
    np.testing.assert_array_equal(shown.over(alien, seen), seen)
    np.testing.assert_array_equal(shown.over(alien, seen[::2, ::2]), seen[::2, ::2])
    assert "cannot be shown" in shown.note
    assert "moon/pose" in shown.note
    assert (shown.over(start(0.0), seen) != seen).any()
    shown.close()


def test_an_overlay_of_another_camera_or_scene_is_refused() -> None:
    assert StartOverlay.of("", CELL) is None
    for text, words in (
        ("side=pick_place", "expected CAMERA=SCENE with one of the cell's cameras .'top'."),
        ("top", "expected CAMERA=SCENE"),
        ("top=", "expected CAMERA=SCENE"),
        ("top=so101_nowhere", "so101_nowhere"),
    ):
        with pytest.raises(RobolearnError, match=words):
            StartOverlay.of(text, CELL)
