"""Suites with perturbations, and ``robolearn evaluate`` of the scripted expert over one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from eval.trials.rollouts import PolicyEntry
from eval.trials.suites import PerturbationConfig, load_suite, make_suite
from eval.trials.table import read_trials
from robolearn.cli.main import main
from robolearn.errors import ConfigError
from sim.perturbations.kinds import split_perturbations

CONFIGS = Path(__file__).parents[3] / "configs" / "eval"


def test_variants_one_at_a_time_and_in_grids():
    config = PerturbationConfig(
        3,
        {"mass": (0.5, 1.0), "friction": (0.0,)},
        ({"mass": (0.0, 1.0), "action_delay": (0.0, 2.0)},),
    )
    assert config.variants() == (
        "",
        "~mass=0.5~seed=3",
        "~mass=1~seed=3",
        "~action_delay=2~seed=3",
        "~mass=1~action_delay=2~seed=3",
    )
    for variant in config.variants():
        base, perturbations = split_perturbations("x" + variant)
        assert "x" + variant == base + perturbations.suffix
    assert PerturbationConfig().variants() == ("",)


def test_perturbations_count_in_the_hash_and_only_where_there_are_any():
    plain = load_suite(CONFIGS / "pusht.yaml")
    # As it was before there were perturbations: earlier trials stay valid.
    assert plain.label == "pusht@4bb9d029ebcff954"
    some = PerturbationConfig(0, {"mass": (1.0,)})
    other = make_suite(dataclasses.replace(plain.config, perturbations=some))
    assert other.hash != plain.hash


def test_the_perturbed_suite_has_the_starts_of_the_plain_one():
    suite, plain = (load_suite(CONFIGS / f"{n}.yaml") for n in ("pusht_perturbed", "pusht"))
    assert suite.select(25) == plain.select(25)
    variants = suite.config.perturbations.variants()
    assert len(variants) == 11
    assert all(split_perturbations("pusht_reference" + v) for v in variants)


@pytest.fixture
def tiny(tmp_path):
    raw = yaml.safe_load((CONFIGS / "pusht_perturbed.yaml").read_text())
    raw |= {"max_steps": 6, "subset": 1, "conditions": raw["conditions"][:1]}
    raw["perturbations"] = {"one_at_a_time": {"friction": [1.0]}, "grids": [{"mass": [0, 1]}]}
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(raw))
    return path


def evaluate(out, suite, *more, runs=("scripted:0.5",)):
    options = ("--workers", "0", "--videos", "0", "--no-repeat", "--batch", "2", *more)
    return main(["evaluate", *runs, "--suite", str(suite), "--out", str(out), *options])


def test_the_expert_is_evaluated_over_a_perturbed_suite(tmp_path, tiny, capsys):
    out = tmp_path / "results"
    assert evaluate(out, tiny, "--worlds", "pusht_reference", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    worlds = ["pusht_reference" + v for v in ("", "~friction=1", "~mass=1")]
    assert [w["name"] for w in document["worlds"]] == worlds
    assert len({w["hash"] for w in document["worlds"]}) == 3
    trials = read_trials(out)
    assert len(trials) == 3
    assert {t.env for t in trials} == set(worlds)
    assert {t.env_hash for t in trials} == {w["hash"] for w in document["worlds"]}
    assert {t.policy for t in trials} == {"scripted-0.5"}
    assert {t.condition for t in trials} == {"pusht-0000"}
    assert {t.steps for t in trials} == {6}
    assert document["agreement"] == []


@pytest.mark.parametrize(
    ("worlds", "runs", "text"),
    [
        ("gym_pusht", ("scripted",), "need a scene package, which 'gym_pusht' is not"),
        ("pusht_reference", ("scripted:2",), "noise of an expert is 0 to 1, got 2"),
        ("pusht_reference", ("scripted:x",), "expected 'scripted' or 'scripted:NOISE'"),
        ("pusht_reference~maas=1", ("scripted",), "no perturbation 'maas'. Did you mean"),
    ],
)
def test_what_cannot_be_evaluated_is_one_line(tmp_path, tiny, capsys, worlds, runs, text):
    assert evaluate(tmp_path / "r", tiny, "--worlds", worlds, runs=runs) == 2
    err = capsys.readouterr().err
    assert text in err
    assert len(err.strip().splitlines()) == 1


def test_an_entry_is_a_policy_or_an_agent():
    with pytest.raises(ConfigError, match="needs either a policy or an agent"):
        PolicyEntry("x", "h", None)
