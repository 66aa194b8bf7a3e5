"""A robot that stops itself: its own words reach the operator and the trial, and a person who
collects goes on.
"""

import json
import time

import numpy as np
import pytest

from eval.trials.table import read_trials
from hardware.teleop.device import DeviceReading, Steps
from robolearn.cli.main import main as robolearn
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.cell import collect as cell_collect
from robolearn.operations.cell import opened
from robolearn.operations.cell.driving import HoldAtEnd
from robolearn.operations.collect import CollectConfig
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.stores.collect_options import CellOptions, CollectOptions
from tests.hardware.teleop.answering import Answering
from tests.robolearn.cli.deploy import test_deploy as ur_cell
from tests.robolearn.cli.deploy import test_deploy_joints as joint_cell

config, deployed = ur_cell.config, joint_cell.deployed


@pytest.fixture
def fail_in(monkeypatch):
    """``fail_in(kind, **arguments)``: a fault of the lab's controller in the third tick."""
    labs = []

    class Remembered(opened.LabProcess):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            labs.append(self)

    def prepare(kind, **arguments):
        def on_tick(self, tick):
            if tick.index == 2:
                with labs[-1].where.connect() as door:
                    door.fault(kind, **arguments)

        monkeypatch.setattr(opened, "LabProcess", Remembered)
        monkeypatch.setattr(HoldAtEnd, "on_tick", on_tick)

    return prepare


def require_told(out, words, capsys):
    """The words are in the row of the trial, in ``deploy.json`` and on standard error."""
    for trial in (trials := read_trials(out)):
        assert (trial.status, trial.reason, trial.success) == ("aborted", "safety_stop", False)
        assert "robot_fault" in trial.note
        assert words in trial.note
    details = json.loads((out / "deploy.json").read_text())["trials"]
    assert len(details) == len(trials)
    assert all(words in detail["aborted"] for detail in details)
    assert words in capsys.readouterr().err
    return len(trials)


def test_a_protective_stop_of_a_ur(config, tmp_path, fail_in, capsys):
    fail_in("protective_stop")
    more = ("--start-lab", "--episodes", "3", "--no-video", "--go-on-after-stop", "1")
    given = ur_cell.arguments(config, tmp_path, *more)
    # Nothing that a connected program may clear: a lab's is unlocked as by a person, and the second
    # one is what ends it.
    assert robolearn(["deploy", *given]) == 2
    words = "safety mode PROTECTIVE_STOP, robot mode RUNNING"
    assert require_told(tmp_path / "out", words, capsys) == 2


FAULTS = [
    ("so101", "error", {"servo": 3.0, "bits": 32.0}, "servo 3 (elbow_flex) reports overload"),
    pytest.param(
        *("xarm", "error", {"code": 31.0}, "error 31 (Collision Caused Abnormal Current)"),
        marks=joint_cell.ROOT_ONLY,
    ),
]


@pytest.mark.parametrize(("name", "kind", "arguments", "words"), FAULTS)
def test_a_fault_of_a_joint_space_arm(
    name, kind, arguments, words, tmp_path, deployed, fail_in, capsys
):
    cell, joints = joint_cell.cell_file(name, tmp_path, {"world": "kinematic"})
    deployed(joints)
    fail_in(kind, **arguments)
    given = joint_cell.arguments(tmp_path, cell, "--episodes", "1", "--no-video")
    assert robolearn(["deploy", *(a for a in given if a != "--json")]) == 2
    assert require_told(tmp_path / "out", words, capsys) == 1


class Still(Answering):
    """Somebody whose hand stays where it is."""

    name = "keyboard"

    def begin(self, opening):
        del opening

    def poll(self):
        return DeviceReading(time.monotonic_ns(), True, True, Steps(np.zeros(6)))


def test_a_person_who_collects_goes_on_after_a_protective_stop(
    config, tmp_path, fail_in, monkeypatch
):
    fail_in("protective_stop")
    # Without the release of the robot itself every clearing were refused, and nobody is left who
    # presses start.
    person = Still(ready=["start", "quit"], review=["keep"], stopped=["start"])
    monkeypatch.setattr(cell_collect, "open_device", lambda *_: person)
    wanted = CollectConfig(robot=str(config), suite=str(ur_cell.suite(tmp_path)))
    found = cell_collect.collect_on_cell(
        wanted,
        tmp_path / "store",
        CellOptions(start_lab=True),
        Unattended(agreed=True),
        CollectOptions(episodes=2),
    )
    phases = [v.phase for v in person.views]
    order = [p for k, p in enumerate(phases) if k == 0 or phases[k - 1] != p]
    assert order == [
        "resetting", "ready", "running", "review", "stopped", "resetting", "ready", "resetting",
        "done",
    ]  # fmt: skip
    said = next(v for v in person.views if v.phase == "stopped")
    assert "PROTECTIVE_STOP" in said.error
    assert said.message == "The arm stopped. Look at the cell; start clears it and goes on."
    (episode,) = found.saved
    outcome = EpisodeStore.open(tmp_path / "store").read(episode).meta.outcome
    assert (outcome.reason, outcome.success) == ("safety_stop", False)
