"""What a scene gets of its cell's file, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from hardware.cell.load import load_cell
from robolearn.config import find_config
from robolearn.errors import ConfigError
from robolearn.operations.scenes.known_of_cell import known_of, recorded_in
from sim.identification.write_arm_scene import OfCell
from sim.scene.load import load_scene

PICK = find_config(Path("configs/hardware/lab_ur5e_pick_place.yaml"))
PUSHT = find_config(Path("configs/hardware/lab_ur5e.yaml"))


def test_a_cell_that_is_commanded_as_the_scene_is_tells_its_limits() -> None:
    space = load_cell(PICK).tool
    assert space is not None
    known, remarks = recorded_in(PICK, load_scene("pick_place_ur5e"), force_stop=False)
    assert (known, remarks) == (OfCell(space.limits), [])


def test_what_stops_the_robot_is_written_only_when_asked_for() -> None:
    told = load_cell(PICK).supervisor
    known, _ = recorded_in(PICK, load_scene("pusht_ur5e"), force_stop=True)
    assert known.limits is None
    assert known.stop is not None
    assert known.stop.max_tool_force_n == told.max_tool_force_n
    with pytest.raises(ConfigError, match="needs the cell"):
        recorded_in(None, load_scene("pick_place_ur5e"), force_stop=True)


@pytest.mark.parametrize(
    ("cell", "scene"), [(PUSHT, "pick_place_ur5e"), (PICK, "pusht_ur5e"), (PICK, "panda_bimanual")]
)
def test_a_cell_that_says_nothing_here_is_refused(cell: Path, scene: str) -> None:
    with pytest.raises(ConfigError, match="its limits say nothing there"):
        recorded_in(cell, load_scene(scene), force_stop=False)
    # Moved by --robot nobody named it for its limits.
    assert known_of(load_cell(cell), load_scene(scene), force_stop=False) == OfCell()


def test_without_a_cell_it_is_said_what_the_scene_lacks() -> None:
    scene = load_scene("pick_place_ur5e")
    known, (remark,) = recorded_in(None, scene, force_stop=False)
    assert known == OfCell()
    assert "Give the file of its cell" in remark
    assert recorded_in(None, load_scene("pusht_ur5e"), force_stop=False)[1] == []
    arm = {**scene.config.control["arms"][0], "limits": {"max_speed": 0.5}}
    control = {**scene.config.control, "arms": [arm]}
    limited = dataclasses.replace(scene, config=dataclasses.replace(scene.config, control=control))
    assert recorded_in(None, limited, force_stop=False)[1] == []
