"""Action errors are exact where they are known, on episodes that no run was trained on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from robolearn.cli.main import main
from robolearn.contracts import PolicySpec
from robolearn.data.episode import EpisodeKind, EpisodeMeta, EpisodeStart, episode_from_arrays
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.ranking import action_error, question
from robolearn.operations.ranking.action_error import ErrorConfig
from robolearn.operations.ranking.rank import rank, ranked_values
from robolearn.operations.trust.trials import METHODS
from robolearn.spec import EmbodimentSpec
from robolearn.training.run_directory import write_json
from robolearn.types import Condition, Outcome, PolicyInput, PolicyOutput
from tests.learning_mocks import BLOCK, SPACE, TOOL
from tests.robolearn.training.test_checkpoint import make_run

OFFSETS = {"near": 0.01, "middle": 0.02, "far": 0.05}
EPISODES = 6


@dataclass
class Copies:
    """Its actions are what was recorded (see :func:`stored`), off by ``offset``."""

    offset: float
    execute: int = 1
    spec: PolicySpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = PolicySpec(SPACE, n_obs=1, horizon=self.execute, execute=self.execute)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        seen = request.observations[TOOL][:, -1]
        shape = (len(seen), n, self.execute, 2)
        chunk: NDArray[np.float64] = np.zeros(shape)
        chunk += seen[:, None, None] + np.array([self.offset, 0.0])
        return PolicyOutput(chunk, np.zeros(chunk.shape[:2]), request.t_ns)


def meta(i: int, kind: EpisodeKind = "demonstration") -> EpisodeMeta:
    return EpisodeMeta(
        kind=kind,
        task="pusht",
        embodiment=EmbodimentSpec("mock", SPACE.observations, SPACE.actions, 10.0),
        condition=Condition(f"e{i}", i, {TOOL: (0.1, 0.01 * i)}),
        outcome=Outcome(False, 0.5, 0.5, truncated=True, reason="time_limit"),
    )


def stored(path: Path, kind: EpisodeKind = "demonstration") -> Path:
    """Demonstrations whose action is where the tool is, and a rollout whose is not."""
    store, rng = EpisodeStore.create(path), np.random.default_rng(0)
    for i in range(EPISODES + 1):
        tool, block = rng.uniform(0.1, 0.4, (12, 2)), rng.uniform(0.1, 0.4, (12, 3))
        wrong = i == EPISODES
        episode = episode_from_arrays(
            meta(i, "rollout" if wrong else kind),
            {TOOL: tool, BLOCK: block},
            {TOOL: 0.5 - tool if wrong else tool},
            progress=np.zeros(12),
        )
        with store.writer() as writer:
            writer.append(episode)
    return path


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Path, ...]]:
    """Three runs, trained at the starts of the first episodes."""
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(question, "load_policy", lambda run, threads: Copies(OFFSETS[run.name]))
    monkeypatch.setattr(action_error, "policy_hash", lambda run: f"hash of {run.name}")

    def made(trained: int = 2) -> tuple[Path, ...]:
        starts = [asdict(EpisodeStart.of(meta(i))) for i in range(trained)]
        found = []
        for name in OFFSETS:
            run = make_run(tmp_path / f"trained {trained}" / name)
            write_json(run / "provenance.json", {"seed": 0, "starts": starts})
            found.append(run)
        return tuple(found)

    return made


def test_errors_are_those_of_what_was_not_trained_on(
    runs: Callable[..., tuple[Path, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, mine, out = stored(tmp_path / "store"), runs(), tmp_path / "out"
    found = rank(mine[::-1], store, out, ErrorConfig(every=1))
    assert [v.name for v in found.values] == ["near", "middle", "far"]
    kept = [
        EpisodeStore.open(store).read(i).observed(TOOL)
        for i in EpisodeStore.open(store).ids()[:EPISODES]
    ]
    sigma = np.concatenate(kept)[:, 0].std()
    for value in found.values:
        wanted = -OFFSETS[value.name] / sigma
        assert value.value.value == pytest.approx(wanted, rel=1e-4)
        assert value.value.n == EPISODES - 2
        assert value.spread == pytest.approx(0.0, abs=1e-6)
    method, values = ranked_values(out)
    assert "weaker still" in METHODS[method]
    assert values["hash of near"] == pytest.approx(-0.01 / sigma, rel=1e-4)
    assert len(json.loads((out / "ranking.json").read_text())["settings"]["episodes"]) == 4
    # A folder holds the errors on one set of episodes; those that others were trained on differ.
    with pytest.raises(ConfigError, match="not be comparable"):
        rank(runs(3), store, out, ErrorConfig(every=1))
    words = ["rank", *map(str, mine), "--store", str(store), "--out", str(tmp_path / "shown")]
    assert main([*words, "--method", "action_error"]) == 0
    said = capsys.readouterr().out
    assert "no outcome is in them" in said
    assert said.index("near ") < said.index("far ")
    assert main([*words, "--method", "action_error", "--steps", "5"]) == 2


def test_a_file_says_whose_actions_are_right(
    runs: Callable[..., tuple[Path, ...]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An expert's recordings could not be asked about: --config was refused, and the default is
    that a person showed the task.
    """
    words = ["rank", *map(str, runs()), "--store", str(stored(tmp_path / "store", "scripted"))]
    words += ["--method", "action_error", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "no episodes of kinds ['demonstration']" in capsys.readouterr().err
    config = tmp_path / "errors.yaml"
    config.write_text("kinds: [scripted]\nevery: 1\n")
    assert main([*words, "--config", str(config)]) == 0
    said = capsys.readouterr().out
    assert said.index("near ") < said.index("far ")
    config.write_text("steps: 3\n")
    assert main([*words, "--config", str(config)]) == 2
    assert "steps" in capsys.readouterr().err


def test_what_says_nothing_is_refused(
    runs: Callable[..., tuple[Path, ...]], tmp_path: Path
) -> None:
    store = stored(tmp_path / "store")
    with pytest.raises(DataError, match="6 episodes begins where one of the runs was trained"):
        rank(runs(EPISODES), store, tmp_path / "a", ErrorConfig())
    mine = runs()
    write_json(mine[1] / "provenance.json", {"seed": 0})
    with pytest.raises(DataError, match="does not say which starts"):
        rank(mine, store, tmp_path / "b", ErrorConfig())
    with pytest.raises(DataError, match="no episodes of kinds"):
        rank(runs(1), store, tmp_path / "c", ErrorConfig(kinds=("play",)))
    with pytest.raises(ConfigError, match="at least 1"):
        dataclasses.replace(ErrorConfig(), every=0)


def test_only_what_all_execute_is_compared(
    runs: Callable[..., tuple[Path, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that plans further is not blamed for the far end of its plan."""
    lengths = {"near": 4, "middle": 1, "far": 2}
    monkeypatch.setattr(
        question,
        "load_policy",
        lambda run, threads: Copies(OFFSETS[run.name], lengths[run.name]),
    )
    found = rank(runs(), stored(tmp_path / "store"), tmp_path / "out", ErrorConfig(every=1))
    assert [v.name for v in found.values] == ["near", "middle", "far"]
