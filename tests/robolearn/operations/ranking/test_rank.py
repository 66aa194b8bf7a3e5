"""Rankings of trained runs from a store, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from eval.trials.table import TrialStore
from policies.off_policy_evaluation.fitted import EvaluationConfig
from robolearn.cli.main import main
from robolearn.data.episode import EpisodeMeta, episode_from_arrays
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.operations.ranking.policy_values import RankConfig
from robolearn.operations.ranking.rank import Race, Trials, rank
from robolearn.spec import EmbodimentSpec
from robolearn.training.run_directory import policy_hash
from robolearn.types import Condition, Outcome
from tests.eval.report_folder import trial
from tests.learning_mocks import SPACE, TOOL, random_episode
from tests.policies.every import Family

CONFIG = RankConfig(
    evaluation=EvaluationConfig(width=8, depth=1, members=2, batch_size=8, draws=1), steps=4
)


def stored(path: Path, *, signals: int = 2, episodes: int = 3) -> Path:
    store = EpisodeStore.create(path)
    for i in range(episodes):
        arrays = random_episode(f"e{i}", 15, i)
        observed = SPACE.observations[:signals]
        meta = EpisodeMeta(
            kind="rollout",
            task="pusht",
            embodiment=EmbodimentSpec("mock", observed, SPACE.actions, 10.0),
            condition=Condition(f"e{i}", i, {}),
            outcome=Outcome(False, 0.5, 0.5, truncated=True, reason="time_limit"),
        )
        shown = {s.name: arrays.observations[s.name][np.arange(15)] for s in observed}
        progress = np.asarray(arrays.reward)
        episode = episode_from_arrays(meta, shown, {TOOL: arrays.actions}, progress=progress)
        with store.writer() as writer:
            writer.append(episode)
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    family = Family(tmp_path_factory.mktemp("runs"))
    return tuple(family.run(name) for name in ("bc", "flow", "iql"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stored(tmp_path_factory.mktemp("data") / "store")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))


def results(
    folder: Path, runs: tuple[Path, ...], scores: dict[str, list[float]], how: str = ""
) -> Path:
    with TrialStore(folder) as table:
        for run in runs:
            for k, score in enumerate(scores.get(run.name, [])):
                found = trial(run.name, "gym_pusht", k, score, success=score >= 1.0)
                digest = f"{policy_hash(run)}{how}"
                table.add([dataclasses.replace(found, policy_hash=digest, video="", judge="")])
    return folder


def test_an_order_is_checked_against_trials_and_planned(
    runs: tuple[Path, ...],
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("robolearn.cli.shared.fitting.LINE_EVERY_S", 0.0)
    out = tmp_path / "ranking"
    found = rank(runs, store, out, CONFIG)
    assert [v.value.value for v in found.values] == sorted(
        (v.value.value for v in found.values), reverse=True
    )
    assert {v.name for v in found.values} == {"bc", "flow", "iql"}
    assert found.agreement is None
    assert not any(v.reused for v in found.values)
    best = found.values[0].name
    scores = {name: [0.1, 0.2] for name in ("bc", "flow", "iql")} | {best: [0.9, 0.8]}
    tried = results(tmp_path / "trials", runs, scores)
    trials = Trials((tried,), by="score")
    again = rank(runs, store, out, CONFIG, trials=trials, race=Race(6, 3))
    assert all(v.reused for v in again.values)
    assert [v.value for v in again.values] == [v.value for v in found.values]
    assert again.agreement is not None
    assert (again.agreement.best, again.agreement.regret) == (best, 0.0)
    assert again.plan is not None
    assert json.loads((out / "order.json").read_text())["agreement"]["chosen"] == best
    words = ["rank", *map(str, runs), "--store", str(store), "--out", str(tmp_path / "shown")]
    config = tmp_path / "rank.yaml"
    config.write_text("evaluation: {width: 8, depth: 1, members: 2, batch_size: 8}\nsteps: 4\n")
    words += ["--config", str(config), "--results", str(tried), "--by", "score", "--budget", "12"]
    assert main(words) == 0
    said = capsys.readouterr().out
    # How far every fit is, before what it found.
    lines = said.splitlines()
    for name in ("bc", "flow", "iql"):
        begun = lines.index(f"fit {name}: 4 updates")
        over = next(k for k, line in enumerate(lines) if line.startswith(f"  {name}: "))
        steps = [x for x in lines[begun:over] if x.startswith("  step ")]
        assert [x.split()[1] for x in steps] == ["1/4", "2/4", "3/4", "4/4"]
        assert "loss/critic" in steps[-1]
    assert "order against trials: Spearman" in said
    assert "plan: round" in said
    assert main([*words, "--method", "distributional", "--json"]) == 2
    assert "values of other settings" in capsys.readouterr().out


def test_trials_of_a_cell_are_those_of_the_run(
    runs: tuple[Path, ...], store: Path, tmp_path: Path
) -> None:
    """A cell's trials are executed ahead, which is in the policy's hash: none of them counted."""
    scores = {"bc": [0.1, 0.2], "flow": [0.9, 0.8]}

    def agreed(*folders: Path) -> dict[str, float]:
        trials = Trials(folders, by="score")
        found = rank(runs[:2], store, tmp_path / "ranking", CONFIG, trials=trials)
        assert found.agreement is not None
        return {name: e.value for name, e in found.tried.items()}

    ahead = results(tmp_path / "ahead", runs[:2], scores, "+lead_ticks=1")
    assert agreed(ahead) == pytest.approx({"bc": 0.15, "flow": 0.85})
    fast = results(tmp_path / "fast", runs[:2], {"bc": [0.3], "flow": [0.3]}, "-onnx")
    with pytest.raises(DataError, match="are one policy, executed in 2 ways"):
        agreed(ahead, fast)
    plain = results(tmp_path / "plain", runs[:2], {"bc": [0.4], "flow": [0.6]})
    assert agreed(ahead, fast, plain) == pytest.approx({"bc": 0.4, "flow": 0.6})


def test_values_that_stand_on_other_settings_or_data_are_not_put_together(
    runs: tuple[Path, ...], store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ranking"
    rank(runs[:2], store, out, CONFIG)
    # A policy more is one value more.
    assert sum(v.reused for v in rank(runs, store, out, CONFIG).values) == 2
    steep = dataclasses.replace(CONFIG.evaluation, discount=0.9)
    with pytest.raises(ConfigError, match="values of other settings"):
        rank(runs, store, out, dataclasses.replace(CONFIG, evaluation=steep))
    costs = RewardConfig("recorded", {"shift": -1.0})
    with pytest.raises(ConfigError, match="not be comparable"):
        rank(runs, store, out, dataclasses.replace(CONFIG, reward=costs))
    other = stored(tmp_path / "other", episodes=2)
    with pytest.raises(ConfigError, match="values of other data_hash"):
        rank(runs, other, out, CONFIG)


def test_a_distribution_tells_its_worst_tenth(
    runs: tuple[Path, ...], store: Path, tmp_path: Path
) -> None:
    whole = dataclasses.replace(CONFIG.evaluation, method="distributional", atoms=11)
    found = rank(runs[:2], store, tmp_path / "r", dataclasses.replace(CONFIG, evaluation=whole))
    for value in found.values:
        assert value.worst is not None
        assert value.worst <= value.value.value


def test_what_cannot_be_ranked_is_explained(
    runs: tuple[Path, ...], store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "r"
    with pytest.raises(ConfigError, match="two policies or more"):
        rank(runs[:1], store, out, CONFIG)
    with pytest.raises(ConfigError, match="same run twice"):
        rank((runs[0], runs[0]), store, out, CONFIG)
    seen = Family(tmp_path / "pictured", told=True).run("bc")
    with pytest.raises(SpecMismatchError, match="different task spaces"):
        rank((*runs[:2], tmp_path / "pictured" / seen.name), store, out, CONFIG)
    with pytest.raises(SpecMismatchError, match="block/pose"):
        rank(runs, stored(tmp_path / "blind", signals=1), out, CONFIG)
    nothing = dataclasses.replace(CONFIG, reward=RewardConfig("taken_over"))
    with pytest.raises(DataError, match="every policy is as good as any other"):
        rank(runs, store, tmp_path / "none", nothing)
    others = Trials((results(tmp_path / "others", runs[:1], {"bc": [0.5]}),), world="moon")
    with pytest.raises(ConfigError, match=r"world: one of \['gym_pusht'\]"):
        rank(runs, store, out, CONFIG, trials=others)
    mine = dataclasses.replace(others, world="")
    with pytest.raises(DataError, match="none of these policies was tried"):
        rank(runs[1:], store, tmp_path / "untried", CONFIG, trials=mine)
    for path in (out, tmp_path / "none"):
        assert not (path / "bc" / "value.json").exists()
