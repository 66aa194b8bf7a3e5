"""Practice on an emulated arm, from the checks to the run that comes out; what breaks it off."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hardware.emulators.lab.launch import LabProcess
from policies.critics.reranked import RerankedPolicy
from policies.registry import load_policy
from robolearn.data.episode import take_overs
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, PracticeError, SpecMismatchError
from robolearn.operations.cell import opened
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.deploy.options import TakeOverOptions
from robolearn.operations.practice.beside import LearningBeside
from robolearn.operations.practice.experiment import PracticeExperiment, practice_experiment
from robolearn.operations.practice.ledger import Ledger
from robolearn.operations.practice.on_cell import CellPractice, finetune_on_cell
from robolearn.operations.practice.result import FinetuneResult
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.run_directory import load_run
from tests.hardware.lab import CONFIG, cell_file
from tests.two_runs import two_runs
from tests.waiting import wait_until

SCRIPTED = TakeOverOptions(by="scripted")
SMALL = {
    "algorithm.width": 16,
    "algorithm.batch_size": 16,
    "algorithm.backup_chunks": 1,
    "fit.checkpoint_every": 1,
    "practice.max_steps": 10,
    "practice.warmup_episodes": 2,
    "practice.critic_updates": 3,
    "practice.max_episodes": 6,
    "practice.disk_gib": 0.0,
}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), 12) / "one"


def small(parent: Path, **settings: float) -> PracticeExperiment:
    named = {name.replace("__", "."): value for name, value in settings.items()}
    return practice_experiment(load_run(parent), None, SMALL | named, on_cell=True)


class Told(Unattended):
    """Hears what happens; ``on`` is called with every line."""

    def __init__(self, on: Callable[[str, str], None] = lambda what, text: None) -> None:
        super().__init__(agreed=True)
        self.lines = list[tuple[str, str]]()
        self._on = on

    def told(self, what: str, text: str) -> None:
        self.lines.append((what, text))
        self._on(what, text)


def test_what_cannot_be_practised_on_is_told_before_anything_is_connected(
    parent: Path, tmp_path: Path
) -> None:
    experiment, told = small(parent), Told()
    where = CellPractice(robot=cell_file(tmp_path, 41, {}, lab=False), start_lab=True)
    with pytest.raises(ConfigError, match="describes a real cell"):
        finetune_on_cell(experiment, parent, where, tmp_path / "s", tmp_path / "o", told)
    where = CellPractice(robot=cell_file(tmp_path, 41), score="operator")
    with pytest.raises(ConfigError, match="needs a terminal whose keys"):
        finetune_on_cell(experiment, parent, where, tmp_path / "s", tmp_path / "o", told)
    where = CellPractice(robot=CONFIG.parent / "lab_so101.yaml", start_lab=True)
    with pytest.raises((ConfigError, SpecMismatchError), match=r"lab_so101|tool/xy_table"):
        finetune_on_cell(experiment, parent, where, tmp_path / "s", tmp_path / "o", told)
    with pytest.raises(ConfigError, match="nobody is called 'knob' who takes over"):
        CellPractice(robot=CONFIG, takeover=TakeOverOptions(by="knob"))
    with pytest.raises(ConfigError, match="lead_ticks"):
        CellPractice(robot=CONFIG, lead_ticks=-1)
    # Nothing says how decisions were made; nobody would tell whether it harms.
    where, file = CellPractice(robot=cell_file(tmp_path, 41), start_lab=True), tmp_path / "p.yaml"
    file.write_text("policy: dppo\nalgorithm: {width: 16, batch_size: 16}\n")
    usual = {k: v for k, v in SMALL.items() if not k.startswith("algorithm.")}
    dppo = practice_experiment(load_run(parent), file, usual, on_cell=True)
    with pytest.raises(ConfigError, match="dppo learns from how each of its decisions was made"):
        finetune_on_cell(dppo, parent, where, tmp_path / "s", tmp_path / "o", told)
    alone = small(parent, practice__parent_share=0.125)
    with pytest.raises(ConfigError, match=r"parent_share 0\.125 of 2 lanes is none"):
        finetune_on_cell(alone, parent, where, tmp_path / "s", tmp_path / "o", told)
    assert not (tmp_path / "s").exists()
    assert told.lines == []


def practised(parent: Path, folder: Path, told: Told, **settings: Any) -> FinetuneResult:
    resume = bool(settings.pop("resume", False))
    where = CellPractice(robot=folder / "cell.yaml", start_lab=True)
    out, store = folder / "out", folder / "store"
    experiment = small(parent, **settings)
    return finetune_on_cell(experiment, parent, where, store, out, told, resume=resume)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arm does wait for what is learned, so that versions fly early; real-time priority for the
    lab alone.
    """
    take = opened.take_real_time
    monkeypatch.setattr(
        opened, "take_real_time", lambda pid, *how, **more: bool(pid) and take(pid, *how, **more)
    )
    add = LearningBeside.add

    def and_wait(self: Any, flown: Any) -> None:
        add(self, flown)
        session = self._session
        known = len(session.ledger.flights)
        wait_until(lambda: session.standing.rounds >= known or self._error is not None, 120.0)

    monkeypatch.setattr(LearningBeside, "add", and_wait)


@pytest.mark.slow
def test_an_arm_practises(parent: Path, tmp_path: Path, patient: None) -> None:
    del patient
    cell_file(tmp_path, 42)
    told = Told()
    found = practised(parent, tmp_path, told)
    assert (found.kept, found.sound, found.episodes, found.tests) == ("last", True, 6, ())
    flights = Ledger.of(tmp_path / "out").flights
    store = EpisodeStore.open(tmp_path / "store")
    assert [f.id for f in flights] == list(store.ids())
    # Two to begin with, then pairs from one start, who is first by turns.
    assert [f.driver for f in flights[:2]] == ["parent", "parent"]
    pairs = [flights[2:4], flights[4:6]]
    assert [{f.driver for f in pair} for pair in pairs] == [{"parent", "explorer"}] * 2
    assert all(pair[0].start == pair[1].start for pair in pairs)
    assert pairs[0][0].driver != pairs[1][0].driver
    assert all((f.version is None) == (f.driver == "parent") for f in flights)
    meta = store.meta(flights[2].id)
    assert (meta.kind, meta.env, meta.reset_note[:17]) == (
        "online",
        "lab_ur5e",
        "placed by the lab",
    )
    assert meta.provenance["practice"]["driver"] == flights[2].driver
    assert isinstance(load_policy(tmp_path / "out"), RerankedPolicy)
    assert found.updates > 3
    assert found.cpu_seconds > 0
    again = practised(parent, tmp_path, told, resume=True)
    assert again.reused


@pytest.mark.slow
def test_the_expert_takes_over_on_an_arm(parent: Path, tmp_path: Path) -> None:
    """Who corrects a policy in simulation does on the lab's arm, as a user has it: the loop with
    its priority, and nobody waits for the expert's plans or for what is learned.
    """
    cell_file(tmp_path, 42)
    settings = SMALL | {"practice.max_steps": 60, "practice.max_episodes": 2}
    experiment = practice_experiment(load_run(parent), None, settings, on_cell=True, corrected=True)
    where = CellPractice(robot=tmp_path / "cell.yaml", start_lab=True, takeover=SCRIPTED)
    store = tmp_path / "store"
    found = finetune_on_cell(experiment, parent, where, store, tmp_path / "out", Told())
    wear = found.wear
    assert wear.take_overs > 0
    assert 0 < wear.person_seconds < wear.robot_seconds
    assert wear.travel_rad > 0
    # To the start and the episode, twice; nothing was stopped.
    assert (wear.moves, wear.stops) == (4, 0)
    episodes = [EpisodeStore.open(store).read(i) for i in EpisodeStore.open(store).ids()]
    assert any("operator:scripted" in e.source for e in episodes)
    assert all({*e.drivers} <= {"policy", "script", "nobody"} for e in episodes)
    assert wear.take_overs == sum(int(take_overs(e.source).sum()) for e in episodes)
    # Half of every batch was what the person did: there are no demonstrations beside it.
    assert found.updates > 0
    assert isinstance(load_policy(tmp_path / "out"), RerankedPolicy)


@pytest.mark.slow
def test_a_lab_that_is_killed_and_a_key_leave_what_going_on_needs(
    parent: Path, tmp_path: Path, patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    del patient
    cell_file(tmp_path, 43)
    labs = list[LabProcess]()

    class Remembered(LabProcess):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            labs.append(self)

    monkeypatch.setattr(opened, "LabProcess", Remembered)

    def kill(what: str, text: str) -> None:
        del text
        if what == "episode 2":
            os.kill(labs[-1].pid, signal.SIGKILL)

    with pytest.raises(PracticeError, match=r"episodes are kept in .* go on with resume"):
        practised(parent, tmp_path, Told(kill))
    kept = len(Ledger.of(tmp_path / "out").flights)
    assert 3 <= kept <= 4

    def press(what: str, text: str) -> None:
        del text
        if what.startswith("episode"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        practised(parent, tmp_path, Told(press), resume=True)
    found = practised(parent, tmp_path, Told(), resume=True, practice__max_episodes=8)
    flights = Ledger.of(tmp_path / "out").flights
    assert [f.id for f in flights] == list(EpisodeStore.open(tmp_path / "store").ids())
    assert found.episodes == len(flights) >= 8
    assert len({f.number for f in flights}) == len(flights)
