"""Comparisons of policies: pairing, the declared rule, letters, words, refusals."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from eval.compare import compare_policies
from eval.rule import Rule
from eval.statistics.exact_tests import bounded_difference_p, mcnemar_exact, sign_flip
from eval.statistics.planning import plan_paired, plan_sequence
from eval.statistics.runs import mean_over_runs
from eval.trials.table import TrialStore
from robolearn.cli.main import main
from robolearn.errors import ConfigError, DataError
from robolearn.types import TrialRecord
from tests.trial_records import record

TRIAL = record()


def trials(policy: str, successes, scores=None, world: str = "world") -> list[TrialRecord]:
    values = np.asarray(successes, dtype=float) if scores is None else scores
    return [
        dataclasses.replace(
            TRIAL,
            policy=policy,
            policy_hash=f"hash-{policy}",
            env=world,
            condition=f"c{i}",
            seed=i,
            success=bool(won),
            score=float(score),
        )
        for i, (won, score) in enumerate(zip(successes, values, strict=True))
    ]


def outcomes(p: float, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).random(n) < p


def test_a_difference_has_one_direction_and_its_discordant_conditions_are_counted():
    better, worse = [1, 1, 1, 0], [1, 0, 0, 0]
    for first, second, only in ((better, worse, (2, 0)), (worse, better, (0, 2))):
        comparison = compare_policies(trials("a", first) + trials("b", second), Rule())
        (world,) = comparison.worlds
        assert comparison.in_world("world") is world
        (effect,) = world.effects
        assert (effect.a, effect.b) == ("a", "b")
        assert (effect.only_a, effect.only_b) == only
        assert effect.success.value == pytest.approx((only[1] - only[0]) / 4)
    assert comparison.in_world("elsewhere") is None


def test_a_clear_difference_is_decided_and_the_p_value_is_mcnemars_over_both_measures():
    a, b = outcomes(0.3, 80, 0), outcomes(0.8, 80, 1)
    (world,) = compare_policies(trials("a", a) + trials("b", b), Rule()).worlds
    (effect,) = world.effects
    assert effect.decision == "b"
    assert effect.p == pytest.approx(2 * mcnemar_exact(a, b))
    assert (effect.other_p, effect.other_decision) == (effect.p, "b")
    assert "b is better than a by score" in effect.words
    assert {e.name: e.letters for e in world.entries} == {"b": "a", "a": "b"}
    assert effect.more is None
    assert "b is better than a" in effect.words


@pytest.mark.parametrize(("kind", "plan"), [("fixed", plan_paired), ("sequential", plan_sequence)])
def test_what_would_show_a_difference_is_planned_for_the_test_that_decides(kind, plan):
    a, b = outcomes(0.5, 40, 2), outcomes(0.6, 40, 3)
    (world,) = compare_policies(trials("a", a) + trials("b", b), Rule(kind=kind)).worlds
    (effect,) = world.effects
    phi = float(np.corrcoef(a, b)[0, 1])
    # One pair and two measures: the smallest level that Holm may ask of it.
    found = plan(float(np.mean(a)), float(np.mean(b)), phi, 0.8, 0.025)
    assert effect.more == (found.n_max if kind == "sequential" else found.trials)


def test_no_difference_is_not_called_equality_and_a_plan_is_given():
    a, b = outcomes(0.5, 40, 2), outcomes(0.6, 40, 3)
    (world,) = compare_policies(trials("a", a) + trials("b", b), Rule()).worlds
    (effect,) = world.effects
    assert effect.decision == ""
    assert effect.more is not None
    assert effect.more > 40
    assert "does not show that they are equal" in effect.words
    assert {e.letters for e in world.entries} == {"a"}


def test_differences_that_are_all_alike_do_not_promise_too_early_an_end():
    """The spread is 0, so that the usual formula asks for no trial at all."""
    records = trials("a", np.zeros(12), np.full(12, 0.5)) + trials(
        "b", np.zeros(12), np.full(12, 0.55)
    )
    (effect,) = compare_policies(records, Rule(by="score")).worlds[0].effects
    assert effect.decision == ""
    assert effect.more is not None
    alpha = 0.05 / 2  # One pair, two measures.
    enough, fewer = (
        bounded_difference_p(np.zeros(n), np.full(n, 0.05)) for n in (effect.more, effect.more - 1)
    )
    assert enough <= alpha < fewer
    tiny = trials("a", np.zeros(12), np.zeros(12)) + trials("b", np.zeros(12), np.full(12, 5e-324))
    (nothing,) = compare_policies(tiny, Rule(by="score")).worlds[0].effects
    assert nothing.more is None
    assert "near the border" not in nothing.words


def test_a_method_alone_has_the_interval_that_holds_for_runs_that_collapse():
    names = [f"x-{i}" for i in range(5)]
    records = [r for n in names for r in trials(n, np.full(20, n != "x-3"))]
    (world,) = compare_policies(records, Rule(), groups={"x": names}, least=1).worlds
    (entry,) = world.entries
    by_run = np.array([[float(n != "x-3")] * 20 for n in names])
    assert entry.success == mean_over_runs(by_run).estimate
    assert entry.success.high - entry.success.low > 0.5
    assert any("1 of the 5 runs of x lie far from the others" in note for note in world.notes)


def test_three_policies_are_corrected_for_each_other():
    a, b, c = outcomes(0.2, 60, 4), outcomes(0.85, 60, 5), outcomes(0.85, 60, 6)
    records = trials("old", a) + trials("new", b) + trials("newer", c)
    (world,) = compare_policies(records, Rule()).worlds
    marks = {e.name: e.letters for e in world.entries}
    assert marks["new"] == marks["newer"] == "a"
    assert marks["old"] == "b"
    raw = {frozenset(("old", "new")): mcnemar_exact(a, b)}
    adjusted = {frozenset((e.a, e.b)): e.p for e in world.effects}
    for pair, p in raw.items():
        assert adjusted[pair] >= p


def test_scores_decide_where_they_are_declared_and_are_told_where_they_are_not():
    rng = np.random.default_rng(7)
    x = rng.random(150) * 0.5
    y = np.clip(x + rng.normal(0.08, 0.1, 150), 0, 1)
    records = trials("a", np.zeros(150), x) + trials("b", np.zeros(150), y)
    (world,) = compare_policies(records, Rule(by="score")).worlds
    assert world.effects[0].decision == "b"
    (by_success,) = compare_policies(records, Rule(by="success")).worlds
    assert by_success.effects[0].decision == ""
    assert by_success.effects[0].more is None
    assert by_success.effects[0].other_decision == "b"
    assert by_success.effects[0].other_p == world.effects[0].p
    assert "not separated by success" in by_success.effects[0].words
    assert "b is better than a by score" in by_success.effects[0].words


def test_the_sign_flip_test_by_hand():
    # Differences 1, 2, 3: only +++ and --- reach |sum| = 6, of 8 patterns.
    assert sign_flip(np.zeros(3), np.array([1.0, 2.0, 3.0])) == pytest.approx(2 / 8)
    assert sign_flip(np.ones(4), np.ones(4)) == 1.0
    rng = np.random.default_rng(8)
    x = rng.normal(0.4, 1, 14)
    exact = sign_flip(np.zeros(14), x)
    larger = sign_flip(np.zeros(15), np.append(x, 1e-9))
    assert larger == pytest.approx(exact, abs=0.015)


def test_the_sign_flip_test_keeps_its_level():
    rng = np.random.default_rng(9)
    wrong = sum(
        sign_flip(np.zeros(12), rng.exponential(1, 12) * rng.choice([-1, 1], 12)) <= 0.05
        for _ in range(300)
    )
    assert wrong / 300 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)


def test_the_sequential_rule_needs_no_maximum_and_obeys_one():
    records = trials("a", outcomes(0.1, 30, 10)) + trials("b", outcomes(0.95, 30, 11))
    (world,) = compare_policies(records, Rule(kind="sequential")).worlds
    assert world.effects[0].decision == "b"
    assert world.effects[0].success.low > 0
    (world,) = compare_policies(records, Rule(kind="sequential", n_max=40)).worlds
    assert world.effects[0].decision == "b"
    with pytest.raises(DataError, match="more than the planned maximum"):
        compare_policies(records, Rule(kind="sequential", n_max=20))
    (by_score,) = compare_policies(records, Rule(by="score", kind="sequential")).worlds
    assert by_score.effects[0].decision == "b"


def test_the_decided_direction_stays_when_later_trials_turn():
    first, later = np.r_[np.zeros(25), np.ones(60)], np.r_[np.ones(25), np.zeros(60)]
    records = trials("a", first) + trials("b", later)
    (effect,) = compare_policies(records, Rule(kind="sequential")).worlds[0].effects
    assert effect.success.value < 0
    assert effect.decision == "b"
    assert effect.success.low > 0


@pytest.mark.parametrize("kind", ["fixed", "sequential"])
def test_a_declared_margin_is_answered(kind):
    same = outcomes(0.9, 400, 20)
    records = trials("a", same) + trials("b", same)
    (effect,) = compare_policies(records, Rule(kind=kind, margin=0.1)).worlds[0].effects
    assert effect.margin is not None
    assert effect.margin.answer == "shown"
    assert "A and b are equivalent within 0.1" in effect.words
    worse = trials("b", outcomes(0.3, 400, 21))
    rule = Rule(kind=kind, margin=0.1, question="non-inferiority")
    (effect,) = compare_policies(trials("a", same) + worse, rule).worlds[0].effects
    assert effect.margin is not None
    assert effect.margin.answer == "refuted"
    assert "non-inferiority within 0.1" in rule.words()
    with pytest.raises(ConfigError, match="margin lies between 0 and 1"):
        Rule(margin=-0.1)


def test_training_runs_of_a_method_count_as_clusters():
    rng = np.random.default_rng(12)
    difficulty = rng.random(40)
    records: list[TrialRecord] = []
    for method, level in (("flow", 0.55), ("act", 0.5)):
        for run in range(3):
            luck = rng.normal(0, 0.25)
            records += trials(f"{method}-{run}", difficulty < np.clip(level + luck, 0, 1))
    groups = {m: [f"{m}-{i}" for i in range(3)] for m in ("flow", "act")}
    (world,) = compare_policies(records, Rule(), groups=groups).worlds
    (effect,) = world.effects
    assert effect.decision == ""  # Three runs each, luck of .25: nothing can be said.
    assert {len(e.runs) for e in world.entries} == {3}
    assert any(e.spread is not None and e.spread.between > 0.05 for e in world.entries)
    assert all(e.n == 120 for e in world.entries)


def test_different_conditions_are_refused_or_cut_to_the_shared_ones():
    a, b = trials("a", outcomes(0.5, 20, 13)), trials("b", outcomes(0.5, 15, 14))
    with pytest.raises(DataError, match=r"missing per policy: \{'b': 5\}"):
        compare_policies(a + b, Rule())
    (world,) = compare_policies(a + b, Rule(), common=True).worlds
    assert world.effects[0].n == 15
    assert any("15 shared conditions of 20" in n for n in world.notes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"suite": "other@2"}, "different suites"),
        ({"env_hash": "w2"}, "different versions of the world"),
        ({"engine": "engine 2"}, "different physics engines"),
    ],
)
def test_mixtures_are_refused(changes, message):
    a = trials("a", [1, 0])
    b = [dataclasses.replace(r, **changes) for r in trials("b", [1, 1])]
    with pytest.raises(DataError, match=message):
        compare_policies(a + b, Rule())


def test_verdicts_of_a_classifier_are_named_as_such():
    a, b = (trials(name, outcomes(0.5, 20, i)) for i, name in enumerate("ab"))
    plain = compare_policies([*a, *b], Rule()).worlds[0]
    assert not any("classifier" in n for n in plain.notes)
    judged = [dataclasses.replace(r, judge="j1") for r in (*a, *b)]
    (world,) = compare_policies(judged, Rule()).worlds
    assert any("judged from pictures" in n for n in world.notes)
    with pytest.raises(DataError, match="different judges of success"):
        compare_policies([*a, *judged[20:]], Rule())


def test_duplicates_and_homonyms_are_refused():
    a, b = trials("a", [1, 0]), trials("b", [1, 1])
    with pytest.raises(DataError, match="appears twice"):
        compare_policies(a + b + a[:1], Rule())
    other = [dataclasses.replace(r, policy_hash="x", condition=f"d{r.seed}") for r in a]
    with pytest.raises(DataError, match="two different policies are called 'a'"):
        compare_policies(a + b + other, Rule())
    with pytest.raises(DataError, match="needs two policies"):
        compare_policies(a, Rule())
    with pytest.raises(DataError, match="no trials"):
        compare_policies([], Rule())
    with pytest.raises(ConfigError, match="no policy 'c'"):
        compare_policies(a + b, Rule(), groups={"m": ["a", "c"]})


def test_moved_and_repeated_starts_do_not_pass_for_conditions():
    a, b = trials("a", outcomes(0.5, 10, 15)), trials("b", outcomes(0.5, 10, 16))
    extra = [
        dataclasses.replace(r, **change)
        for r, change in itertools.product(
            a[:3] + b[:3], ({"variant": "moved"}, {"seed": 1000, "variant": "noise"})
        )
    ]
    extra = list({(r.policy, r.condition, r.seed): r for r in extra}.values())
    (world,) = compare_policies(a + b + extra, Rule()).worlds
    assert world.effects[0].n == 10
    assert any("left out" in n for n in world.notes)


def deployed(policy: str, successes) -> list[TrialRecord]:
    """Trials of a lab: every start twice, in the order they were run."""
    rows = trials(policy, successes)
    return [
        dataclasses.replace(r, kind="lab", episode=f"{policy}{i}", condition=f"c{i // 2}", seed=3)
        for i, r in enumerate(rows)
    ]


def test_deployments_are_compared_and_no_stop_leaves_the_rate(tmp_path: Path, capsys):
    for name, won in (("a", [1] * 10), ("b", [1] * 10)):
        rows = deployed(name, won)
        if name == "b":
            cut = {"success": False, "score": 0.2, "episode": "", "reason": "safety_stop"}
            # Again from the start that the third one had: it is no further start.
            rows[3] = dataclasses.replace(rows[3], success=False, score=0.0, reason="time_limit")
            rows[2] = dataclasses.replace(rows[2], status="aborted", **cut)
            bumped = dataclasses.replace(rows[4], status="voided", episode="b-bumped")
            rows.insert(4, bumped)
        with TrialStore(tmp_path / name) as store:
            store.add(rows)
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--json"]) == 0
    (world,) = json.loads(capsys.readouterr().out)["worlds"]
    assert {e["name"]: (e["n"], e["success"]["value"]) for e in world["entries"]} == {
        "a": (5, 1.0),
        "b": (5, 0.8),
    }
    again = "10 trials repeat a start that their policy had tried before and are left out"
    assert any(note.startswith(again) for note in world["notes"])
    assert "1 trials that are voided are left out" in world["notes"]
    assert "1 trials were aborted and count as failures" in world["notes"]
    assert not any("moved" in note for note in world["notes"])


def test_trials_that_repeat_a_start_do_not_pass_for_further_starts():
    """Of equal policies whose trials repeat themselves a test over all of them declared one better
    in 12 % of plans, at a level of 5 %.
    """
    rng, draws, n, rule = np.random.default_rng(3), 40, 20, Rule(alpha=0.1)
    wrong = 0
    for _ in range(draws):
        rows = [r for name in "ab" for r in trials(name, rng.random(n) < 0.5)]
        rows = [dataclasses.replace(r, kind="robot", episode="e") for r in rows]
        (world,) = compare_policies([*rows, *rows], rule).worlds
        assert {e.n for e in (*world.entries, *world.effects)} == {n}
        wrong += bool(world.effects[0].decision)
    assert wrong / draws <= 0.1


def test_the_first_trial_of_a_start_is_the_one_that_began_first():
    rows = [
        dataclasses.replace(r, kind="robot", started=f"2026-01-0{day}T00:00:00.000+00:00")
        for day, won in ((2, False), (1, True), (3, False))
        for name in "ab"
        for r in trials(name, [won] * 6)
    ]
    (world,) = compare_policies(rows, Rule()).worlds
    assert {(e.name, e.n, e.success.value) for e in world.entries} == {("a", 6, 1), ("b", 6, 1)}


def test_all_or_nothing_results_are_defined():
    records = trials("a", np.zeros(20)) + trials("b", np.ones(20))
    (world,) = compare_policies(records, Rule()).worlds
    assert world.effects[0].decision == "b"
    same = trials("a", np.ones(20)) + trials("b", np.ones(20))
    (world,) = compare_policies(same, Rule()).worlds
    assert world.effects[0].p == 1.0
    assert world.effects[0].more is None


def test_an_interval_leaves_out_zero_exactly_where_there_is_a_decision():
    # 34 against 19 discordant pairs: McNemar says .053, where Newcombe's interval leaves out 0.
    a = trials("a", np.r_[np.zeros(34), np.ones(19), np.ones(80), np.zeros(67)])
    b = trials("b", np.r_[np.ones(34), np.zeros(19), np.ones(80), np.zeros(67)])
    (world,) = compare_policies(a + b, Rule()).worlds
    (effect,) = world.effects
    assert 0.10 < effect.p < 0.12
    assert not effect.decision
    assert effect.success.low <= 0 <= effect.success.high


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name, p in (("a", 0.3), ("b", 0.8)):
        with TrialStore(tmp_path / name) as store:
            store.add(trials(name, outcomes(p, 60, ord(name))))
    folders = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert main(["compare", *folders, "--out", str(tmp_path / "page.md")]) == 0
    out = capsys.readouterr().out
    assert "rule: McNemar's exact test of success" in out
    assert "b is better than a" in out
    assert "| b | a |" in (tmp_path / "page.md").read_text()
    assert main(["compare", *folders, "--json", "--by", "score"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rule"]["by"] == "score"
    assert document["worlds"][0]["effects"][0]["decision"] == "b"
    with TrialStore(tmp_path / "b") as store:
        lonely = trials("b", outcomes(0.5, 5, 1), world="elsewhere")
        store.add([dataclasses.replace(r, env_hash="w2") for r in lonely])
    assert main(["compare", *folders, "--rule", "sequential", "--n-max", "60"]) == 0
    out = capsys.readouterr().out
    assert "b is better than a by success" in out
    assert "rule: paired betting on success, any stopping rule, at most 60 conditions" in out
    assert "differences have intervals that hold whenever one stopped" in out
    assert "not compared: b is the only one in elsewhere" in out
    assert main(["compare", str(tmp_path / "absent")]) == 2
    assert "no trials in" in capsys.readouterr().err
    TrialStore(tmp_path / "empty").close()
    assert main(["compare", *folders, str(tmp_path / "empty")]) == 2
    assert "has no trials yet" in capsys.readouterr().err
    assert main(["compare", *folders, "--group", "m=a"]) == 2
    assert "--group" in capsys.readouterr().err
