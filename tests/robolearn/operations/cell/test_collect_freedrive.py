"""Somebody guides an arm by hand, and episodes of it are recorded."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hardware.cell.config import CellConfig
from hardware.devices.gripper_config import GripperCellConfig
from hardware.emulators.lab.admin import LabClient
from hardware.teleop.device import DeviceReading, Guided, View
from robolearn.arms.models import UR5E
from robolearn.cli.main import main
from robolearn.config import from_dict
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import RobotError
from robolearn.operations.cell import collect as cell_collect
from robolearn.operations.cell import opened
from robolearn.operations.cell.collect import collect_on_cell
from robolearn.operations.collect import CollectConfig
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.stores.collect_options import CellOptions, CollectOptions
from tests.hardware.commissioning.test_check import CELL
from tests.hardware.env.test_real_env_tool import cell
from tests.hardware.lab import HOME
from tests.hardware.real_cell import prompt_lab
from tests.hardware.teleop.answering import Answering

JOINTS = f"""
name: guided_cell
driver: {{kind: ur, rate_hz: 125.0, watchdog_hz: 2.0}}
arm: ur5e
joints:
  home: {list(HOME)}
  limits: {{low: [-3.0, -3.0, -3.0, -3.0, -3.0, -3.0], high: [3.0, 3.0, 3.0, 3.0, 3.0, 3.0],
           speed: [2.0, 2.0, 2.0, 2.0, 2.0, 2.0], acceleration: [8.0, 8.0, 8.0, 8.0, 8.0, 8.0]}}
  max_tool_speed: null
rate_hz: 10
# A busy machine must not end freedrive.
supervisor: {{late_s: 0.4, heartbeat_s: 0.4, frozen_s: 2.0, state_late_s: 0.4,
  state_stale_s: 1.0}}
"""


class Guide(Answering):
    """Guides the arm, is at the keys for so many looks, and presses what the screen calls for."""

    name = "freedrive"

    def __init__(self, looks: int = 1000, **answers: list[str]) -> None:
        super().__init__(**answers)
        self.looks = looks
        self.opening: float | None = None

    def begin(self, opening: float | None) -> None:
        self.opening = opening

    def poll(self) -> DeviceReading:
        self.looks -= 1
        here = self.looks >= 0
        return DeviceReading(time.monotonic_ns(), here, here, Guided(), self.opening)

    def do(self, key: str) -> None:
        """Press it; "g" closes the gripper."""
        if key == "g":
            self.opening = 0.0
        else:
            super().do(key)


class Puller(Guide):
    """Pulls the emulated arm aside once it gives way, and says solved when it is there."""

    def __init__(self, door: LabClient) -> None:
        super().__init__(ready=["start"], review=["keep"])
        self._door, self._pulls = door, False
        self.goal = UR5E.fk(np.array(HOME))[:3, 3] + np.array([0.0, 0.03, 0.03])

    def show(self, view: View) -> None:
        super().show(view)
        # A busy machine is late, which asks whether to keep it all the same.
        assert "The arm holds" not in view.message, view
        assert view.phase != "stopped", view
        if view.phase != "running":
            return
        if not self._pulls:
            self._door.call("hand", to=self.goal.tolist(), force=40.0)
            self._pulls = True
        elif view.step == 18:
            self._door.call("hand")
            self.due = ("success",)


def collect(
    monkeypatch: pytest.MonkeyPatch, where: CellConfig, person: Guide, out: Path, episodes: int = 10
) -> Any:
    monkeypatch.setattr(cell_collect, "load_cell", lambda _: where)
    monkeypatch.setattr(cell_collect, "open_device", lambda *_: person)
    # A test must not have priority over the threads of the arm's client.
    monkeypatch.setattr(opened, "take_real_time", lambda *_, **__: False)
    return collect_on_cell(
        CollectConfig(robot="cell.yaml", agent="freedrive"),
        out,
        CellOptions(),
        Unattended(agreed=True),
        CollectOptions(episodes=episodes),
    )


def test_a_hand_guides_the_emulated_arm_and_every_action_is_the_next_pose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prompt_lab(tmp_path, 33, 30133) as lab, lab.where.connect() as door:
        where = from_dict(CellConfig, yaml.safe_load(JOINTS), "cell")
        driver = {**where.driver, "address": lab.where.address}
        person = Puller(door)
        where = dataclasses.replace(where, driver=driver)
        found = collect(monkeypatch, where, person, tmp_path / "store", episodes=1)
    episode = EpisodeStore.open(tmp_path / "store").read(found.saved[0])
    joints = episode.observed("arm/joint_position")
    # Guided all the way: the hand brought the arm to where it wanted it.
    reached = UR5E.fk(joints[-1].astype(np.float64))[:3, 3]
    assert np.linalg.norm(reached - person.goal) < 0.015
    action = episode.action["arm/joint_position"]
    np.testing.assert_allclose(action[:-1], joints[1:], atol=1e-7)
    assert np.abs(np.diff(action, axis=0)).max() > 0.001
    assert set(episode.source) == {"human:freedrive"}
    assert set(episode.drivers) == {"human"}
    assert episode.meta.provenance["actions"] == "measured at the next tick"
    assert episode.meta.outcome.success
    # Nobody sent a set-point, and nothing had to intervene.
    assert len(episode.sent.seq) == 0
    assert not episode.streams["supervisor/event"].value[:, 0].any()


def test_the_gripper_is_on_the_keys_and_whoever_leaves_them_ends_the_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gripper = GripperCellConfig({"kind": "fake"}, high_m=0.08, max_age_s=2.0)
    where = dataclasses.replace(cell(), gripper=gripper)
    person = Guide(12, ready=["start"], running=["", "g"], review=["keep"])
    found = collect(monkeypatch, where, person, tmp_path / "store", episodes=1)
    episode = EpisodeStore.open(tmp_path / "store").read(found.saved[0])
    assert episode.meta.outcome.reason == "freedrive_ended"
    assert episode.source[:11] == ("human:freedrive",) * 11
    assert episode.source[-1] == "hold"
    assert (episode.action["gripper/width"][[0, -1], 0] == [0.08, 0.0]).all()
    assert episode.observed("gripper/width")[-1, 0] < 0.04
    said = next(v.message for v in person.views if v.phase == "review")
    assert "nobody is at the keys" in said


def test_an_arm_without_freedrive_is_refused_before_it_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = from_dict(CellConfig, yaml.safe_load(CELL)["robot"], "cell")
    person = Guide()
    with pytest.raises(RobotError, match="its driver has no freedrive"):
        collect(monkeypatch, where, person, tmp_path / "store")
    assert not person.views
    assert not (tmp_path / "store").exists()


def test_a_world_and_a_policy_have_no_arm_to_guide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "store")]
    by = ["--policy", "run", "--corrected-by", "freedrive"]
    for argv, words in (
        (["collect", *out, "--env", "pick_place", "--agent", "freedrive"], "world has none"),
        (["teleoperate", "--env", "pick_place", "--agent", "freedrive"], "world has none"),
        (["collect", *out, "--robot", "x.yaml", *by], "takes over from no policy"),
    ):
        assert main(argv) == 2
        assert words in capsys.readouterr().err, argv
