from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from eval.evaluation import inferred, write_evaluation
from eval.plain import plain_values
from eval.report.data import load_evaluation
from eval.report.lines import evaluation_lines
from eval.statistics.intervals import OUTCOME, mean_t
from eval.summary import agree, own_trials, summarize
from eval.trials.table import TrialStore
from robolearn.cli.main import main
from robolearn.errors import DataError
from robolearn.types import TrialRecord


def trials(scores, policy="flow", world="w", successes=None, reasons=None, seed=0, **metrics):
    return [
        TrialRecord(
            policy=policy,
            policy_hash=f"h-{policy}",
            env=world,
            env_hash=f"h-{world}",
            engine="mock",
            kind="sim",
            condition=f"c{i}",
            seed=seed + i,
            success=bool(successes[i] if successes is not None else s >= 1),
            score=float(s),
            final_progress=float(s),
            return_=0.0,
            steps=10,
            duration_s=1.0,
            reason=reasons[i] if reasons else "time_limit",
            commit="",
            suite="s@1",
            metrics={"max_coverage": 0.95 * float(s), "chunks": 5.0, **metrics},
        )
        for i, s in enumerate(scores)
    ]


def test_a_result_counts_everything_and_json_has_no_nan():
    reasons = ["physics_diverged", "success", "time_limit", "worker_crashed"]
    r = summarize(trials([0.2, 1.0, 0.6, 0.0], reasons=reasons, changed=2.0))
    assert (r.n, r.successes, r.technical) == (4, 1, 2)
    assert r.reasons["physics_diverged"] == 1
    assert r.score.value == pytest.approx(0.45)
    assert (r.chunks, r.changed) == (20, 8)
    assert summarize(trials([0.1])).changed is None
    assert r.measures["max_coverage"].value == pytest.approx(0.95 * 0.45)
    text = json.dumps(plain_values(summarize(trials([0.5]))), allow_nan=False)
    assert json.loads(text)["score"]["value"] == 0.5
    assert json.loads(text)["score"]["low"] == pytest.approx(0.5 * 0.025)


def test_mixed_double_or_no_trials_are_refused():
    with pytest.raises(DataError, match="no trials"):
        summarize([])
    with pytest.raises(DataError, match="no one result"):
        summarize(trials([0.1]) + trials([0.2], world="v"))
    with pytest.raises(DataError, match="twice"):
        summarize(trials([0.1]) + trials([0.2]))
    other = dataclasses.replace(trials([0.2], seed=5)[0], suite="s@2")
    with pytest.raises(DataError, match="different suites"):
        summarize([*trials([0.1]), other])
    engine = dataclasses.replace(trials([0.2], seed=5)[0], engine="mock 2")
    with pytest.raises(DataError, match="engines"):
        summarize([*trials([0.1]), engine])


def test_two_suites_in_one_world_may_name_and_seed_their_starts_alike():
    """Their trials were told to appear twice."""
    one = trials([0.1, 0.2])
    other = [dataclasses.replace(r, suite="t@1") for r in one]
    assert own_trials([*one, *other]) == ([*one, *other], 0)
    with pytest.raises(DataError, match="appears twice"):
        own_trials([*one, *other, *one])


def test_agreement_and_its_ceiling():
    rng = np.random.default_rng(1)
    base = rng.uniform(0, 1, 40)
    noisy = np.clip(base + rng.normal(0, 0.1, 40), 0, 1)
    wins = base > 0.5
    world = agree(
        trials(base, successes=wins), trials(noisy[:25], world="v", successes=noisy[:25] > 0.5)
    )
    assert (world.n, world.kind) == (25, "world")
    assert 0.8 < world.pearson.value < 1
    assert 0 < world.phi.value <= 1
    again = [dataclasses.replace(r, variant="moved") for r in trials(noisy)]
    itself = agree(trials(base), again, "moved")
    assert itself.n == 40
    assert "w against itself with every start moved" in itself.words
    assert "other noise" in agree(trials(base), trials(noisy, seed=1000), "noise").words
    assert (
        "phi of success not defined" in agree(trials([0.1] * 5), trials([0.1] * 5, world="v")).words
    )
    assert world.measure == "maximum coverage"
    assert "Pearson of maximum coverage" in world.words
    assert json.loads(json.dumps(plain_values(world), allow_nan=False))["n"] == 25
    with pytest.raises(DataError, match="one policy"):
        agree(trials([0.1]), trials([0.1], policy="iql", world="v"))


def test_tasks_without_a_finer_measure_agree_in_their_scores():
    plain = [dataclasses.replace(r, metrics={}) for r in trials(np.linspace(0, 1, 8))]
    other = [dataclasses.replace(r, env="v") for r in plain]
    assert agree(plain, other).measure == "score"
    assert "coverage" not in agree(plain, other).words
    assert summarize(plain).measures == {}


def test_students_t_is_there_for_whoever_asks_and_says_what_it_assumes(tmp_path):
    """Named wherever it is used: no page mixes two intervals of one mean."""
    rng = np.random.default_rng(0)
    made = [r for policy in ("a", "b") for r in trials(0.9 * rng.random(6), policy, "world")]
    usual, asked_for = summarize(made[:6]), summarize(made[:6], "t")
    assert (usual.score.method, asked_for.score.method) == ("bounded mean", "Student t")
    assert asked_for.score == mean_t([r.score for r in made[:6]], bounds=OUTCOME)
    assert asked_for.success == usual.success
    with TrialStore(tmp_path) as store:
        store.add(made)
    write_evaluation(tmp_path, inferred(made))
    out = tmp_path / "page.html"
    for interval, said in (("bounded_mean", False), ("t", True)):
        page = ("report", "--results", str(tmp_path), "--out", str(out), "--interval", interval)
        assert main([*page]) == 0
        for text in (out.read_text(), out.with_suffix(".md").read_text()):
            plain = text.replace("\u00a0", " ").replace("&#x27;", "'")
            assert ("95 %, Student t" in plain) is said
            assert ("95 %, bounded mean" in plain) is not said
            assert ("Student's t, as asked for: they assume" in plain) is said
        document = json.loads(out.with_suffix(".json").read_text())["evaluation"]
        methods = {r["score"]["method"] for r in document["results"]}
        (world,) = document["comparison"]["worlds"]
        methods |= {e["score"]["method"] for e in world["entries"]}
        assert methods == {"Student t" if said else "bounded mean"}
        data = load_evaluation(tmp_path, interval=interval)
        assert any("Student's t, as asked" in line for line in evaluation_lines(data)) is said
