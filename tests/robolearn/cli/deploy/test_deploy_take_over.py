"""A person takes over from a deployed policy; a deployment goes on after a safety stop."""

import json
import time

import numpy as np
import pytest

from eval.trials.table import TrialStore, read_trials
from hardware.cell.load import load_cell
from hardware.teleop.device import DeviceReading, Steps, View
from robolearn.cli.main import main as robolearn
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, SafetyStopError, StaleSignalError
from robolearn.operations.collect import CollectConfig
from robolearn.operations.deploy import run as deploy_run
from robolearn.operations.deploy import take_over
from robolearn.operations.deploy.figures import figures
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.deploy.options import DeployOptions, TakeOverOptions
from robolearn.operations.deploy.run import deploy
from robolearn.operations.deploy.take_over import DeviceOperator
from robolearn.operations.deploy.trials import TrialWriter
from robolearn.runtime import run_episode
from robolearn.types import Command, Observation, Sample, TrialRecord
from tests.hardware.lab import CONFIG
from tests.mocks import CONDITION, PointEnv
from tests.robolearn.cli.deploy import test_deploy as ur_cell
from tests.trial_records import on_cell
from tests.waiting import wait_until

config = ur_cell.config


class Nudging:
    """Moves the tool in x while it is told to, and presses what it is told to."""

    name, lease_s = "keyboard", 5.0

    def __init__(self) -> None:
        self.total, self.moving, self.due = np.zeros(6), False, []
        self.views: list[View] = []
        self.closed = False

    def begin(self, opening) -> None:
        del opening

    def poll(self) -> DeviceReading:
        self.total[0] += 0.001 * self.moving
        return DeviceReading(time.monotonic_ns(), True, True, Steps(self.total.copy()))

    def pressed(self):
        due, self.due = tuple(self.due), []
        return due

    def show(self, view: View) -> None:
        self.views.append(view)
        # In the first trial alone.
        self.moving = view.saved == 0 and view.step >= 1

    def close(self) -> None:
        self.closed = True


def test_what_a_person_drove_is_marked_and_a_stop_ends_one_trial(
    config, tmp_path, monkeypatch, capsys
):
    hand, out, stops = Nudging(), tmp_path / "out", []
    monkeypatch.setattr(take_over, "device_of", lambda *_: hand)

    def stop_once(self, tick):
        if tick.index == 2 and hand.views[-1].saved == 1 and not stops:
            stops.append(tick.index)
            raise SafetyStopError("the tool was pushed")

    monkeypatch.setattr(deploy_run.HoldAtEnd, "on_tick", stop_once)
    touch = tmp_path / "touch.yaml"
    touch.write_text("takeover: {samples: 1, hold_s: 0.3}\nmapping: {dead_zone: 0.2}\n")
    more = ("--start-lab", "--episodes", "3", "--no-video", "--takeover", "keyboard")
    more += ("--takeover-config", str(touch))
    given = ur_cell.arguments(config, tmp_path, *more, "--go-on-after-stop", "1")
    assert robolearn(["deploy", *given]) == 0
    said = capsys.readouterr().out
    helped, stopped, alone = read_trials(out)
    assert (helped.status, helped.reason, helped.success) == ("finished", "corrected", False)
    assert (stopped.status, stopped.reason) == ("aborted", "safety_stop")
    assert (alone.status, alone.reason) == ("finished", "time_limit")
    assert "person_steps" not in alone.metrics
    store = EpisodeStore.open(out / "store")
    episode = store.read(helped.episode)
    assert episode.meta.kind == "corrected"
    assert episode.meta.provenance["takeover"] == "keyboard"
    told = episode.meta.provenance["takeover_config"]
    assert (told["takeover"]["samples"], told["takeover"]["hold_s"]) == (1, 0.3)
    assert told["mapping"]["dead_zone"] == 0.2
    drove = sum(d == "human" for d in episode.drivers)
    assert 0 < drove < episode.steps
    assert helped.metrics["person_steps"] == drove
    assert "human" not in store.read(alone.episode).drivers
    assert f"a person drove {drove} of" in said
    assert "1 of 3 trial(s), which are not the policy's successes" in said
    document = json.loads((out / "deploy.json").read_text())
    assert (document["corrected"], document["person_steps"]) == (1, drove)
    drivers = [(v.engaged, v.policy_drives) for v in hand.views if v.phase == "running"]
    assert (True, False) in drivers
    assert (False, True) in drivers
    assert hand.closed


def blank(**more) -> TrialRecord:
    return on_cell(**{"kind": "lab", "condition": "", **more})


class Half:
    """Walks to the goal, the second half by a person's hand."""

    name = "half"

    def __init__(self, by: str, first: str = "policy:walk") -> None:
        self.by, self.first = by, first

    def reset(self, seed) -> None:
        self.x, self.seq = 0.1, 0

    def request(self, observation):
        return None

    def decide(self, observation, reply):
        self.x, self.seq = self.x + 0.1, self.seq + 1
        source = self.by if self.x > 0.55 else self.first
        action = {"tool/xy_table": np.array([self.x, 0.2])}
        return Command(self.seq, action, observation.t_ns, source=source)


@pytest.mark.parametrize("by", ["policy:walk", "human:keyboard", "operator:scripted"])
def test_a_solved_trial_is_the_policys_own_only_if_nobody_helped(tmp_path, by):
    with TrialStore(tmp_path) as table:
        writer = TrialWriter(table, blank(status="started"))
        writer.begin(CONDITION)
        env = PointEnv(goal_x=0.85)
        result = run_episode(
            env, Half(by), None, [writer], CONDITION, max_steps=20, task="t", env_name="e"
        )
        assert result.outcome.success
        record = writer.finish(result, "ep_000000", "", {"kept": 1.0})
        assert table.all() == (record,)
    total = figures([record], [], [])
    assert record.metrics["kept"] == 1.0
    if by == "policy:walk":
        assert record.success
        assert record.score == pytest.approx(0.9)
        assert (total.successes, total.corrected) == (1, 0)
        return
    assert (record.success, record.reason) == (False, "corrected")
    # How far the policy came alone.
    assert record.score == pytest.approx(0.5)
    assert record.metrics["corrected_success"] == 1.0
    assert record.metrics["take_overs"] == 1.0
    assert (total.successes, total.corrected, total.corrected_successes) == (0, 1, 1)
    assert (total.person_steps, total.steps) == (int(record.metrics["person_steps"]), record.steps)


@pytest.mark.parametrize("first", ["hold", "human:keyboard"])
def test_who_takes_over_before_the_policy_has_answered_has_helped(tmp_path, first):
    """Success that no step of the policy was part of counted as its own."""
    with TrialStore(tmp_path) as table:
        writer = TrialWriter(table, blank(status="started"))
        writer.begin(CONDITION)
        env = PointEnv(goal_x=0.85)
        agent = Half("human:keyboard", first)
        result = run_episode(
            env, agent, None, [writer], CONDITION, max_steps=20, task="t", env_name="e"
        )
        assert result.outcome.success
        record = writer.finish(result, "ep_000000", "", {})
    assert (record.success, record.reason) == (False, "corrected")
    assert record.metrics["take_overs"] == 1.0
    assert record.metrics["corrected_success"] == 1.0
    held = 0 if first != "hold" else sum(c.source == "hold" for c in env.commands)
    assert record.metrics["person_steps"] == record.steps - held


def seated(hand: Nudging) -> DeviceOperator:
    """A person with ``hand`` at the cell, for one trial."""
    return DeviceOperator(
        Unattended(agreed=True),
        load_cell(CONFIG),
        CollectConfig(),
        lambda: hand,
        trials=1,
        max_steps=10,
        clear=lambda: None,
    )


def test_the_keys_of_the_device_stop_judge_and_place():
    hand, stops = Nudging(), []
    seat = seated(hand)
    with pytest.raises(ConfigError, match="nobody is there"):
        seat.place("put the block down")
    seat.listen(lambda: stops.append(1))
    try:
        hand.due = ["stop"]
        wait_until(lambda: stops == [1])
        hand.show = lambda view: hand.due.append("start" if view.phase == "placing" else "")
        seat.place("put the block down")
        hand.show = lambda view: hand.due.append("quit" if view.phase == "placing" else "")
        with pytest.raises(ConfigError, match="not done: put the block"):
            seat.place("put the block down")
    finally:
        seat.close()
    seat.close()
    assert hand.closed


def test_whoever_places_things_sees_them_move():
    hand = Nudging()
    seat = seated(hand)
    seat.listen(lambda: None)
    looks: list[int] = []

    def look() -> Observation:
        looks.append(len(looks))
        if looks[-1] == 1:
            raise StaleSignalError("a hand is before the camera")
        picture = Sample(time.monotonic_ns(), np.full((4, 4, 3), looks[-1], np.uint8))
        return Observation(picture.t_ns, {"top/image": picture})

    views: list[View] = []

    def show(view: View) -> None:
        views.append(view)
        if len(views) == 4:
            hand.due = ["start"]

    hand.show = show
    try:
        seat.sit(lambda: "", look)
        seat.place("put the block down")
    finally:
        seat.close()
    assert {v.phase for v in views} == {"placing"}
    assert [int(v.pictures["top"][0, 0, 0]) for v in views if v.pictures] == [
        k for k in looks if k != 1
    ]
    # What nobody can tell now is not shown as if it were now.
    assert [bool(v.pictures) for v in views[:4]] == [True, False, True, True]


def test_what_slows_the_arm_is_shown_whoever_drives():
    hand = Nudging()
    seat = seated(hand)
    seat.listen(lambda: None)
    views: list[View] = []

    def show(view: View) -> None:
        views.append(view)

    hand.show = show
    try:
        # At every tick something else; the second half is the person's.
        world, agent = PointEnv(goal_x=0.85), Half("human:keyboard")
        assert seat.sit(lambda: f"slowed: {len(views)}", world.observe) is seat.person
        run_episode(world, agent, None, [seat], CONDITION, max_steps=20, task="t", env_name="e")
    finally:
        seat.close()
    running = [v for v in views if v.phase == "running"]
    assert {v.engaged for v in running} == {True, False}
    assert [v.slowed for v in running] == [f"slowed: {k}" for k in range(len(running))]
    assert not views[-1].slowed


def test_who_takes_over_is_known_before_anything_is_opened(tmp_path):
    def refused(words, **more):
        options = DeployOptions(run=tmp_path, robot=CONFIG, out=tmp_path / "out", **more)
        with pytest.raises(ConfigError, match=words):
            deploy(options, Unattended(agreed=True))

    refused("Did you mean 'keyboard'", takeover=TakeOverOptions(by="keyboards"))
    with pytest.raises(ConfigError, match="go_on_after_stop"):
        refused("", go_on_after_stop=-1)
