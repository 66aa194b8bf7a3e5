"""A recorded episode is played on the virtual lab's arm; others are refused before it moves."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION, TOOL_POSE
from hardware.cell.spec import cell_spec
from hardware.devices.gripper_config import GripperCellConfig
from hardware.env.real_env import RealEnv
from robolearn.arms.tool_commands import values_from_pose
from robolearn.cli.main import main
from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.geometry import pose, rot_x, rot_z
from robolearn.operations.cell import opened
from robolearn.operations.cell import replay as replaying
from robolearn.operations.cell.recorded_path import slowed
from robolearn.operations.cell.replay import ArmReplayOptions, replay_on_arm
from robolearn.operations.deploy.operator import Unattended
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Condition, Outcome
from tests.hardware.env.test_real_env_tool import cell as tool_cell
from tests.hardware.lab import CONFIG, cell_file

STEPS = 16
WIDTH = "gripper/width"
SO101 = CONFIG.parent / "lab_so101.yaml"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The lab's file for an engine-less lab at an address of its own."""
    monkeypatch.setattr(opened, "take_real_time", lambda *_, **__: False)
    return cell_file(tmp_path, 81)


def drawn(config: Path, *, start: float = 0.2) -> Episode:
    """The tool is drawn along a line of 6 cm in 1.5 s, as the cell records it."""
    spec = cell_spec(load_cell(config))
    # Another arm drew it, whose joints say nothing about this one's.
    signals = tuple(s for s in spec.signals if s.name in (TOOL, BLOCK, JOINT_POSITION))
    joints = np.full((STEPS, 6), 2.0)
    way = np.stack([np.linspace(start, start + 0.06, STEPS), np.full(STEPS, 0.3)], axis=1)
    block = np.tile([0.35, 0.15, 0.4], (STEPS, 1))
    poses = {TOOL: (9.0, 9.0), BLOCK: (0.35, 0.15, 0.4)}
    meta = EpisodeMeta(
        "demonstration",
        "pusht",
        dataclasses.replace(spec, name="another", signals=signals),
        Condition("c0", 0, poses),
        Outcome(False, 0.0, 0.0, truncated=True, reason="operator"),
    )
    seen = {TOOL: way, BLOCK: block, JOINT_POSITION: joints}
    return episode_from_arrays(meta, seen, {TOOL: way}, progress=np.zeros(STEPS))


def stored(path: Path, *episodes: Episode) -> Path:
    with EpisodeStore.create(path).writer() as writer:
        for episode in episodes:
            writer.append(episode)
    return path


def changed(episode: Episode, values: np.ndarray) -> Episode:
    return dataclasses.replace(episode, action={TOOL: values})


def test_an_episode_is_played_on_the_labs_arm_and_its_error_reported(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = stored(tmp_path / "store", drawn(config))
    argv = ["replay", str(store), "--robot", str(config), "--start-lab", "--speed", "0.8", "--yes"]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["episode"], found["ended"], found["steps"]) == ("ep_000000", "whole", 19)
    assert found["start"].startswith("placed by the lab; block/pose off by")
    (tool,) = found["tracking"]
    # The arm follows a moving command by its lag: 3 cm/s for a tenth or two of a second.
    assert (tool["signal"], tool["unit"]) == (TOOL, "m")
    assert tool["most"] < 0.02
    assert tool["median"] > 0.0


@pytest.mark.parametrize("action", ["tool/xyz_yaw", "tool/pose"])
def test_a_tool_and_its_fingers_go_the_recorded_way(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placed, turned and let go of something, 5 cm aside within a second."""
    gripper = GripperCellConfig({"kind": "fake"}, high_m=0.08)
    where = dataclasses.replace(tool_cell(action=action), gripper=gripper)
    steps, spec = 20, cell_spec(where)
    xyz = np.linspace((0.02, 0.03, 0.2), (0.05, 0.0, 0.17), steps)
    turn, width = np.linspace(0.0, 0.3, steps), np.repeat([[0.02], [0.06]], steps // 2, axis=0)
    poses = np.stack(
        [
            values_from_pose(pose(rot_z(a) @ rot_x(np.pi), at))
            for a, at in zip(turn, xyz, strict=True)
        ]
    )
    commanded = poses if action == TOOL_POSE else np.concatenate([xyz, turn[:, None]], axis=1)
    seen = {TOOL_POSE: poses, WIDTH: width}
    signals = tuple(s for s in spec.signals if s.name in seen)
    meta = EpisodeMeta(
        "demonstration",
        "free",
        dataclasses.replace(spec, signals=signals),
        Condition("c0", 0, {}),
        Outcome(True, 1.0, 1.0, terminal=True),
    )
    episode = episode_from_arrays(
        meta, seen, {action: commanded, WIDTH: width}, progress=np.zeros(steps)
    )
    store = stored(tmp_path / "store", episode)
    monkeypatch.setattr(replaying, "load_cell", lambda _: where)
    monkeypatch.setattr(opened, "take_real_time", lambda *_, **__: False)
    played: list[np.ndarray] = []
    ended = RealEnv.home
    monkeypatch.setattr(
        RealEnv, "home", lambda env: (played.append(env.observe().value(WIDTH)), ended(env))
    )
    options = ArmReplayOptions(store=store, robot=Path("cell.yaml"))
    found = replay_on_arm(options, Unattended(agreed=True))
    assert (found.ended, found.steps) == ("whole", steps)
    # The arm lags behind what it is told; the recording is what it was told.
    assert {t.signal for t in found.tracking} == {TOOL_POSE}
    assert 0.0 < found.tracking[0].most < 0.03
    np.testing.assert_allclose(played[0], [0.06], atol=2e-3)


def test_what_cannot_be_played_is_refused_before_anything_is_connected(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(*_: object, **__: object) -> None:
        raise AssertionError("a device was touched")

    monkeypatch.setattr(opened, "RealEnv", connected)
    monkeypatch.setattr(opened, "LabProcess", connected)

    def refused(episode: Episode, name: str, error: type[Exception], words: str, **more) -> None:
        store = stored(tmp_path / name, episode)
        options = ArmReplayOptions(store=store, robot=config, start_lab=True, **more)
        with pytest.raises(error, match=words):
            replay_on_arm(options, Unattended(agreed=True))

    line = drawn(config).action[TOOL]
    refused(
        drawn(config, start=0.6), "outside", DataError, "leaves what this cell may do at tick 0"
    )
    started = drawn(config)
    seen = dataclasses.replace(started.streams[TOOL], value=line + 0.6)
    started = dataclasses.replace(started, streams={**started.streams, TOOL: seen})
    refused(started, "start", DataError, r"the start of ep_000000 is outside .* may do")
    jump = line.copy()
    jump[8:, 1] -= 0.2
    refused(changed(drawn(config), jump), "jump", DataError, r"jumps by \[0.004, 0.2\] from tick 7")
    other = drawn(config)
    spec = dataclasses.replace(other.meta.embodiment, rate_hz=20.0)
    other = dataclasses.replace(other, meta=dataclasses.replace(other.meta, embodiment=spec))
    refused(other, "rate", SpecMismatchError, r"control rate \[Hz\]: wanted 20, got 10")
    arm = cell_spec(load_cell(SO101))
    arm = dataclasses.replace(
        arm, signals=tuple(s for s in arm.signals if s.name == JOINT_POSITION)
    )
    at = np.zeros((STEPS, *arm.actions[0].shape))
    action = {a.name: np.zeros((STEPS, *a.shape)) for a in arm.actions}
    meta = dataclasses.replace(other.meta, embodiment=arm)
    joints = episode_from_arrays(meta, {JOINT_POSITION: at}, action, progress=np.zeros(STEPS))
    refused(joints, "arm", SpecMismatchError, f"action {JOINT_POSITION}: wanted .*absent")
    # The same joints of an arm of another name: the numbers may be another posture.
    renamed = dataclasses.replace(meta, embodiment=dataclasses.replace(arm, name="other"))
    joints = dataclasses.replace(joints, meta=renamed)
    options = ArmReplayOptions(store=stored(tmp_path / "named", joints), robot=SO101)
    with pytest.raises(SpecMismatchError, match="joint positions of 'other'"):
        replay_on_arm(options, Unattended(agreed=True))
    with pytest.raises(AssertionError, match="a device was touched"):
        replay_on_arm(
            dataclasses.replace(options, another_arm=True, start_lab=True), Unattended(agreed=True)
        )


def test_numbers_that_are_none_are_refused(config: Path) -> None:
    # No store takes such an episode; one in memory is refused all the same.
    line = drawn(config).action[TOOL].copy()
    line[5, 0] = np.nan
    broken = dataclasses.replace(changed(drawn(config), line), id="ep_000000")
    cell = load_cell(config)
    options = ArmReplayOptions(store=Path("none"), robot=config)
    with pytest.raises(DataError, match=f"'{TOOL}' is not a number at tick 5"):
        replaying.prepare_replay(broken, cell, options)
    with pytest.raises(ConfigError, match="speed must be above 0 and at most 1"):
        ArmReplayOptions(store=Path("none"), robot=config, speed=1.5)


def test_a_slower_replay_goes_the_same_way() -> None:
    line = np.linspace(0.0, 1.0, 11)[:, None]
    half = slowed(line, "tool/xy_table", 0.5)
    np.testing.assert_allclose(half[:, 0], np.linspace(0.0, 1.0, 21), atol=1e-12)
    np.testing.assert_array_equal(slowed(line, "tool/xy_table", 1.0), line)
    turn = np.array([[0.0, 0.0, 0.0, 3.1], [0.0, 0.0, 0.0, -3.1]])
    yaw = slowed(turn, "tool/xyz_yaw", 0.5)[1, 3]
    assert abs(abs(yaw) - np.pi) < 1e-9
    pose = np.array([[0, 0, 0, 1.0, 0, 0, 0], [0, 0, 0, -1.0, 0, 0, 0]])
    np.testing.assert_allclose(np.abs(slowed(pose, "tool/pose", 0.5)[1, 3]), 1.0)


def test_the_command_says_which_flags_belong_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = str(tmp_path / "none")
    for argv, words in (
        (["replay", store], "say where"),
        (["replay", store, "--scene", "pusht_reference", "--robot", "x.yaml"], "say where"),
        (["replay", store, "--scene", "pusht_reference", "--speed", "0.5"], "--speed: for --robot"),
        (
            ["replay", store, "--scene", "pusht_reference", "--max-tool-speed", "0.1", "--yes"],
            "--max-tool-speed, --yes: for --robot",
        ),
        (["replay", store, "--scene", "robosuite/Lift", "--after", "1"], "--after: of Push-T"),
        (["replay", store, "--robot", "x.yaml", "--after", "1"], "--after: for --scene"),
        (["replay", store, "--robot", "x.yaml", "--episodes", "2"], "an arm plays one --episode"),
        (["replay", store, "--robot", str(SO101)], "there is no terminal to ask"),
        (["replay", store, "--robot", str(SO101), "--yes"], "none"),
    ):
        assert main(argv) == 2
        assert words in capsys.readouterr().err
