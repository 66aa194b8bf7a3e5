"""A practice whose episodes come one at a time, with nothing but its pairs to judge by."""

from __future__ import annotations

import dataclasses
import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from robolearn.data.store.drafts import PreparedEpisode
from robolearn.data.store.manifest import Manifest
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import ConfigError, InferenceError
from robolearn.operations.practice.actors import Flown, RoundTask
from robolearn.operations.practice.ledger import Ledger, pairs
from robolearn.operations.practice.listener import PracticeListener
from robolearn.operations.practice.options import PracticeConfig
from robolearn.operations.practice.records import Driver, Standing, VersionTest, read_standing
from robolearn.operations.practice.result import kept_version
from robolearn.operations.practice.session import Session
from robolearn.operations.practice.validation import Validation
from robolearn.training.budget import UNLIMITED, TimeLeft
from robolearn.training.learner import DRIFT, Taken
from robolearn.training.log import Journal, logged
from robolearn.types import Condition


class Counting:
    """Learns nothing, and remembers what it was asked; ``made``: of so many updates at most."""

    def __init__(self, made: int = 1000) -> None:
        self.step, self.version, self.made = 0, 0, made
        # From the parent; told with the figures of an update once it is learned.
        self.apart: float | None = 0.0
        # What it was given for its updates.
        self.left = list[TimeLeft]()

    def take_in(self) -> Taken:
        return Taken(1, 8, 2)

    def update(self, count: int, left: TimeLeft = UNLIMITED) -> Mapping[str, float]:
        self.left.append(left)
        self.step += min(count, self.made)
        return {} if self.apart is None else {DRIFT: self.apart}

    def drift(self) -> float | None:
        return self.apart

    def hand_over(self) -> int:
        self.version += 1
        return self.version

    def keep(self, version: int) -> None:
        del version

    def checkpoint(self) -> None:
        pass

    def finish(self, version: int | None = None, *, as_parent: bool = False) -> None:
        del version, as_parent

    def close(self) -> None:
        pass


class Committing(StoreWriter):
    """Commits anything, nowhere."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def commit(self, prepared: PreparedEpisode) -> str:
        del prepared
        return f"ep_{next(self._numbers):06d}"


class Tried(Validation):
    """Held-out starts of which the parent solves 10 of 20, and a version so many."""

    # It is frozen, and what is solved changes.
    __setattr__ = object.__setattr__

    def __init__(self, solved: int) -> None:
        self.solved, self.versions = solved, list[int]()

    def test(self, version: int, *, updates: int, episodes: int, cpu_minutes: float) -> VersionTest:
        self.versions.append(version)
        gained, lost = max(0, self.solved - 10), max(0, 10 - self.solved)
        counts = (updates, episodes, cpu_minutes, 20, self.solved, 0.0, 1.0, 0.5, 10)
        return VersionTest(version, *counts, gained, lost, 1.0)


def session(
    folder: Path,
    learner: Counting,
    false_alarm: int = 10,
    *,
    tried: Tried | None = None,
    standing: Standing | None = None,
    **settings: Any,
) -> Session:
    folder.mkdir(exist_ok=True)
    return Session(
        config=PracticeConfig(
            **{
                "lanes": 2,
                "warmup_episodes": 2,
                "critic_updates": 6,
                "false_alarm": false_alarm,
                "test_every": 0,
                "disk_gib": 0.0,
                **settings,
            }
        ),
        max_updates=1000,
        checkpoint_every=1000,
        run_dir=folder,
        store=folder,
        writer=Committing(),
        ledger=Ledger.of(folder),
        standing=standing or Standing({}, "id", {}),
        build=lambda: learner,
        start=lambda _, number: Condition(f"start {number}", number, {}),
        worlds=("cell",),
        validation=tried,
        listener=PracticeListener(),
        journal=Journal(folder, None, writes=True),
    )


def flown_by(task: RoundTask, lane: int, *, success: bool = False, trouble: str = "") -> Flown:
    """Lane ``lane`` of a round; with ``trouble`` it could not be kept."""
    driver = task.drivers[lane]
    version = task.version if driver == "explorer" else None
    # What is committed is not looked at here.
    kept = None if trouble else PreparedEpisode(Path(), object.__new__(Manifest))
    reason = "not_finite" if trouble else ""
    number = task.first + lane
    return Flown(number, driver, version, 0, success, 0.5, 8, 2, reason, kept, trouble)


def fly_pair(practice: Session, *, better: Driver) -> None:
    task = next(practice.tasks())
    for lane, driver in enumerate(task.drivers):
        flown = flown_by(task, lane, success=driver == better)
        practice.commit(task, [flown])
        practice.learn([flown])


def test_without_held_out_starts_the_pairs_say_that_it_harms(tmp_path: Path) -> None:
    practice = session(tmp_path, Counting())
    fly_pair(practice, better="parent")
    assert practice.version is not None
    for _ in range(60):
        fly_pair(practice, better="parent")
        if practice.ended is not None:
            break
    assert practice.ended is not None
    assert "has cost" in practice.ended.why
    assert not practice.ended.sound
    assert kept_version((), None, practice.version, practice.ended)[0] == "parent"
    assert practice.test() is None


def test_what_helps_goes_on(tmp_path: Path) -> None:
    practice = session(tmp_path, Counting())
    for _ in range(60):
        fly_pair(practice, better="explorer")
    assert practice.ended is None
    assert practice.ledger.regret < 0


def test_what_the_switch_cost_is_told_after_it_was_made_good(tmp_path: Path) -> None:
    practice = session(tmp_path, Counting(), false_alarm=10_000)
    fly_pair(practice, better="parent")
    for better in ("parent", "parent", "explorer", "parent", "explorer", "explorer", "explorer"):
        fly_pair(practice, better=better)
    # +1 +1 -1 +1 -1 -1 -1 after the warm-up's.
    counted = pairs(practice.ledger.flights)
    assert (practice.ledger.dip, practice.ledger.regret) == (2, -1)
    assert len(counted) == 7
    (*_, last) = logged(tmp_path)
    assert (last["practice/dip"], last["practice/regret"]) == (2, -1)


def test_nothing_drives_by_critics_that_have_only_begun(tmp_path: Path) -> None:
    """It was told to hurry in the middle of the first updates; they are done when it goes on."""
    learner = Counting(made=4)
    practice = session(tmp_path, learner)
    fly_pair(practice, better="parent")
    assert (learner.step, practice.version, practice.standing.begun) == (4, None, False)
    # Those that are left, no more.
    learner.made = 1000
    practice.catch_up()
    assert (learner.step, practice.version, practice.standing.begun) == (6, 2, True)
    assert practice.standing.owed == 0.0
    # With nothing due, nothing is done.
    practice.catch_up()
    assert (learner.version, len(learner.left), practice.standing.rounds) == (2, 2, 2)


def test_updates_have_the_time_that_is_left(tmp_path: Path) -> None:
    """Counted with what earlier calls took; on an arm, whose time it is, they have all of it."""
    settings: dict[str, Any] = {"max_minutes": 2.0, "max_cpu_minutes": 1.5}
    spent = Standing({}, "id", {}, seconds=30.0, cpu_seconds=80.0)
    learner = Counting()
    world = session(tmp_path / "world", learner, standing=spent, **settings)
    task = next(world.tasks())
    lanes = [flown_by(task, lane) for lane in range(2)]
    world.took(task, [dataclasses.replace(f, pid=-1, cpu_seconds=15.0) for f in lanes])
    (left,) = learner.left
    assert 60.0 < left.seconds < 90.0
    # The round took more of it than there was: not one is made.
    assert -25.0 < left.cpu_seconds < -20.0
    assert left.begun()()
    other = Counting()
    arm = session(tmp_path / "arm", other, standing=spent, **settings)
    arm.learns_on = True
    fly_pair(arm, better="parent")
    assert other.left == [UNLIMITED]


def drifting(folder: Path, solved: int | None, *, begun: float = 0.0, **settings: Any) -> Session:
    """After a pair that was learned from at a drift of 2, and a test if there are held-out starts:
    ``solved`` of 20, where the parent solves 10.
    """
    learner = Counting()
    learner.apart = begun
    tried = None if solved is None else Tried(solved)
    practice = session(folder, learner, 10_000, tried=tried, **settings)
    fly_pair(practice, better="parent")
    learner.apart = 2.0
    fly_pair(practice, better="parent")
    return practice


def test_a_policy_that_drifts_off_its_parent_and_is_worse_ends_it(tmp_path: Path) -> None:
    practice = drifting(tmp_path, 9)
    ended = practice.ended
    assert ended is not None
    assert not ended.sound
    assert "drifted off its parent: their answers are 2.00 times as far" in ended.why
    assert "practice.max_drift: 1" in ended.why
    assert "solves 9 of 20 held-out starts, the parent 10" in ended.why
    assert finished_without_run(practice) == "parent"


def finished_without_run(practice: Session) -> str:
    """What would be kept."""
    assert practice.ended is not None
    assert practice.version is not None
    return kept_version(practice.standing.tests, None, practice.version, practice.ended)[0]


def test_the_best_version_that_was_tested_before_it_drifted_is_kept(tmp_path: Path) -> None:
    learner, tried = Counting(), Tried(12)
    practice = session(tmp_path, learner, 10_000, tried=tried, test_every=2)
    fly_pair(practice, better="explorer")
    fly_pair(practice, better="explorer")
    good = practice.standing.tests[-1].version
    learner.apart, tried.solved = 3.0, 4
    fly_pair(practice, better="explorer")
    assert practice.ended is not None
    assert practice.version is not None
    kept = kept_version(practice.standing.tests, None, practice.version, practice.ended)
    assert kept == ("tested", good)


def test_who_drifts_and_gets_better_goes_on_and_is_looked_at_again_further_out(
    tmp_path: Path,
) -> None:
    practice = drifting(tmp_path, 10)
    learner, tried = practice.learner, practice.validation
    assert isinstance(learner, Counting)
    assert isinstance(tried, Tried)
    assert practice.ended is None
    asked = len(tried.versions)
    assert asked == 1
    # Not at every look, and not forgotten by going on elsewhere.
    fly_pair(practice, better="explorer")
    assert len(tried.versions) == asked
    practice.keep()
    standing = read_standing(tmp_path)
    assert standing is not None
    assert (standing.drift.begun, standing.drift.cleared) == (0.0, 2.0)
    again = session(tmp_path, learner, 10_000, tried=tried, standing=standing)
    fly_pair(again, better="explorer")
    assert len(tried.versions) == asked
    learner.apart, tried.solved = 3.1, 3
    fly_pair(again, better="explorer")
    assert again.ended is not None
    assert "3.10 times" in again.ended.why


@pytest.mark.parametrize("better", ["parent", "explorer"])
def test_on_an_arm_the_pairs_decide_on_who_drifts(tmp_path: Path, better: Driver) -> None:
    learner = Counting()
    practice = session(tmp_path, learner, 10_000)
    fly_pair(practice, better="parent")
    learner.apart = 2.0
    fly_pair(practice, better=better)
    ended = practice.ended
    assert (ended is None) == (better == "explorer")
    if ended is not None:
        assert "on the starts that both had, what was learned has cost 1 successes" in ended.why


def test_what_began_elsewhere_has_no_parent_to_drift_off(tmp_path: Path) -> None:
    """SAC from scratch; and nobody is watched who does not want to be, or cannot."""
    for number, (begun, settings) in enumerate(
        ((0.7, {}), (0.0, {"max_drift": None}), (0.0, {"max_drift": 2.0}))
    ):
        folder = tmp_path / str(number)
        assert drifting(folder, 3, begun=begun, **settings).ended is None
    with pytest.raises(ConfigError, match=r"practice\.max_drift must be positive"):
        PracticeConfig(max_drift=0.0)


def test_three_rounds_that_are_lost_with_their_actors_end_it(tmp_path: Path) -> None:
    practice = session(tmp_path, Counting())
    fly_pair(practice, better="explorer")
    for _ in range(3):
        assert practice.ended is None
        practice.took(next(practice.tasks()), None)
    assert practice.ended is not None
    assert practice.ended.why == "3 rounds in a row were lost with their actors"
    assert (practice.ended.sound, practice.ended.goes_on) == (False, True)


def test_a_world_of_which_nothing_can_be_kept_ends_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A sensor that broke for good; whoever drove is not blamed for it."""
    practice = session(tmp_path, Counting())
    fly_pair(practice, better="parent")
    for _ in range(3):
        assert practice.ended is None
        task = next(practice.tasks())
        lanes = range(len(task.drivers))
        practice.took(task, [flown_by(task, lane, trouble="block/pose") for lane in lanes])
    assert practice.ended is not None
    assert (practice.ended.sound, practice.ended.goes_on) == (False, True)
    assert "3 rounds in a row left nothing that could be kept, the last: episode 7" in (
        practice.ended.why
    )
    assert "from start 4 in 'cell', ended as not_finite (block/pose)" in practice.ended.why
    assert "not kept: episode 2 of practice" in caplog.text
    # One that was lost among others is none of these, and no pair.
    assert pairs(practice.ledger.flights) == []
    other = session(tmp_path / "other", Counting())
    fly_pair(other, better="parent")
    for _ in range(4):
        task = next(other.tasks())
        spoiled = flown_by(task, 0, trouble="block/pose")
        other.took(task, [spoiled, flown_by(task, 1, success=True)])
    assert other.ended is None
    assert pairs(other.ledger.flights) == []


def test_the_disk_of_the_run_is_looked_at_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, versions and checkpoints lie there, perhaps on another disk than the store."""
    practice = session(tmp_path / "run", Counting(), disk_gib=1.0)
    practice.store = tmp_path
    free = {tmp_path: 2 * 2**30, tmp_path / "run": 2**29}
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free[path]))
    assert list(practice.tasks()) == []
    assert practice.ended is not None
    assert f"the disk of '{tmp_path / 'run'}' has 0.50 GiB left" in practice.ended.why
    assert practice.ended.sound


def test_what_is_not_kept_is_no_warm_up(tmp_path: Path) -> None:
    practice = session(tmp_path, Counting())
    task = next(practice.tasks())
    practice.took(task, [flown_by(task, 0, trouble="block/pose"), flown_by(task, 1)])
    assert practice.learner is None
    fly_pair(practice, better="parent")
    assert practice.learner is not None


def test_who_gives_no_answer_ends_it_in_order_once_something_was_learned(tmp_path: Path) -> None:
    practice = session(tmp_path, Counting())
    # The parent: nothing is kept of nothing.
    assert not practice.failed(InferenceError("non-finite actions"))
    fly_pair(practice, better="parent")
    assert practice.failed(InferenceError("non-finite actions"))
    assert practice.ended is not None
    assert "version 2 or its parent cannot drive: non-finite" in practice.ended.why
    assert finished_without_run(practice) == "parent"
