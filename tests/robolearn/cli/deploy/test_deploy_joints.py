"""``robolearn deploy`` on joint-space cells: the emulated SO-101 in MuJoCo, the emulated xArm."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import yaml

from eval.trials.table import read_trials
from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION
from robolearn.cli.deploy import command as deploy
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.operations.cell import opened
from robolearn.operations.deploy import policy as deploy_policy
from robolearn.operations.deploy import run as deploy_run
from tests.hardware.joint_reach import GOAL, BuildReach
from tests.hardware.lab import PATIENT, address

CONFIGS = Path(__file__).parents[4] / "configs"


def cell_file(name, folder, changes):
    """A shipped lab's file with a port or address of the test, and a suite of two postures."""
    path = CONFIGS / "hardware" / f"lab_{name}.yaml"
    raw = yaml.safe_load(path.read_text().replace("calibration/", f"{path.parent}/calibration/"))
    robot, home = raw["robot"], raw["robot"]["joints"]["home"]
    raw["lab"] |= changes
    robot["supervisor"] = {**PATIENT, "state_late_s": 0.3, "state_stale_s": 0.8, "goto_speed": 0.9}
    robot["goals"] = [{"name": GOAL, "size": len(home), "unit": "rad"}]
    robot["driver"]["silence_s"] = 1.0
    if "port" in robot["driver"]:
        raw["lab"]["devices"]["link"] = robot["driver"]["port"] = str(folder / "bus")
    else:
        robot["driver"]["address"] = robot["gripper"]["driver"]["address"] = address(64)
    start, goal = ([home[0] + turn, *home[1:]] for turn in (0.1, -0.1))
    near = [
        {"id": f"c{i}", "seed": i, "poses": {JOINT_POSITION: start, GOAL: goal}} for i in (1, 2)
    ]
    suite = yaml.safe_load((CONFIGS / "eval" / "so101_reach.yaml").read_text())
    (folder / "suite.yaml").write_text(yaml.safe_dump({**suite, "subset": 2, "conditions": near}))
    (folder / "cell.yaml").write_text(yaml.safe_dump(raw))
    return folder / "cell.yaml", len(home)


def arguments(folder, cell, *more):
    out, suite = str(folder / "out"), str(folder / "suite.yaml")
    given = ("walk", "--robot", str(cell), "--out", out, "--suite", suite)
    return [*given, "--start-lab", "--yes", "--max-steps", "25", "--json", *more]


@pytest.fixture
def deployed(monkeypatch):
    def prepare(joints):
        monkeypatch.setattr(deploy_policy, "policy_builder", lambda *_, **__: BuildReach(joints))
        monkeypatch.setattr(deploy_policy, "policy_hash", lambda run: "reach")
        monkeypatch.setattr(deploy_policy, "run_provenance", lambda run: {})
        monkeypatch.setattr(opened, "take_real_time", lambda *_, **__: False)

    return prepare


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="port 502 is open to root only")
ARMS = [
    pytest.param("so101", {"world": "mujoco"}, 2, id="so101"),
    pytest.param("xarm", {"world": "kinematic"}, 1, marks=ROOT_ONLY, id="xarm"),
]


@pytest.mark.parametrize(("name", "changes", "episodes"), ARMS)
def test_trials_of_a_joint_space_cell(name, changes, episodes, tmp_path, deployed, capsys):
    cell, joints = cell_file(name, tmp_path, changes)
    deployed(joints)
    assert deploy.main(arguments(tmp_path, cell, "--episodes", str(episodes))) == 0
    document = json.loads(capsys.readouterr().out)
    trials = read_trials(tmp_path / "out")
    assert [t.success for t in trials] == [True] * episodes
    assert {t.engine for t in trials} == {f"virtual lab, {changes['world']}"}
    assert document["mean_score"] == 1.0
    store = EpisodeStore.open(tmp_path / "out" / "store")
    for trial, told in zip(trials, document["trials"], strict=True):
        assert told["start"].startswith("nothing to place; arm/joint_position off by 0.0")
        episode = store.read(trial.episode)
        goal = np.array(load_cell(cell).joints.home) - 0.1 * np.eye(joints)[0]
        np.testing.assert_allclose(episode.observed(GOAL)[-1], goal)
        # The tick that reached it is the last one's outcome; it was seen one command earlier.
        first = episode.observed(JOINT_POSITION)[:, 0]
        assert goal[0] - 0.02 < first[-1] < first[0] - 0.05
        assert (tmp_path / "out" / trial.video).stat().st_size > 1000
        # The policy knows of no gripper: it stays as the reset left it, and is recorded so.
        if load_cell(cell).gripper is not None:
            np.testing.assert_allclose(episode.action["gripper/width"], 0.084)


@pytest.mark.parametrize("option", ["--shadow", "--dry-run"])
def test_nothing_moves_when_only_looking(option, tmp_path, deployed, capsys, monkeypatch):
    cell, joints = cell_file("so101", tmp_path, {"world": "kinematic"})
    deployed(joints)
    moved = []
    for name in ("goto", "apply"):
        monkeypatch.setattr(deploy_run.RealEnv, name, lambda *_, name=name: moved.append(name))
    assert deploy.main(arguments(tmp_path, cell, option, "--max-steps", "3")) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["episodes"], moved) == (0, [])
    assert not (tmp_path / "out" / "store").exists()
    home = load_cell(cell).joints.home
    if option == "--shadow":
        # The policy wants from the home posture to the goal, a tenth of a radian away.
        assert document["shadow"]["ticks"] == 3
        assert document["shadow"]["max"] == pytest.approx(0.1, abs=0.02)
    else:
        first = np.array(document["shadow"]["first_action"])
        np.testing.assert_allclose(first, np.array(home) - 0.1 * np.eye(joints)[0], atol=0.02)


def test_the_operators_keys_score_a_joint_space_cell(tmp_path, deployed, capsys, monkeypatch):
    cell, joints = cell_file("so101", tmp_path, {"world": "kinematic"})
    deployed(joints)
    operator, terminal = os.openpty()
    pressed = iter(b"sf")

    def press(self, tick):
        if tick.index == 2:
            os.write(operator, bytes([next(pressed)]))

    monkeypatch.setattr(deploy_run.HoldAtEnd, "on_tick", press)
    with os.fdopen(terminal, "r") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        options = ("--episodes", "2", "--score", "operator", "--no-video", "--operator", "me")
        assert deploy.main(arguments(tmp_path, cell, *options)) == 0
    os.close(operator)
    assert json.loads(capsys.readouterr().out)["successes"] == 1
    trials = read_trials(tmp_path / "out")
    assert [(t.success, t.reason, t.score) for t in trials] == [
        (True, "success", 1.0),
        (False, "failure", 0.0),
    ]
    assert {t.operator for t in trials} == {"me"}
    assert all(2 < t.steps < 25 for t in trials)


def test_a_suite_of_another_task_is_refused(tmp_path, deployed):
    cell, joints = cell_file("so101", tmp_path, {"world": "kinematic"})
    deployed(joints)
    other = ("--suite", str(CONFIGS / "eval" / "pusht.yaml"))
    with pytest.raises(ConfigError, match="which cell 'lab_so101' does not have"):
        deploy.main([*arguments(tmp_path, cell), *other])


def test_a_checkpoint_of_another_arm_is_refused_before_anything_starts(tmp_path, deployed):
    cell, joints = cell_file("so101", tmp_path, {"world": "kinematic"})
    deployed(joints + 2)
    with pytest.raises(
        SpecMismatchError, match=r"joint_position, shape: wanted \(7,\), got \(5,\)"
    ):
        deploy.main(arguments(tmp_path, cell))
