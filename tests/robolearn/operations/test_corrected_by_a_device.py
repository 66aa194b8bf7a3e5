"""A person at a device takes over from a policy, through the commands: ``collect`` in a world and
on a cell, ``finetune`` on a cell.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from hardware.cell.spec import cell_spec
from hardware.teleop.device import DeviceReading, Steps, View
from robolearn.cli.main import main
from robolearn.contracts import PolicySpec
from robolearn.data.episode import Episode, take_overs
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.operations import collect as collecting
from robolearn.operations.cell import collect as cell_collecting
from robolearn.operations.cell import opened
from robolearn.operations.deploy import policy as deploy_policy
from robolearn.operations.deploy import take_over
from robolearn.pusht import BLOCK, TOOL
from robolearn.spec import TaskSpace
from robolearn.types import PolicyInput, PolicyOutput
from tests.hardware.env.test_real_env_tool import cell as tool_cell
from tests.hardware.lab import cell_file
from tests.hardware.teleop.answering import Answering
from tests.two_runs import two_runs

PUSHT = Path(__file__).parents[3] / "configs" / "eval" / "pusht.yaml"
# The person pushes between these steps of every episode.
BEGINS, ENDS = 5, 12


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), 12) / "one"


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an engine-less lab at an address of its own."""
    path = cell_file(tmp_path, 83)
    # Real-time priority for the lab alone.
    take = opened.take_real_time
    monkeypatch.setattr(
        opened, "take_real_time", lambda pid, *how, **more: bool(pid) and take(pid, *how, **more)
    )
    return path


def suite(folder: Path, max_steps: int) -> Path:
    path = folder / "short.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(PUSHT.read_text()) | {"max_steps": max_steps}))
    return path


class Correcting(Answering):
    """Nudges the tool by 2 mm per look for a while in the middle of every episode."""

    name = "keyboard"

    def __init__(self, **answers: list[str]) -> None:
        super().__init__(ready=["start"] * 9, review=["keep"] * 9, **answers)
        self.total, self.pushing = np.zeros(6), False

    def begin(self, opening: float | None) -> None:
        del opening

    def poll(self) -> DeviceReading:
        self.total[0] += 0.002 * self.pushing
        return DeviceReading(time.monotonic_ns(), True, True, Steps(self.total.copy()))

    def show(self, view: View) -> None:
        super().show(view)
        self.pushing = view.phase == "running" and BEGINS <= view.step < ENDS


def require_corrected(episode: Episode, person: Correcting) -> None:
    """The policy began, the person took over once and let go, and what is kept says so."""
    assert set(episode.source) >= {"human:keyboard"}
    assert episode.drivers[0] != "human"
    assert set(episode.drivers) <= {"policy", "human", "nobody"}
    drove = np.flatnonzero([d == "human" for d in episode.drivers])
    assert BEGINS <= drove[0] <= ENDS
    assert take_overs(episode.source).sum() == 1
    assert "policy" in episode.drivers[: drove[0]]
    np.testing.assert_array_equal(
        np.flatnonzero(episode.intervention), drove, "what weights and rewards are made of"
    )
    # The tool went where the hand did: sideways, where neither policy goes while it is held.
    (moved,) = (v for name, v in episode.action.items() if name.startswith("tool/"))
    assert np.linalg.norm(moved[drove[-1], :2] - moved[drove[0], :2]) > 0.005
    assert person.closed
    shown = {(v.engaged, v.policy_drives) for v in person.views if v.phase == "running"}
    assert {(True, False), (False, True)} <= shown


def test_in_a_world(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Correcting()
    monkeypatch.setattr(collecting, "open_device", lambda *_: person)
    config = tmp_path / "collect.yaml"
    config.write_text("world: pusht_reference\nmax_steps: 30\n")
    store = tmp_path / "store"
    argv = ["collect", "--config", str(config), "--policy", str(run), "--episodes", "1"]
    assert main([*argv, "--corrected-by", "keyboard", "--plain", "--out", str(store)]) == 0
    (name,) = EpisodeStore.open(store).ids()
    episode = EpisodeStore.open(store).read(name)
    assert (episode.meta.kind, episode.meta.agent) == (
        "corrected",
        "one corrected by human:keyboard",
    )
    require_corrected(episode, person)


@dataclass(frozen=True)
class Down:
    """A policy of the fake cell that lets the tool down by a millimetre per step, and its builder
    in a process of its own.
    """

    @property
    def spec(self) -> PolicySpec:
        offered = cell_spec(tool_cell())
        seen = tuple(s for s in offered.signals if s.name == "tool/pose")
        return PolicySpec(TaskSpace(seen, offered.actions, offered.rate_hz), 2, 16, 8)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        newest = request.observations["tool/pose"][:, -1]
        actions = np.zeros((len(newest), n, self.spec.horizon, 4))
        actions[..., :3] = newest[:, None, None, :3]
        actions[..., 2] -= 0.001 * np.arange(1, self.spec.horizon + 1)
        return PolicyOutput(actions, np.zeros((len(newest), n)), request.t_ns)

    def __call__(self) -> Down:
        return self


def test_on_a_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Correcting(running=[""] * 30 + ["keep"])
    monkeypatch.setattr(cell_collecting, "load_cell", lambda _: tool_cell())
    monkeypatch.setattr(cell_collecting, "open_device", lambda *_: person)
    monkeypatch.setattr(deploy_policy, "policy_builder", lambda *_, **__: Down())
    monkeypatch.setattr(deploy_policy, "policy_hash", lambda _: "down")
    monkeypatch.setattr(deploy_policy, "run_provenance", lambda _: {})
    monkeypatch.setattr(opened, "take_real_time", lambda *_, **__: False)
    store = tmp_path / "store"
    argv = ["collect", "--robot", "cell.yaml", "--policy", str(tmp_path / "down"), "--yes"]
    argv += ["--corrected-by", "keyboard", "--episodes", "1"]
    assert main([*argv, "--plain", "--out", str(store)]) == 0
    (name,) = EpisodeStore.open(store).ids()
    episode = EpisodeStore.open(store).read(name)
    assert (episode.meta.kind, episode.meta.env) == ("corrected", "tool_cell")
    assert episode.meta.agent == "down corrected by human:keyboard"
    assert episode.meta.provenance["policy_hash"] == "down"
    require_corrected(episode, person)


@pytest.mark.slow
def test_while_an_arm_practises(
    run: Path,
    cell: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    person = Correcting()
    monkeypatch.setattr(take_over, "device_of", lambda *_: person)
    store = tmp_path / "store"
    argv = ["finetune", str(run), "--robot", str(cell), "--start-lab", "--yes", "--json"]
    argv += ["--suite", str(suite(tmp_path, 30)), "--takeover", "keyboard", "--store", str(store)]
    settings = {
        "algorithm.width": 16,
        "algorithm.batch-size": 16,
        "algorithm.backup-chunks": 1,
        "fit.checkpoint-every": 1,
        "practice.max-steps": 30,
        "practice.warmup-episodes": 2,
        "practice.critic-updates": 3,
        "practice.max-episodes": 2,
        "practice.disk-gib": 0.0,
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    assert main([*argv, *words, "--out", str(tmp_path / "out")]) == 0
    found = json.loads(capsys.readouterr().out)
    episodes = [EpisodeStore.open(store).read(i) for i in EpisodeStore.open(store).ids()]
    assert len(episodes) == found["episodes"] == 2
    for episode in episodes:
        require_corrected(episode, person)
    assert found["wear"]["take_overs"] == 2
    assert 0 < found["wear"]["person_seconds"] < found["wear"]["robot_seconds"]
    assert found["updates"] > 0
