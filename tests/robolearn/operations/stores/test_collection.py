"""What was killed is offered before recording goes on; what is wrong is said while it waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.repair import Recovered, find_recoverable
from robolearn.errors import RobotError
from robolearn.operations.stores.collection import (
    Collection,
    CollectListener,
    Place,
    SessionQuality,
)
from robolearn.runtime import run_episode
from robolearn.types import Tick
from tests.hardware.teleop.test_teleop import Hand
from tests.mocks import CONDITION, SPEC, Listener, PointEnv


class Breaks(Listener):
    def __init__(self, recorder: EpisodeRecorder, at: int) -> None:
        super().__init__()
        self.recorder, self.at = recorder, at

    def on_tick(self, tick: Tick) -> None:
        if tick.index == self.at:
            self.recorder.flush()
            raise RobotError("the cable is out")


def recorded(store: EpisodeStore, steps: int, breaks: int = -1) -> tuple[str, ...]:
    """The warnings of an episode that is kept; it may break off instead."""
    from hardware.teleop.agent import TeleopAgent

    with EpisodeRecorder(store, spec=SPEC, kind="demonstration", autosave=False) as recorder:
        quality = SessionQuality(store, recorder)
        agent = TeleopAgent(Hand([(0.01 * k, 0.2) for k in range(steps)]), SPEC)
        run_episode(
            PointEnv(), agent, None, [recorder, Breaks(recorder, breaks)], CONDITION,
            max_steps=steps, task="walk",
        )  # fmt: skip
        warnings = quality.judge()
        assert quality.lost_frames == 0
        quality.kept(recorder.keep(), solved=True)
        return warnings


def collection(**told: Any) -> Collection:
    place = Place(PointEnv(), "walk", 10, lambda _: CONDITION, {})
    return Collection(
        place=place, who="keyboard", episodes=1, operator="", listener=CollectListener(**told),
        provenance={}, max_steps=0, seed=0,
    )  # fmt: skip


def test_a_killed_recording_is_offered_and_recovered(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    with pytest.raises(RobotError):
        recorded(store, 20, breaks=12)
    (killed,) = find_recoverable(store)
    asked: list[int] = []
    done: list[Recovered] = []

    def no(found: tuple[Any, ...]) -> bool:
        asked.append(found[0].steps)
        return False

    collection(on_recoverable=no, on_recovered=done.append).begin(store)
    assert asked == [killed.steps]
    assert not done
    assert not EpisodeStore.open(tmp_path / "store").ids()
    collection(on_recoverable=lambda _: True, on_recovered=done.append).begin(store)
    (saved,) = done[0].saved
    episode = EpisodeStore.open(tmp_path / "store").read(saved)
    assert episode.meta.outcome.reason == "recovered"
    assert episode.steps == killed.steps
    # There is nothing to ask about any more.
    collection(on_recoverable=no).begin(store)
    assert len(asked) == 1


def test_what_is_wrong_with_an_episode_is_said_with_what_to_do(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    warnings = recorded(store, 4)
    assert any("not solved" in w and "discard it" in w for w in warnings)
    assert all(": " in w for w in warnings)
    # What the person says of it stands for what the task said.
    (info,) = EpisodeStore.open(tmp_path / "store").list()
    assert info.success


def test_the_kind_says_who_acted_and_what_for() -> None:
    from dataclasses import replace

    person = collection()
    assert person.kind == "demonstration"
    assert replace(person, play=True).kind == "play"
    assert replace(person, who="corrected").kind == "corrected"
    assert replace(person, who="scripted").kind == "scripted"
