"""``robolearn compose``: the weight is chosen on conditions that are not reported."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from eval.compare import compare_policies
from eval.rule import Rule
from eval.trials.suites import load_suite
from eval.trials.table import read_trials
from policies.imitation.compose import ComposeConfig, composed_policy
from policies.registry import load_policy
from robolearn.cli.learning import compose as command
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import ConfigError
from robolearn.representation import RepresentationConfig, RepresentedPolicy
from robolearn.training.run_directory import load_run
from tests.learning_mocks import BLOCK, TOOL, random_request
from tests.two_runs import two_runs

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_runs(tmp_path_factory.mktemp("compose"), DataConfig(observations=(TOOL, BLOCK)), 4)


def arguments(folder: Path, *more: str) -> list[str]:
    return [
        *(str(folder / "one"), str(folder / "two"), "--suite", str(folder / "short.yaml")),
        *("--out", str(folder / "both"), "--workers", "0", "--batch", "3", *more),
    ]


def test_choosing_and_reporting_are_apart(
    setting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = arguments(setting, "--choose", "2", "--report", "2", "--weights", "0.4")
    assert command.main([*given, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result["choosing"]) == {
        "0-one",
        "1-two",
        "convex-0.40-0.60",
    }
    assert len(result["reported"]) == 3
    assert result["pairs"] == 2
    assert result["gain_low"] <= result["gain"] <= result["gain_high"]
    # Two conditions say next to nothing, however alike.
    assert result["gain_high"] - result["gain_low"] > 1.0
    best = result["reported"][result["best_part"]]
    chosen = next(v for k, v in result["reported"].items() if k.startswith("convex"))
    assert result["gain"] == pytest.approx(chosen - best, abs=1e-9)
    records = read_trials(setting / "both" / "trials")
    reported = {c.id for c in load_suite(setting / "short.yaml").select(2)}
    both = [r for name in (result["best_part"], "convex-0.40-0.60") for r in records
            if r.policy == name and r.condition in reported]  # fmt: skip
    (effect,) = compare_policies(both, Rule(by="score")).worlds[0].effects
    assert (effect.score.low, effect.score.high) == (result["gain_low"], result["gain_high"])
    assert result["verdict"] == effect.words
    where: dict[str, set[str]] = {}
    for r in records:
        where.setdefault(r.policy, set()).add(r.condition)
    assert sorted(len(v) for v in where.values()) == [4, 4, 4]
    policy = load_policy(setting / "both")
    assert policy.sample(random_request(2)).actions.shape == (2, 1, 8, 2)
    assert json.loads((setting / "both" / "composition.json").read_text()) == result


def test_runs_with_a_representation_keep_it(tmp_path: Path) -> None:
    seen = RepresentationConfig(actions={TOOL: "relative"})
    data = DataConfig(observations=(TOOL, BLOCK), representation=seen)
    folder = two_runs(tmp_path, data, 4)
    given = arguments(folder, "--choose", "2", "--report", "2", "--weights", "0.5")
    assert command.main([*given, "--json"]) == 0
    policy = load_policy(folder / "both")
    assert isinstance(policy, RepresentedPolicy)
    assert policy.representation.config == seen
    parts = [load_policy(folder / name) for name in ("one", "two")]
    weights = load_run(folder / "both").config["algorithm"]["weights"]
    again = composed_policy(parts, ComposeConfig("convex", tuple(weights)))
    request = random_request(2)
    answer = policy.sample(request).actions
    np.testing.assert_allclose(again.sample(request).actions, answer, atol=1e-6)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--weights", "1.0"), "within"),
        (("--choose", "1"), "at least 2"),
    ],
)
def test_bad_options_are_explained(setting: Path, more: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        command.main(arguments(setting, *more))
    with pytest.raises(ConfigError, match="at least two"):
        command.main([str(setting / "one"), "--out", "x"])
