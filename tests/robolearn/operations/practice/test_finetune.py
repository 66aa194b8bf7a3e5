"""Practice from end to end, at the size of a toy."""

from __future__ import annotations

import dataclasses
import errno
import json
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from eval.report.sections import critic_curves, practice_curves
from eval.report.training import run_facts
from eval.trials.table import read_trials
from policies.critics.reranked import RerankedPolicy
from policies.registry import load_policy
from robolearn.cli.main import main
from robolearn.data.episode import Episode
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.chunks import FileSink
from robolearn.data.store.drafts import Drafts, EpisodeDraft, PreparedEpisode
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    PracticeError,
    SpecMismatchError,
    StoreError,
    StoreLockedError,
)
from robolearn.learning import Losses
from robolearn.machine.interrupt import remembered
from robolearn.operations.builders import env_builder
from robolearn.operations.practice.experiment import PracticeExperiment, practice_experiment
from robolearn.operations.practice.finetune import Actors, finetune
from robolearn.operations.practice.frame import SecondStore
from robolearn.operations.practice.ledger import Ledger
from robolearn.operations.practice.listener import PracticeListener, RoundReport
from robolearn.operations.practice.records import VersionTest, read_standing, write_standing
from robolearn.operations.practice.result import FinetuneResult, kept_version
from robolearn.operations.practice.session import Ended
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.budget import TimeLeft
from robolearn.training.learner import DRIFT, Learner
from robolearn.training.log import logged
from robolearn.training.run_directory import WEIGHTS, load_run, policy_hash
from robolearn.training.trainer import Trainer
from robolearn.training.versions import load_version
from sim.env.scene_env import SceneEnv
from tests.two_runs import two_runs

WORLD = ("pusht_reference",)
SMALL = {
    "algorithm.width": 16,
    "algorithm.batch_size": 16,
    "fit.checkpoint_every": 1,
    "practice.lanes": 4,
    "practice.max_steps": 24,
    "practice.warmup_episodes": 4,
    "practice.critic_updates": 3,
    "practice.test_starts": 2,
    "practice.test_every": 0,
    "practice.max_episodes": 12,
    "practice.disk_gib": 0.0,
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), 12) / "one"


def small(parent: Path, **settings: float) -> PracticeExperiment:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return practice_experiment(load_run(parent), None, SMALL | named)


@pytest.fixture(scope="module")
def practised(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneResult:
    folder = tmp_path_factory.mktemp("practised")
    experiment = small(parent, practice__test_every=8, fit__diagnose_every=1)
    return finetune(experiment, parent, WORLD, folder / "store", folder / "out")


def test_what_comes_out_is_a_run_like_any_other(practised: FinetuneResult, parent: Path) -> None:
    assert (practised.kept, practised.sound, practised.episodes) == ("last", True, 12)
    assert practised.ended == "12 episodes were practised"
    assert practised.policy_hash == policy_hash(practised.run_dir)
    run = load_run(practised.run_dir)
    assert run.provenance["complete"]
    assert run.provenance["parent"] == policy_hash(parent)
    assert run.config["practice"]["lanes"] == 4
    assert isinstance(load_policy(practised.run_dir), RerankedPolicy)
    # Updates: those before it drove, and a quarter for every decision that critics can learn from.
    assert 3 < practised.updates < 3 + 0.25 * practised.decisions


def test_practice_is_data_that_says_who_drove(practised: FinetuneResult) -> None:
    out = practised.run_dir
    store = EpisodeStore.open(out.parent / "store")
    flights = Ledger.of(out).flights
    assert [f.id for f in flights] == list(store.ids())
    assert {info.kind for info in store.list()} == {"online"}
    for flight in flights:
        said = store.meta(flight.id).provenance["practice"]
        assert (said["number"], said["driver"], said["version"]) == (
            flight.number,
            flight.driver,
            flight.version,
        )
    drivers = [f.driver for f in flights]
    assert drivers == ["parent"] * 4 + ["explorer", "explorer", "parent", "parent"] * 2
    # Warm-up episodes begin at starts of their own; then the two drivers share them.
    assert [f.start for f in flights] == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 6, 7]
    begun = [store.read(f.id).observed(BLOCK)[0] for f in flights]
    np.testing.assert_array_equal(begun[4], begun[6])
    assert len({tuple(b) for b in begun}) == 8


def test_tests_and_curves_are_kept(practised: FinetuneResult) -> None:
    # After eight episodes, and at the end.
    assert [t.episodes for t in practised.tests] == [8, 12]
    assert all(t.starts == 2 for t in practised.tests)
    trials = read_trials(practised.run_dir / "evaluation")
    theirs = [t.score for t in trials if t.policy == "parent"]
    assert [t.parent_score for t in practised.tests] == [pytest.approx(np.mean(theirs))] * 2
    lines = logged(practised.run_dir)
    assert sum("test/success" in line for line in lines) == 2
    # After every round, and at the tests.
    assert [line["practice/episodes"] for line in lines] == [4, 8, 8, 12, 12]
    facts = run_facts(practised.run_dir)
    curves = facts.practice
    assert curves is not None
    assert curves.explorer is not None
    assert curves.tested_high is not None
    assert list(curves.explorer.steps) == [8, 12]
    assert list(curves.tested_high.values) == [t.high for t in practised.tests]
    assert "Practice of out" in practice_curves(facts)
    assert facts.wear is not None
    assert facts.wear.robot_seconds == pytest.approx(practised.wear.robot_seconds)
    assert "What “out” cost: the arm drove" in practice_curves(facts)
    assert facts.switch == (practised.regret, practised.dip)
    assert "success(es) beside the parent on the same starts" in practice_curves(facts)
    drifts = [line[DRIFT] for line in lines if DRIFT in line]
    assert facts.drift == drifts[-1]
    assert f"answers are {drifts[-1]:.2f} times as far from its parent" in practice_curves(facts)
    # Its critic is asked on what is there, which grows.
    assert "same batch all along" not in critic_curves(facts)
    assert facts.seconds > 0
    assert not any(name.startswith(("practice/", "test/")) for name in facts.figures())
    assert practice_curves(run_facts(practised.run_dir / "parent")) == ""


class _Stop:
    """Presses Ctrl-C after some rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def __call__(self, report: RoundReport) -> None:
        if report.rounds == self.rounds:
            raise KeyboardInterrupt


@pytest.mark.parametrize("rounds", [1, 2])
def test_what_was_interrupted_goes_on(parent: Path, tmp_path: Path, rounds: int) -> None:
    experiment, store, out = small(parent), tmp_path / "store", tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        finetune(experiment, parent, WORLD, store, out, listener=PracticeListener(_Stop(rounds)))
    before = [f.id for f in Ledger.of(out).flights]
    assert len(before) == 4 * rounds
    with pytest.raises(CheckpointError, match="go on with resume"):
        finetune(experiment, parent, WORLD, store, out)
    other = small(parent, practice__critic_updates=4)
    with pytest.raises(CheckpointError, match="critic_updates: now 4, there 3"):
        finetune(other, parent, WORLD, store, out, resume=True)
    longer = small(parent, practice__max_episodes=16)
    found = finetune(longer, parent, WORLD, store, out, resume=True)
    flights = Ledger.of(out).flights
    assert [f.id for f in flights][: len(before)] == before
    assert [f.number for f in flights] == list(range(16))
    assert len(EpisodeStore.open(store).ids()) == found.episodes == 16
    again = finetune(longer, parent, WORLD, store, out, resume=True)
    assert again.reused
    assert (again.policy_hash, again.episodes) == (found.policy_hash, 16)
    # It says what lies there today: a copy of it elsewhere, and nothing of weights that changed.
    shutil.copytree(out, tmp_path / "copied")
    copied = finetune(longer, parent, WORLD, store, tmp_path / "copied", resume=True)
    assert (copied.reused, copied.run_dir) == (True, tmp_path / "copied")
    weights = tmp_path / "copied" / WEIGHTS
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match=WEIGHTS):
        finetune(longer, parent, WORLD, store, tmp_path / "copied", resume=True)


class _Clock:
    """Time is used up once so many updates were begun, whichever call makes them."""

    def __init__(self, updates: int) -> None:
        self.updates = updates

    def __call__(self) -> bool:
        self.updates -= 1
        return self.updates < 0


def same_weights(one: Path, other: Path) -> bool:
    mine, theirs = load_run(one).weights, load_run(other).weights
    return mine.keys() == theirs.keys() and all(torch.equal(mine[k], theirs[k]) for k in mine)


@pytest.fixture(scope="module")
def uncut(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> FinetuneResult:
    folder = tmp_path_factory.mktemp("uncut")
    return finetune(cut(parent, 12), parent, WORLD, folder / "store", folder / "out")


def cut(parent: Path, episodes: int) -> PracticeExperiment:
    return small(
        parent,
        practice__critic_updates=6,
        practice__updates_per_decision=0.5,
        practice__max_episodes=episodes,
    )


# In the middle of those before it drives, and of those of a later round.
@pytest.mark.parametrize(("updates", "episodes"), [(4, 4), (8, 8)])
def test_a_limit_in_the_middle_of_updates_changes_nothing_of_what_follows(
    parent: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    uncut: FinetuneResult,
    updates: int,
    episodes: int,
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    clock = _Clock(updates)
    with monkeypatch.context() as context:
        context.setattr(TimeLeft, "begun", lambda _: clock)
        found = finetune(cut(parent, episodes), parent, WORLD, store, out)
    assert (found.updates, found.episodes, found.sound) == (updates, episodes, True)
    early = updates < 6
    assert found.kept == ("parent" if early else "last")
    # What was half learned drives nobody.
    assert isinstance(load_policy(out), RerankedPolicy) == (not early)
    said = "after 4 of the 6 updates that come before what is learned drives"
    assert (said in caplog.text) == early
    assert ("give it more with resume" in caplog.text) == early
    again = finetune(cut(parent, 12), parent, WORLD, store, out, resume=True)
    assert (again.kept, again.updates, again.episodes) == ("last", uncut.updates, 12)
    drivers = [[f.driver for f in Ledger.of(p).flights] for p in (out, uncut.run_dir)]
    assert drivers[0] == drivers[1]
    assert same_weights(out, uncut.run_dir)


def test_ctrl_c_in_the_middle_of_updates_changes_nothing_of_what_follows(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uncut: FinetuneResult
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    update = Trainer.update

    def pressed(trainer: Trainer) -> Losses:
        if trainer.clock.step == 3:
            signal.raise_signal(signal.SIGINT)
        return update(trainer)

    with monkeypatch.context() as context:
        context.setattr(Trainer, "update", pressed)
        with pytest.raises(KeyboardInterrupt), remembered():
            finetune(cut(parent, 12), parent, WORLD, store, out)
    # The update that it came into was made whole.
    standing = read_standing(out)
    assert standing is not None
    assert (standing.begun, standing.owed, standing.rounds) == (False, 2.0, 1)
    again = finetune(cut(parent, 12), parent, WORLD, store, out, resume=True)
    assert (again.kept, again.updates, again.episodes) == ("last", uncut.updates, 12)
    assert same_weights(out, uncut.run_dir)


def test_a_committed_episode_without_a_line_is_found_again(parent: Path, tmp_path: Path) -> None:
    """Killed between the commit and the ledger."""
    store, out = tmp_path / "store", tmp_path / "out"
    first = small(parent, practice__max_episodes=8)
    finetune(first, parent, WORLD, store, out)
    path = out / "practice.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]) + lines[-2][:20])
    found = finetune(small(parent), parent, WORLD, store, out, resume=True)
    flights = Ledger.of(out).flights
    assert [f.number for f in flights] == list(range(12))
    assert [json.loads(line)["id"] for line in lines] == [f.id for f in flights][:8]
    kept = [json.loads(line)["effort"] for line in lines]
    assert kept == [dataclasses.asdict(f.effort) for f in flights][:8]
    assert found.episodes == 12


def test_losses_that_are_not_finite_leave_the_parent(parent: Path, tmp_path: Path) -> None:
    experiment = small(parent, algorithm__lr=1e30, practice__critic_updates=40)
    found = finetune(experiment, parent, WORLD, tmp_path / "store", tmp_path / "out")
    assert (found.kept, found.sound) == ("parent", False)
    assert "finite" in found.ended
    # What it recorded is there, and what it does is what its parent does.
    assert len(EpisodeStore.open(tmp_path / "store").ids()) == found.episodes
    own, theirs = load_policy(tmp_path / "out"), load_policy(parent)
    assert type(own) is type(theirs)
    assert load_run(tmp_path / "out").policy_hash == found.policy_hash


def a_test(version: int, successes: int, parent: int, *, p: float = 1.0) -> VersionTest:
    lost = max(0, parent - successes)
    gained = max(0, successes - parent)
    return VersionTest(
        version, version, 0, 0.0, 50, successes, 0.0, 1.0, 0.5, parent, gained, lost, p
    )


def test_what_is_kept() -> None:
    """The last version, never the best one; unless something is wrong with it."""
    tests = (a_test(1, 40, 30), a_test(2, 20, 30), a_test(3, 33, 30))
    fine, broken = Ended("time"), Ended("not finite", sound=False)
    assert kept_version(tests, tests[-1], 3, fine) == ("last", 3)
    # Worse, but not clearly.
    assert kept_version(tests[:2], tests[1], 2, fine) == ("last", 2)
    worse = a_test(4, 10, 30, p=0.001)
    assert kept_version((*tests, worse), worse, 4, fine) == ("tested", 1)
    assert kept_version((worse,), worse, 4, fine) == ("parent", 4)
    assert kept_version(tests, None, 9, broken) == ("tested", 1)
    assert kept_version((), None, 9, broken) == ("parent", 9)


def test_a_weak_parent_is_told_from_nothing_by_its_score() -> None:
    """It solves 3 of 50, the last version none: by success alone nobody can say (p = .25)."""
    fine = Ended("time")
    nothing = dataclasses.replace(
        a_test(2, 0, 3, p=0.25), score=0.07, parent_score=0.82, score_p=1e-9
    )
    assert nothing.worse
    assert kept_version((nothing,), nothing, 2, fine) == ("parent", 2)
    earlier = dataclasses.replace(a_test(1, 4, 3), score=0.8, parent_score=0.82, score_p=0.4)
    assert kept_version((earlier, nothing), nothing, 2, fine) == ("tested", 1)
    # One that solves more is better whatever its score; one that solves as many is not.
    solves = dataclasses.replace(nothing, successes=9, gained=6, lost=0)
    assert kept_version((solves,), solves, 2, fine) == ("last", 2)
    equal = dataclasses.replace(nothing, successes=3, gained=1, lost=1)
    assert kept_version((equal,), equal, 2, fine) == ("parent", 2)
    # A version with a lower score that went wrong later is not kept for its successes.
    broken = Ended("not finite", sound=False)
    assert kept_version((equal,), None, 3, broken) == ("parent", 3)


def test_nothing_is_begun_that_cannot_end_well(parent: Path, tmp_path: Path) -> None:
    experiment, store, out = small(parent), tmp_path / "store", tmp_path / "out"
    with pytest.raises(ConfigError, match="name a world"):
        finetune(experiment, parent, (), store, out)
    with pytest.raises(SpecMismatchError, match="task space"):
        finetune(experiment, parent, ("drawer",), store, out)
    with pytest.raises(ConfigError, match="go together"):
        finetune(experiment, parent, WORLD, store, out, second=SecondStore(store))
    with pytest.raises(ConfigError, match="no world"):
        finetune(experiment, parent, ("pusht_referenc",), store, out)
    assert not store.exists()
    assert not out.exists()
    with EpisodeStore.open_or_create(store).writer(), pytest.raises(StoreLockedError):
        finetune(experiment, parent, WORLD, store, out)
    few = small(parent, practice__max_episodes=4, practice__warmup_episodes=8)
    with pytest.raises(PracticeError, match="before anything was learned"):
        finetune(few, parent, WORLD, store, tmp_path / "few")
    standing = read_standing(tmp_path / "few")
    assert standing is not None


def test_what_cannot_be_learned_is_refused_before_anything_flies(
    parent: Path, tmp_path: Path
) -> None:
    file = tmp_path / "practice.yaml"
    file.write_text("policy: wsrl\n")
    few = {k: v for k, v in SMALL.items() if k != "algorithm.width"}
    experiment = practice_experiment(load_run(parent), file, few)
    with pytest.raises(ConfigError, match="no actor and critic to begin with"):
        finetune(experiment, parent, WORLD, tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "store").exists()


def test_what_practised_goes_on_practising(practised: FinetuneResult, tmp_path: Path) -> None:
    """The critics go on over the chunks of the policy below, with what was recorded before."""
    run, store = practised.run_dir, practised.run_dir.parent / "store"
    settings = SMALL | {"practice.demonstrations": 0.5, "practice.max_episodes": 8}
    experiment = practice_experiment(load_run(run), None, settings)
    second = SecondStore(store, practised=True)
    out = tmp_path / "out"
    with pytest.raises(ConfigError, match="go together"):
        finetune(experiment, run, WORLD, tmp_path / "store", out)
    found = finetune(experiment, run, WORLD, tmp_path / "store", out, second=second)
    assert (found.kept, found.episodes) == ("last", 8)
    before, begun = load_run(run), load_version(out, 1)
    assert before.weights.keys() == begun.weights.keys()
    assert all(bool((before.weights[k] == begun.weights[k]).all()) for k in before.weights)
    # One choice among the chunks of what was imitated, not a choice among choices.
    policy, root = load_policy(out), load_policy(run / "parent")
    assert isinstance(policy, RerankedPolicy)
    assert type(policy.parent) is type(root)
    # The other store is known by its number, however its path is spelled, or was.
    (tmp_path / "link").symlink_to(store)
    spelled = (SecondStore(tmp_path / "link", True), SecondStore(store / ".." / "store", True))
    for other in spelled:
        again = finetune(experiment, run, WORLD, tmp_path / "store", out, second=other, resume=True)
        assert again.reused
    standing = read_standing(out)
    assert standing is not None
    identity = standing.identity | {"demonstrations": str(store)}
    write_standing(out, dataclasses.replace(standing, identity=identity))
    again = finetune(
        experiment, run, WORLD, tmp_path / "store", out, second=spelled[0], resume=True
    )
    assert again.reused
    third = SecondStore(tmp_path / "store", practised=True)
    with pytest.raises(CheckpointError, match=r"holds another practice.*demonstrations: now"):
        finetune(experiment, run, WORLD, tmp_path / "store", out, second=third, resume=True)
    wider = practice_experiment(load_run(run), None, SMALL | {"algorithm.width": 24})
    with pytest.raises(ConfigError, match="do not fit: width: 16 there, 24 here"):
        finetune(wider, run, WORLD, tmp_path / "store", tmp_path / "wider")


def test_the_expert_takes_over_where_the_policy_is_lost(
    parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program in a person's place: who drove each step is recorded, what it did counts as shown,
    and a success that was helped is none of the policy's.
    """
    settings = SMALL | {
        "practice.lanes": 2,
        "practice.warmup_episodes": 2,
        "practice.max_steps": 60,
        "practice.max_episodes": 4,
    }
    experiment = practice_experiment(load_run(parent), None, settings, corrected=True)
    assert (experiment.practice.parent_share, experiment.practice.demonstrations) == (0.0, 0.5)
    store, out = tmp_path / "store", tmp_path / "out"
    found = finetune(experiment, parent, WORLD, store, out, takeover="scripted")
    flights = Ledger.of(out).flights
    assert [f.driver for f in flights] == ["parent", "parent", "explorer", "explorer"]
    for flight in flights:
        source = EpisodeStore.open(store).read(flight.id).source
        assert {"policy", "operator"} <= {name.partition(":")[0] for name in source}
        assert flight.effort.person_steps == sum(name.startswith("operator") for name in source)
        assert not flight.unaided
    wear = found.wear
    assert wear.take_overs == sum(f.effort.take_overs for f in flights) >= 4
    assert 0 < wear.person_seconds < wear.robot_seconds
    assert wear.robot_seconds == pytest.approx(sum(f.steps for f in flights) / 10.0)
    assert (wear.moves, wear.stops, wear.travel_rad) == (4, 0, 0.0)
    assert wear.travel_m > 0
    shares = [v for line in logged(out) if (v := line.get("practice/person_share")) is not None]
    assert all(0 < share < 1 for share in shares)
    standing = read_standing(out)
    assert standing is not None
    assert standing.identity["takeover"] == "scripted"
    words = [f"--{k.replace('_', '-')}={v}" for k, v in settings.items()]
    where = ["--world", *WORLD, "--store", str(store), "--out", str(out), "--takeover", "scripted"]
    assert main(["finetune", str(parent), *where, *words, "--resume"]) == 0
    said = capsys.readouterr().out
    assert "reused" in said
    assert f"{wear.take_overs} take-overs" in said


def test_who_cannot_take_over_is_refused_before_anything_flies(
    parent: Path, tmp_path: Path
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    with pytest.raises(ConfigError, match=r"expert takes over .* got 'knob'"):
        finetune(small(parent), parent, WORLD, store, out, takeover="knob")
    file = tmp_path / "practice.yaml"
    file.write_text("policy: reinflow\n")
    few = {k: v for k, v in SMALL.items() if k not in ("algorithm.width", "practice.lanes")}
    own = practice_experiment(load_run(parent), file, few)
    with pytest.raises(ConfigError, match="learns from decisions that it made itself"):
        finetune(own, parent, WORLD, store, out, takeover="scripted")
    assert not store.exists()


def test_a_budget_is_time_that_the_arm_drives(parent: Path, tmp_path: Path) -> None:
    """The last round is as small as what is left of it."""
    # Nine episodes of 24 ticks at 10 Hz.
    budget = 21.5 / 60.0
    experiment = small(parent, practice__budget_minutes=budget, practice__max_episodes=100)
    found = finetune(experiment, parent, WORLD, tmp_path / "store", tmp_path / "out")
    assert found.episodes == 9
    assert found.wear.robot_seconds == pytest.approx(21.6)
    assert "(practice.budget_minutes)" in found.ended


def test_a_limit_before_the_end_of_the_warm_up_is_said_before_anything_flies(
    parent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, out, told = tmp_path / "store", tmp_path / "out", list[bool]()
    few = small(parent, practice__warmup_episodes=8, practice__max_episodes=3)
    assert [few.practice.lacking(n) for n in (0, 1, 2, 3, 7)] == [4, 3, 2, 5, 1]
    said = r"practice.max_episodes (3) ends this 4 episodes before the warm-up is over"
    listener = PracticeListener(on_round=lambda _: told.append(said in caplog.text))
    with pytest.raises(PracticeError, match=r"4 of 8 episodes to begin with .* with resume"):
        finetune(few, parent, WORLD, store, out, listener=listener)
    assert told == [True]
    caplog.clear()
    more = small(parent, practice__warmup_episodes=8, practice__max_episodes=8)
    found = finetune(more, parent, WORLD, store, out, resume=True)
    assert (found.episodes, found.updates) == (8, 3)
    assert "warm-up" not in caplog.text


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "stats.json", "parent/mine", "state/mine", "versions/000001.safetensors"],
)
def test_what_lies_in_out_and_is_no_practice_is_not_written_over(
    parent: Path, tmp_path: Path, name: str
) -> None:
    out = tmp_path / "out"
    (out / name).parent.mkdir(parents=True)
    (out / name).write_text("mine: 1\n")
    with pytest.raises(CheckpointError, match=f"holds {name.partition('/')[0]}.* written over"):
        finetune(small(parent), parent, WORLD, tmp_path / "store", out)
    assert (out / name).read_text() == "mine: 1\n"
    assert not (tmp_path / "store").exists()


def test_what_grows_cannot_be_weighed(parent: Path, tmp_path: Path) -> None:
    """Told before anything flies, not after the warm-up."""
    experiment = practice_experiment(load_run(parent), None, SMALL | {"data.held_out": 0.1})
    with pytest.raises(ConfigError, match=r"data\.held_out"):
        finetune(experiment, parent, WORLD, tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "store").exists()


def test_an_actor_process_drives_while_the_learner_learns(parent: Path, tmp_path: Path) -> None:
    """The same rounds; what computing they took there counts here."""
    experiment, reports = small(parent), list[RoundReport]()
    found = finetune(
        experiment,
        parent,
        WORLD,
        tmp_path / "store",
        tmp_path / "out",
        actors=Actors(1),
        listener=PracticeListener(reports.append),
    )
    flights = Ledger.of(tmp_path / "out").flights
    assert sorted(f.number for f in flights) == list(range(len(flights)))
    assert len(EpisodeStore.open(tmp_path / "store").ids()) == found.episodes == len(flights) >= 12
    assert "explorer" in {f.driver for f in flights}
    own = time.process_time()
    assert 0 < found.cpu_seconds < own + found.seconds
    assert [r.episodes for r in reports] == sorted(r.episodes for r in reports)


def test_who_imitates_successes_waits_for_one(parent: Path, tmp_path: Path) -> None:
    file = tmp_path / "practice.yaml"
    file.write_text("policy: filtered_bc\ndata: {success: true}\n")
    few = {k: v for k, v in SMALL.items() if k != "algorithm.width"}
    experiment = practice_experiment(load_run(parent), file, few)
    with pytest.raises(PracticeError, match=r"12 of 4 episodes to begin with .* 0 of which"):
        finetune(experiment, parent, WORLD, tmp_path / "store", tmp_path / "out")


def test_a_full_disk_ends_it_in_time(parent: Path, tmp_path: Path) -> None:
    experiment = small(parent, practice__disk_gib=1e9)
    with pytest.raises(PracticeError, match="GiB left"):
        finetune(experiment, parent, WORLD, tmp_path / "store", tmp_path / "out")


def test_it_goes_on_by_the_same_limits_once_there_is_room(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    experiment = small(parent, practice__disk_gib=1e-6)
    real = shutil.disk_usage

    def filling(path: Path) -> object:
        found = real(path)
        return SimpleNamespace(free=0) if len(Ledger.of(out).flights) >= 8 else found

    monkeypatch.setattr(shutil, "disk_usage", filling)
    found = finetune(experiment, parent, WORLD, store, out)
    assert (found.episodes, found.goes_on) == (8, True)
    assert "free some and go on with resume" in found.ended
    monkeypatch.setattr(shutil, "disk_usage", real)
    found = finetune(experiment, parent, WORLD, store, out, resume=True)
    assert (found.episodes, found.goes_on, found.reused) == (12, False, False)
    assert found.ended == "12 episodes were practised"
    assert finetune(experiment, parent, WORLD, store, out, resume=True).reused


def test_a_world_that_cannot_be_reset_is_refused_before_anything_is_written(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(self: SceneEnv, condition: object, rng: object) -> None:
        raise DataError("block/pose overlaps tool/xy_table")

    monkeypatch.setattr(SceneEnv, "reset", stuck)
    with pytest.raises(ConfigError, match=r"'pusht_reference' cannot be reset .* overlaps"):
        finetune(small(parent), parent, WORLD, tmp_path / "store", tmp_path / "out")
    assert not (tmp_path / "store").exists()
    assert not (tmp_path / "out").exists()


def test_a_disk_that_is_full_is_what_is_told(
    parent: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither the episode nor the checkpoint fits any more; what was committed stays, and with room
    it goes on.
    """
    store, out = tmp_path / "store", tmp_path / "out"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    prepare = Drafts.prepare

    def prepared(self: Drafts, draft: EpisodeDraft, episode: Episode) -> PreparedEpisode:
        if len(EpisodeStore.open(store).ids()) >= 8:
            monkeypatch.setattr(FileSink, "sync", full)
            monkeypatch.setattr(Learner, "checkpoint", full)
        return prepare(self, draft, episode)

    with monkeypatch.context() as context:
        context.setattr(Drafts, "prepare", prepared)
        with pytest.raises(StoreError, match="the disk is full; this was not saved"):
            finetune(small(parent), parent, WORLD, store, out)
    assert "no checkpoint" in caplog.text
    monkeypatch.undo()
    assert len(EpisodeStore.open(store).ids()) == 8
    found = finetune(small(parent), parent, WORLD, store, out, resume=True)
    assert (found.kept, found.episodes, found.sound) == ("last", 12, True)


def test_the_command(parent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--{k.replace('_', '-')}={v}" for k, v in SMALL.items()]
    where = ["--world", *WORLD, "--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    assert main(["finetune", str(parent), *where, *words]) == 0
    said = capsys.readouterr().out
    assert "12 episodes" in said
    assert "held-out starts" in said
    assert "holds the last version" in said
    assert main(["finetune", str(parent), *where, *words, "--resume", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["reused"] is True
    assert document["kept"] == "last"
    assert main(["finetune", str(parent), "--store", "a", "--out", "b"]) == 2
    assert "say where it practises: --world W" in capsys.readouterr().err
    assert main(["finetune"]) == 2


def test_several_worlds_are_flown_by_turns(parent: Path, tmp_path: Path) -> None:
    """A round in each, also where it goes on; every episode says which physics it is of."""
    worlds, store, out = (
        ("pusht_reference", "pusht_reference~mass=3"),
        tmp_path / "s",
        tmp_path / "o",
    )
    few = SMALL | {"practice.lanes": 2, "practice.warmup_episodes": 2, "practice.test_starts": 1}
    words = [f"--{k.replace('_', '-')}={v}" for k, v in few.items() if k != "practice.max_episodes"]
    where = ["--worlds", *worlds, "--store", str(store), "--out", str(out)]
    for episodes in ("2", "8"):
        more = ["--practice.max-episodes", episodes, "--resume"]
        assert main(["finetune", str(parent), *where, *words, *more]) == 0
    a, b = worlds
    flights = Ledger.of(out).flights
    assert [f.world for f in flights] == [a, a, b, b, a, a, b, b]
    episodes = EpisodeStore.open(store)
    said = [episodes.meta(f.id).provenance for f in flights]
    assert [p["config"]["world"] for p in said] == [f.world for f in flights]
    hashes = {world: env_builder(world).info().hash for world in worlds}
    assert hashes[a] != hashes[b]
    assert [p["scene_hash"] for p in said] == [hashes[f.world] for f in flights]
    assert [f.driver for f in flights if f.world == b] == ["explorer", "parent"] * 2
    standing = read_standing(out)
    assert standing is not None
    assert standing.identity["worlds"] == list(hashes.values())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--world", "pusht_naive", "--start-lab"), "--start-lab: of an arm alone"),
        (("--world", "pusht_naive", "--lead-ticks", "7"), "--lead-ticks: of an arm alone"),
        (("--world", "pusht_naive", "--max-tool-speed", "1"), "--max-tool-speed: of an arm alone"),
        (("--world", "pusht_naive", "--suite", "none.yaml", "--port", "99"), "--suite, --port: of"),
        (("--world", "pusht_naive", "--address", "ray://x:1"), "say --executor ray, too"),
        (
            ("--robot", "cell.yaml", "--actors", "2", "--executor", "ray"),
            "--actors, --executor: f",
        ),
        (("--robot", "cell.yaml", "--host", "10.0.0.1"), "--host: of the device of --takeover"),
    ],
)
def test_options_that_would_change_nothing_are_refused(
    parent: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    said: str,
) -> None:
    where = ("--store", str(tmp_path / "store"), "--out", str(tmp_path / "out"))
    assert main(["finetune", str(parent), *words, *where]) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_ray_actors_drive_by_the_same_functions(parent: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is an optional extra: pip install 'robolearn[ray]'")
    experiment, store, out = small(parent), tmp_path / "store", tmp_path / "out"
    found = finetune(experiment, parent, WORLD, store, out, actors=Actors(2, "ray"))
    flights = Ledger.of(out).flights
    assert (found.kept, found.sound) == ("last", True)
    assert sorted(f.number for f in flights) == list(range(len(flights)))
    assert sorted(f.id for f in flights) == sorted(EpisodeStore.open(store).ids())
    assert {f.driver for f in flights} == {"parent", "explorer"}
    for flight in flights:
        said = EpisodeStore.open(store).meta(flight.id).provenance["practice"]
        assert (said["number"], said["version"]) == (flight.number, flight.version)
