"""Worlds are drawn by a function: from above, by one camera, by all."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from robolearn.errors import ConfigError, SceneError
from robolearn.operations.pictures.draw import Drawn, draw_world


@pytest.mark.parametrize("world", ["pusht_reference", "gym_pusht"])
def test_every_world_is_seen_from_above(tmp_path: Path, world: str, capsys) -> None:
    (drawn,) = draw_world(world, width=96, height=64)
    assert drawn.camera == "top"
    assert drawn.image.shape == (64, 96, 3)
    (again,) = draw_world(world, width=96, height=64)
    np.testing.assert_array_equal(drawn.image, again.image)
    (other,) = draw_world(world, width=96, height=64, seed=1)
    assert not np.array_equal(drawn.image, other.image)
    drawn.write(tmp_path / "sub" / "a.png")
    read = cv2.imread(str(tmp_path / "sub" / "a.png"))
    np.testing.assert_array_equal(read[..., ::-1], drawn.image)
    assert capsys.readouterr() == ("", "")


def test_a_scene_is_seen_by_its_cameras() -> None:
    every = draw_world("so101_table", camera="all", width=64, height=48)
    assert [d.camera for d in every] == ["top", "agent", "wrist"]
    (wrist,) = draw_world("so101_table", camera="wrist", width=64, height=48)
    np.testing.assert_array_equal(wrist.image, every[2].image)
    with pytest.raises(ConfigError, match=r"Did you mean 'wrist'.*or 'all'"):
        draw_world("so101_table", camera="wrsit")
    with pytest.raises(SceneError, match="so101_tabel"):
        draw_world("so101_tabel")


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(ConfigError, match="cannot write"):
        Drawn("top", np.zeros((4, 4, 3), np.uint8)).write(tmp_path / "a.png")
