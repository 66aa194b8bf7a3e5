"""``robolearn deploy`` with a tiny policy on the emulated arm: from the checks to the scores."""

import json
import os
import re
import socket
import threading
import time

import numpy as np
import pytest
import yaml

from eval.trials.suites import load_suite
from eval.trials.table import read_trials
from hardware.emulators.lab.launch import LabProcess
from hardware.emulators.tracker import TrackerPacket, encode_packet
from robolearn.cli.deploy import command as deploy
from robolearn.cli.deploy.terminal import TerminalOperator
from robolearn.cli.evaluation import evaluate
from robolearn.cli.main import main as robolearn
from robolearn.cli.shared.parse import parse
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import (
    CertificateError,
    ConfigError,
    RobotConnectionError,
    RobotError,
    SafetyStopError,
    SpecMismatchError,
    StartError,
    StoreLockedError,
)
from robolearn.inference.server import PolicyServer, ServeConfig
from robolearn.operations.cell import opened
from robolearn.operations.deploy import policy as deploy_policy
from robolearn.operations.deploy import run as deploy_run
from robolearn.operations.deploy.figures import lateness_ms
from robolearn.timing.latencies import Latencies
from tests.hardware.lab import CONFIG, address, cell_file
from tests.hardware.real_cell import alive
from tests.mocks import BuildWalk, WalkPolicy


@pytest.fixture
def config(tmp_path, monkeypatch):
    """The lab's file for an engine-less lab at an address of its own, and the tiny policy."""
    latencies = {"command_latency_s": 0.024, "state_latency_s": 0.002}
    path = cell_file(tmp_path, 25, **latencies)
    monkeypatch.setattr(deploy_policy, "policy_builder", lambda *_, **__: BuildWalk())
    monkeypatch.setattr(deploy_policy, "policy_hash", lambda run: "walk")
    taught = {"command_s": 0.1, "observations_s": {"tool/xy_table": 0.05}}
    monkeypatch.setattr(deploy_policy, "run_provenance", lambda run: {"latencies": taught})
    monkeypatch.setattr(opened, "take_real_time", lambda *_, **__: False)
    return path


def arguments(config, tmp_path, *more):
    out = tmp_path / "out"
    return [
        *("walk", "--robot", str(config), "--out", str(out), "--suite", str(suite(tmp_path))),
        *("--max-steps", "6", "--yes", *more),
    ]


def suite(tmp_path):
    source = CONFIG.parents[1] / "eval" / "pusht.yaml"
    path = tmp_path / "suite.yaml"
    path.write_text(source.read_text())
    return path


def test_a_cell_that_demands_a_certificate_is_not_even_connected_without(config, tmp_path):
    config.write_text(config.read_text() + "certificate: required\n")
    with pytest.raises(CertificateError, match="'lab_ur5e' demands a certificate: there is none"):
        deploy.main(arguments(config, tmp_path))
    with pytest.raises(ConfigError, match="one line"):
        deploy.main(arguments(config, tmp_path, "--accept-uncertified", " "))
    # Somebody says why: then the arm is looked for, which is not there.
    with pytest.raises(RobotConnectionError):
        deploy.main(arguments(config, tmp_path, "--accept-uncertified", "first look"))


def test_two_trials_are_run_scored_and_kept(config, tmp_path, capsys):
    code = deploy.main(
        arguments(config, tmp_path, "--start-lab", "--episodes", "2", "--json", "--operator", "me")
    )
    assert code == 0
    document = json.loads(capsys.readouterr().out)
    out = tmp_path / "out"
    assert json.loads((out / "deploy.json").read_text()) == document
    trials = read_trials(out)
    store = EpisodeStore.open(out / "store")
    assert [t.episode for t in trials] == list(store.ids())
    assert {i.kind for i in store.list()} == {"deployment"}
    for trial in trials:
        assert (trial.kind, trial.operator, trial.steps) == ("lab", "me", 6)
        assert (trial.status, trial.engine) == ("finished", "virtual lab, kinematic")
        assert trial.started.endswith("+00:00")
        assert set(trial.achieved) == {"tool/xy_table", "block/pose"}
        assert trial.metrics["inference_ms_p50"] > 0
        assert (out / trial.video).stat().st_size > 500
    assert document["certificate"] == "uncertified"
    assert document["episodes"] == len(document["trials"]) == 2
    assert document["trials"][0]["start"].startswith("placed by the lab")
    meta = store.read(trials[0].episode).meta
    assert meta.provenance["certificate"] == "uncertified"
    latencies = Latencies.of(meta.provenance)
    assert latencies.command_s == 0.024
    assert latencies.observations_s["tool/xy_table"] == 0.002
    assert document["latencies_differ"] == ["tool/xy_table: trained with 50 ms, here 2 ms"]
    devices = meta.provenance["devices"]
    assert devices["robot"] == {
        "kind": "ur",
        "address": address(25),
        "serial_number": "20235500001",
        "model": "UR5",
        "software": devices["robot"]["software"],
    }
    assert devices["tracker block/pose"] == {
        "kind": "udp",
        "address": f"{address(25)}:30120",
        "object": "block",
    }


def test_ctrl_c_stops_the_arm_and_ends_every_process(config, tmp_path, monkeypatch, capsys):
    seen = []

    def interrupt(self, tick):
        if tick.index == 2:
            seen.extend([self._env.supervisor.pid])
            raise KeyboardInterrupt

    monkeypatch.setattr(deploy_run.HoldAtEnd, "on_tick", interrupt)
    assert deploy.main(arguments(config, tmp_path, "--start-lab", "--episodes", "1")) == 130
    assert not alive(seen[0])
    assert "the arm stands; 0 finished trial(s)" in capsys.readouterr().out
    store = tmp_path / "out" / "store"
    assert EpisodeStore.open(store).ids() == ()
    # What was recorded until then is kept for repair, as the docs promise.
    assert robolearn(["data", "repair", str(store), "--recover"]) == 0
    (episode,) = EpisodeStore.open(store).ids()
    assert EpisodeStore.open(store).read(episode).steps == 2
    (trial,) = read_trials(tmp_path / "out")
    assert (trial.status, trial.reason, trial.success) == ("aborted", "interrupted", False)
    assert trial.steps == 2
    assert trial.achieved["block/pose"]


def test_a_folder_that_exists_gains_trials_and_loses_none(config, tmp_path, monkeypatch, capsys):
    """A finished trial, one that a stop cut short, one that never began; then only a look."""
    out = tmp_path / "out"
    more = ("--start-lab", "--episodes", "1", "--no-video", "--json")
    assert deploy.main(arguments(config, tmp_path, *more)) == 0
    (first,) = read_trials(out)

    def stop(self, tick):
        if tick.index == 2:
            raise SafetyStopError("the tool was pushed")

    with monkeypatch.context() as patched:
        patched.setattr(deploy_run.HoldAtEnd, "on_tick", stop)
        with pytest.raises(SafetyStopError):
            deploy.main(arguments(config, tmp_path, *more))

    def blocked(self, condition):
        raise RobotError("a hand is in the cell")

    with monkeypatch.context() as patched:
        patched.setattr(opened.LabPlacement, "__call__", blocked)
        with pytest.raises(RobotError):
            deploy.main(arguments(config, tmp_path, *more))
    capsys.readouterr()
    trials = read_trials(out)
    assert trials[0] == first
    assert [(t.status, t.reason, t.success) for t in trials] == [
        ("finished", "time_limit", False),
        ("aborted", "safety_stop", False),
        ("voided", "robot", False),
    ]
    assert "the tool was pushed; placed by the lab" in trials[1].note
    stopped = EpisodeStore.open(out / "store").meta(trials[1].episode)
    assert stopped.outcome.reason == "safety_stop"
    assert trials[2].note == "RobotError: a hand is in the cell"
    document = json.loads((out / "deploy.json").read_text())
    # An aborted trial counts as a failure; one that never began is no trial of the policy.
    assert (document["episodes"], len(document["trials"])) == (2, 3)
    assert document["trials"][1]["aborted"] == "the tool was pushed"
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    for option in ("--dry-run", "--shadow"):
        assert deploy.main(arguments(config, tmp_path, *more, option)) == 0
    capsys.readouterr()
    after = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"dry_run.json", "shadow.json"}


def test_while_a_person_is_asked_nobody_else_writes_into_the_folder(config, tmp_path, monkeypatch):
    """What is there was read by then, and is written again with the trials of this deployment."""
    store = tmp_path / "out" / "store"

    def asked(self, what):
        with pytest.raises(StoreLockedError), EpisodeStore.open(store).writer():
            pass
        raise ConfigError(f"{what}: no")

    monkeypatch.setattr(TerminalOperator, "consent", asked)
    with pytest.raises(ConfigError, match="the arm will move: no"):
        deploy.main(arguments(config, tmp_path, "--start-lab", "--episodes", "1"))
    with EpisodeStore.open(store).writer():
        pass


def test_a_killed_deployment_leaves_the_trial_that_it_had_begun(config, tmp_path, monkeypatch):
    """The row is there before the arm moves: a kill at any later time finds it."""
    seen = []
    goto = deploy_run.RealEnv.goto

    def look(self, *where):
        seen.append([t.status for t in read_trials(tmp_path / "out")])
        goto(self, *where)

    monkeypatch.setattr(deploy_run.RealEnv, "goto", look)
    more = ("--start-lab", "--episodes", "2", "--no-video", "--json")
    assert deploy.main(arguments(config, tmp_path, *more)) == 0
    assert seen[0] == ["started"]
    assert ["finished", "started"] in seen


def test_a_labs_trials_are_a_labs_also_when_it_was_started_apart(config, tmp_path):
    """Nobody places the block there: where it lies elsewhere no trial is begun, despite --yes."""
    more = ("--episodes", "1", "--no-video", "--json")
    first = load_suite(suite(tmp_path)).select(1)[0]
    with LabProcess(config, address=address(25), seed=0) as lab:
        with pytest.raises(StartError, match=r"block/pose off by 20[0-9.]+ mm"):
            deploy.main(arguments(config, tmp_path, *more))
        with lab.where.connect() as door:
            door.place("block", first.poses["block/pose"])
        assert deploy.main(arguments(config, tmp_path, *more)) == 0
    trials = read_trials(tmp_path / "out")
    assert [(t.status, t.kind, t.engine) for t in trials] == [
        ("voided", "lab", "virtual lab"),
        ("finished", "lab", "virtual lab"),
    ]
    assert trials[0].reason == "start"


def test_poses_that_cannot_be_are_counted_and_told(config, tmp_path, monkeypatch, capsys):
    """In the middle of a trial the tracking system sees the block half a metre away, twice."""
    jump = (0.45, 0.45, 0.0)

    def on_tick(self, tick):
        if tick.index in (2, 4):
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                packet = TrackerPacket(tick.index, time.monotonic_ns(), "block", jump)
                sender.sendto(encode_packet(packet), (address(25), 30120))

    monkeypatch.setattr(deploy_run.HoldAtEnd, "on_tick", on_tick)
    more = ("--start-lab", "--episodes", "1", "--no-video")
    assert deploy.main(arguments(config, tmp_path, *more)) == 0
    assert "2 implausible measurement(s) of trackers were not believed" in capsys.readouterr().out
    out = tmp_path / "out"
    (trial,) = read_trials(out)
    assert (trial.status, trial.metrics["implausible_poses"]) == ("finished", 2.0)
    assert json.loads((out / "deploy.json").read_text())["implausible_poses"] == 2
    poses = EpisodeStore.open(out / "store").read(trial.episode).observed("block/pose")
    assert np.abs(poses - poses[0]).max() < 0.05, "no jump is in what the policy saw"


# 30 mm, as the tracking system measures them.
FAR_OFF = r"block/pose off by (29|30|31)\.\d mm"


def test_a_start_that_is_too_far_off_is_asked_for_again(config, tmp_path, monkeypatch, capsys):
    """Somebody puts the block elsewhere and presses Enter: three times at most, measured anew."""
    operator, terminal = os.openpty()
    x, y, yaw = load_suite(suite(tmp_path)).select(1)[0].poses["block/pose"]
    right, near = (x, y, yaw), (x + 0.03, y, yaw)
    asked, places = [], []

    def place(self, text):
        asked.append(text)
        with lab.where.connect() as door:
            door.place("block", places.pop(0))
        threading.Timer(0.2, os.write, (operator, b"\n")).start()
        waited(self, text)

    waited = TerminalOperator.place
    monkeypatch.setattr(TerminalOperator, "place", place)
    given = [a for a in arguments(config, tmp_path) if a != "--yes"]
    more = ("--episodes", "1", "--no-video")
    with (
        os.fdopen(terminal, "r") as stdin,
        LabProcess(config, address=address(25), seed=0) as lab,
    ):
        monkeypatch.setattr("sys.stdin", stdin)
        places += [near, near, near]
        os.write(operator, b"y\n")
        with pytest.raises(StartError, match=FAR_OFF):
            deploy.main([*given, *more])
        assert len(asked) == 3
        assert "place the block at x" in asked[0]
        places += [near, right]
        os.write(operator, b"y\n")
        assert deploy.main([*given, *more]) == 0
    os.close(operator)
    assert len(re.findall(FAR_OFF, capsys.readouterr().out)) == 3
    trials = read_trials(tmp_path / "out")
    assert [(t.status, t.reason) for t in trials[:4]] == [("voided", "start")] * 4
    assert [t.status for t in trials[4:]] == ["finished"]
    np.testing.assert_allclose(trials[4].achieved["block/pose"][:2], right[:2], atol=0.01)


@pytest.mark.parametrize("option", ["--dry-run", "--shadow"])
def test_nothing_moves_when_only_looking(config, tmp_path, option, monkeypatch, capsys):
    moved = []
    monkeypatch.setattr(deploy_run.RealEnv, "goto", lambda *_: moved.append("goto"))
    follow = deploy_run.RealEnv.apply
    monkeypatch.setattr(deploy_run.RealEnv, "apply", lambda *a: moved.append("apply") or follow(*a))
    assert deploy.main(arguments(config, tmp_path, "--start-lab", option, "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert moved == []
    assert document["episodes"] == 0
    if option == "--shadow":
        assert document["shadow"]["ticks"] == 6
        assert document["shadow"]["max"] >= document["shadow"]["median"] > 0.0
    else:
        assert len(document["shadow"]["first_action"]) == 2
    assert not (tmp_path / "out" / "store").exists()


def test_a_policy_on_a_server_and_tighter_limits(config, tmp_path, monkeypatch, capsys):
    token = "token-of-the-test"
    server = PolicyServer(WalkPolicy(), ServeConfig(token=token), "far", "away")
    monkeypatch.setenv("ROBOLEARN_TOKEN", token)
    given = [a for a in arguments(config, tmp_path) if a != "walk"]
    limits = ("--max-tool-speed", "0.2", "--episodes", "1", "--start-lab", "--json")
    try:
        assert deploy.main([*given, "--server", server.url, *limits]) == 0
    finally:
        server.close()
    document = json.loads(capsys.readouterr().out)
    assert document["policy"] == server.url
    (trial,) = read_trials(tmp_path / "out")
    # How its chunks were executed, and for how long where that is not the suite's, is part of what
    # was tried, as in an evaluation.
    how = "+lead_ticks=1,realtime=True,max_steps=6"
    assert (trial.policy, trial.policy_hash) == (f"far{how}", f"away{how}")
    meta = EpisodeStore.open(tmp_path / "out" / "store").read(trial.episode).meta
    assert meta.provenance["robot"]["limits"]["max_tool_speed"] == 0.2


def test_options_that_exclude_each_other(config, tmp_path):
    for more, text in (
        (("--dry-run", "--shadow"), "exclude"),
        (("--max-tool-speed", "9"), "tighten"),
        (("--server", "ws://127.0.0.1:9"), "not both"),
        (("--score", "operator", "--start-lab"), "terminal"),
    ):
        with pytest.raises(ConfigError, match=text):
            deploy.main(arguments(config, tmp_path, *more))


def test_what_was_evaluated_can_be_deployed():
    """Every option of how chunks are executed is typed alike and means the same."""
    how = ("--execute", "2", "--lead-ticks", "3", "--goal-s", "4", "--goal-order", "1", "0")
    deployed = parse(deploy.Args, ["walk", "--robot", "r", "--out", "o", *how], "deploy", "")
    evaluated = parse(evaluate.Args, ["walk", "--realtime-chunking", *how], "evaluate", "")
    assert deploy.options_of(deployed).executed == evaluated.execution
    assert deploy.options_of(deployed).executed.goal_order == (1, 0)
    for more in (("--ensemble", "0.01"), ("--runtime", "onnx"), ("--no-realtime-chunking",)):
        plain = parse(deploy.Args, ["walk", "--robot", "r", "--out", "o", *more], "deploy", "")
        assert not deploy.options_of(plain).executed.realtime_chunking
        deploy.options_of(plain).executed.check()


def test_a_policy_of_another_task_space_is_refused_with_a_diff(config, tmp_path):
    raw = yaml.safe_load(config.read_text())
    raw["robot"]["rate_hz"] = 25.0
    config.write_text(yaml.safe_dump(raw))
    with pytest.raises(SpecMismatchError, match=r"control rate \[Hz\]: wanted 10, got 25"):
        deploy.main(arguments(config, tmp_path, "--start-lab"))


def test_bad_input_says_what_to_do(config, tmp_path):
    with pytest.raises(RobotConnectionError, match="--start-lab"):
        deploy.main(arguments(config, tmp_path, "--episodes", "1"))
    with pytest.raises(ConfigError, match="at least 1"):
        deploy.main(arguments(config, tmp_path, "--episodes", "0"))
    unattended = [a for a in arguments(config, tmp_path) if a != "--yes"]
    with pytest.raises(ConfigError, match="no terminal to ask"):
        deploy.main(unattended)
    assert not (tmp_path / "out").exists()
    raw = yaml.safe_load(config.read_text())
    raw["robot"] |= {"lab": False, "supervisor": {}}
    config.write_text(yaml.safe_dump(raw))
    with pytest.raises(ConfigError, match="describes a real cell"):
        deploy.main(arguments(config, tmp_path, "--start-lab"))
    config.write_text("lab: {}\nrobott: {}\n")
    with pytest.raises(ConfigError, match="Did you mean 'robot'"):
        deploy.main(arguments(config, tmp_path))


def test_jitter_arrays_stay_small_and_keep_the_worst():
    values = lateness_ms([1000] * 9000 + [7_000_000])
    assert len(values) <= 2001
    assert max(values) == 7.0
    assert lateness_ms([]) == []
