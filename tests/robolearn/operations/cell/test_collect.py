"""A person, and an expert, record on a cell: one over the fake robot, no lab."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.teleop.device import DeviceReading, Steps
from robolearn.cli.main import main
from robolearn.data.markers import marked_s
from robolearn.data.store.annotations import Annotated
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError
from robolearn.operations.cell import collect as cell_collect
from robolearn.operations.cell.collect import collect_on_cell, teleoperate_on_cell
from robolearn.operations.collect import CollectConfig
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.pictures.overlay import StartOverlay
from robolearn.operations.stores.collect_options import CellOptions, CollectOptions
from robolearn.operations.stores.collection import CollectListener, Place
from tests.hardware.env.test_real_env_tool import cell
from tests.hardware.teleop.answering import Answering

ALL_OF_IT = CellOptions()


class Person(Answering):
    """Pushes the tool up by a millimetre per look, and presses what the screen calls for."""

    name = "keyboard"

    def __init__(self, **answers: list[str]) -> None:
        super().__init__(**answers)
        self.total = np.zeros(6)

    def begin(self, opening: float | None) -> None:
        del opening

    def poll(self) -> DeviceReading:
        self.total[2] += 0.001
        return DeviceReading(time.monotonic_ns(), True, True, Steps(self.total.copy()))


@pytest.fixture
def robot(monkeypatch: pytest.MonkeyPatch) -> Path:
    # Its time limits are those of a busy machine, which no file may have.
    monkeypatch.setattr(cell_collect, "load_cell", lambda _: cell())
    return Path("cell.yaml")


def seat(monkeypatch: pytest.MonkeyPatch, person: Person) -> None:
    monkeypatch.setattr(cell_collect, "open_device", lambda *_: person)


def test_a_person_records_on_a_cell_stops_it_and_goes_on(
    robot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(
        ready=["start", "start", "quit"],
        # The stop latches; cleared by a key, the same session goes on.
        running=["", "", "stop", *[""] * 8, "marker", "", "", "success"],
        review=["discard", "keep"],
        stopped=["start"],
    )
    seat(monkeypatch, person)
    told: list[str] = []
    found = collect_on_cell(
        CollectConfig(robot=str(robot), task_text="lift the tool"),
        tmp_path / "store",
        ALL_OF_IT,
        Unattended(agreed=True),
        CollectOptions(episodes=2, play=True),
        listener=CollectListener(on_saved=told.append),
    )
    phases = [v.phase for v in person.views]
    order = [p for k, p in enumerate(phases) if k == 0 or phases[k - 1] != p]
    assert order == [
        "resetting", "ready", "running", "review",
        "stopped", "resetting", "ready", "running", "review",
        "resetting", "ready", "resetting", "done",
    ]  # fmt: skip
    assert person.closed
    assert told == list(found.saved)
    episode = EpisodeStore.open(tmp_path / "store").read(found.saved[0])
    assert (episode.meta.kind, episode.meta.task) == ("play", "free")
    assert episode.meta.outcome.success
    assert episode.meta.task_text == "lift the tool"
    assert set(episode.source) == {"human:keyboard"}
    assert episode.meta.provenance["robot"]["name"] == "tool_cell"
    assert episode.meta.provenance["devices"]["robot"]["kind"] == "fake"
    assert len(marked_s(episode, Annotated())) == 1
    # The hand moved the tool up.
    height = episode.action["tool/xyz_yaw"][:, 2]
    assert height[-1] > height[0]


def test_driving_a_cell_writes_nothing(
    robot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(ready=["start", "quit"], running=["", "redo"])
    seat(monkeypatch, person)
    before = set(tmp_path.iterdir())
    teleoperate_on_cell(CollectConfig(robot=str(robot)), ALL_OF_IT, Unattended(agreed=True))
    assert set(tmp_path.iterdir()) == before
    assert not any(v.recording for v in person.views)


def test_the_page_draws_the_goal_of_this_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    person, places = Person(ready=["quit"]), list[Place]()

    def opened(_config: object, _who: object, place: Place, *_: object) -> Person:
        places.append(place)
        return person

    goal = {"goal": [0.1, 0.2, 0.3]}
    monkeypatch.setattr(
        cell_collect, "load_cell", lambda _: dataclasses.replace(cell(), task_params=goal)
    )
    monkeypatch.setattr(cell_collect, "open_device", opened)
    teleoperate_on_cell(CollectConfig(robot="cell.yaml"), ALL_OF_IT, Unattended(agreed=True))
    assert [place.task_params for place in places] == [goal]


def test_what_cannot_be_done_is_refused_before_anything_is_connected(
    robot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(*_: object) -> None:
        raise AssertionError("a device was touched")

    monkeypatch.setattr(cell_collect, "open_cell", connected)
    config = CollectConfig(robot=str(robot))

    def refused(words: str, given: CollectConfig = config, **more: Any) -> None:
        cell = more.pop("cell", ALL_OF_IT)
        options = CollectOptions(**more)
        with pytest.raises(ConfigError, match=words):
            collect_on_cell(given, tmp_path / "store", cell, Unattended(agreed=True), options)

    refused("describes a real cell", cell=CellOptions(start_lab=True))
    refused("give a suite", agent="scripted")
    refused("'scripted' is none|give a suite", agent="scripted", play=True)
    refused("nobody is called 'keyboards'", agent="keyboards")
    refused("noise is for the agent scripted", agent="keyboard", noise=0.2)
    refused("at least 1", episodes=0)
    refused("say which cell", CollectConfig(world="pick_place"))
    assert not (tmp_path / "store").exists()


def test_nobody_agreed_and_nothing_moves(
    robot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person()
    seat(monkeypatch, person)
    with pytest.raises(ConfigError, match="the arm will move"):
        collect_on_cell(
            CollectConfig(robot=str(robot)),
            tmp_path / "store",
            ALL_OF_IT,
            Unattended(agreed=False),
        )
    assert not person.views
    assert not (tmp_path / "store").exists()


def test_the_command_says_which_flags_belong_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "store")]
    for argv, words in (
        (["collect", *out, "--env", "pick_place", "--robot", "x.yaml"], "leave one of them out"),
        (["collect", *out, "--env", "pick_place", "--start-lab"], "--start-lab: of which cell?"),
        (
            ["teleoperate", "--env", "pick_place", "--max-joint-speed", "1"],
            "--max-joint-speed: of which cell?",
        ),
        (["collect", *out, "--env", "pick_place", "--suite", "x.yaml"], "is for a robot"),
        (["collect", *out, "--robot", "x.yaml", "--policy", "run"], "robolearn deploy"),
        (["collect", *out, "--env", "pick_place", "--agent", "scripted", "--play"], "is none"),
        (["teleoperate", "--env", "pick_place", "--agent", "scripted"], "is none"),
        (["teleoperate"], "say where"),
    ):
        assert main(argv) == 2
        assert words in capsys.readouterr().err, argv
    assert not (tmp_path / "store").exists()


def test_an_overlay_that_cannot_be_shown_is_refused_before_anything_is_connected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seeing = "configs/hardware/lab_ur5e_pick_place_camera.yaml"
    suite = ["--suite", "configs/eval/pick_place.yaml"]
    on_cell = ["collect", "--out", str(tmp_path / "store"), "--yes", "--robot", seeing]
    by_hand = ["--agent", "keyboard"]
    over = "top=pick_place_ur5e"
    for argv, words in (
        (["collect", "--out", str(tmp_path / "store"), "--env", "pick_place", "--overlay", over],
         "puts things where a start wants them"),
        ([*on_cell, *by_hand, "--overlay", over], "give a suite"),
        ([*on_cell, *suite, "--agent", "scripted", "--overlay", over], "a person at a device"),
        ([*on_cell, *suite, *by_hand, "--overlay", "tob=pick_place_ur5e"], "['top', 'wrist']"),
        ([*on_cell, *suite, *by_hand, "--overlay", "top=drawer"], "does not have the suite's"),
    ):  # fmt: skip
        assert main(argv) == 2
        assert words in capsys.readouterr().err, argv
    assert not list(tmp_path.iterdir())


def test_an_overlay_is_drawn_before_anything_is_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the cell's camera and the suite's start; then the cell is opened."""
    drawn: list[str] = []

    def opened(*_: object) -> None:
        raise ConfigError("opened")

    monkeypatch.setattr(StartOverlay, "require", lambda own, start: drawn.append(start.id))
    monkeypatch.setattr(cell_collect, "open_cell", opened)
    config = CollectConfig(
        robot="configs/hardware/lab_ur5e_pick_place_camera.yaml",
        suite="configs/eval/pick_place.yaml",
    )
    options = CollectOptions(agent="keyboard", overlay="top=pick_place_ur5e")
    with pytest.raises(ConfigError, match="opened"):
        collect_on_cell(config, tmp_path / "own", ALL_OF_IT, Unattended(agreed=True), options)
    assert len(drawn) == 1
    assert not list(tmp_path.iterdir())


def test_the_page_draws_things_as_the_scene_of_the_overlay_has_them(
    robot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = list[Place]()

    def opened(_config: object, _who: object, place: Place, *_: object) -> Person:
        places.append(place)
        raise ConfigError("seen")

    monkeypatch.setattr(cell_collect, "open_device", opened)
    monkeypatch.setattr(StartOverlay, "of", lambda *_: StartOverlay("top", "pick_place_ur5e"))
    # This cell sees no cube: it is not asked for one.
    monkeypatch.setattr(cell_collect, "require_starts", lambda *_: None)
    config = CollectConfig(robot=str(robot), suite="configs/eval/pick_place.yaml")
    options = CollectOptions(agent="keyboard", overlay="top=pick_place_ur5e")
    with pytest.raises(ConfigError, match="seen"):
        collect_on_cell(config, tmp_path / "store", ALL_OF_IT, Unattended(agreed=True), options)
    assert "cube" in [outline.name for outline in places[0].outlines]
