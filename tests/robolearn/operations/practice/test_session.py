"""A practice whose episodes come one at a time, with nothing but its pairs to judge by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from robolearn.data.store.store import EpisodeStore
from robolearn.operations.practice.actors import Flown
from robolearn.operations.practice.ledger import Ledger, pairs
from robolearn.operations.practice.listener import PracticeListener
from robolearn.operations.practice.options import PracticeConfig
from robolearn.operations.practice.records import Driver, Standing
from robolearn.operations.practice.result import kept_version
from robolearn.operations.practice.session import Session
from robolearn.training.learner import Taken
from robolearn.training.log import Journal, logged
from robolearn.types import Condition


class Counting:
    """Learns nothing, and remembers what it was asked; ``made``: of so many updates at most."""

    def __init__(self, made: int = 1000) -> None:
        self.step, self.version, self.made = 0, 0, made

    def take_in(self) -> Taken:
        return Taken(1, 8, 2)

    def update(self, count: int) -> Mapping[str, float]:
        self.step += min(count, self.made)
        return {}

    def hand_over(self) -> int:
        self.version += 1
        return self.version

    def keep(self, version: int) -> None:
        del version

    def checkpoint(self) -> None:
        pass

    def finish(self, version: int | None = None) -> None:
        del version

    def close(self) -> None:
        pass


def session(folder: Path, learner: Counting, false_alarm: int = 10) -> Session:
    store = EpisodeStore.open_or_create(folder / "store")
    with store.writer() as writer:
        return Session(
            config=PracticeConfig(
                lanes=2,
                warmup_episodes=2,
                critic_updates=6,
                false_alarm=false_alarm,
                disk_gib=0.0,
            ),
            max_updates=1000,
            checkpoint_every=1000,
            run_dir=folder,
            store=folder / "store",
            writer=writer,
            ledger=Ledger.of(folder),
            standing=Standing({}, "id", {}),
            build=lambda: learner,
            start=lambda _, number: Condition(f"start {number}", number, {}),
            worlds=("cell",),
            validation=None,
            listener=PracticeListener(),
            journal=Journal(folder, None, writes=True),
        )


def fly_pair(practice: Session, *, better: Driver) -> None:
    task = next(practice.tasks())
    for lane, driver in enumerate(task.drivers):
        version = task.version if driver == "explorer" else None
        success = driver == better
        flown = Flown(task.first + lane, driver, version, 0, success, 0.5, 8, 2, "", None)
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
