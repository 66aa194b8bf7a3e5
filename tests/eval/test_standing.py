"""What is planned and what is exploratory; every way to make a finding look planned is attacked."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from eval.preregistration import (
    Preregistration,
    keep_plan,
    kept_plans,
    read_plan,
    write_plan,
)
from eval.report.build import build_report, summary_points, summary_tiles
from eval.report.data import load_report_data
from eval.report.markdown import report_document, report_markdown
from eval.rule import Rule
from eval.standing import UNPLANNED, standing_lines
from eval.trials.table import TrialStore
from robolearn.errors import ConfigError
from robolearn.operations.compare import compare
from tests.eval.report import test_consistency as pages
from tests.eval.test_compare import trials

WRITTEN, LATER = "2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00.500+00:00"
POLICIES, WORLDS, N = ("ann", "bob", "cid"), ("one", "two"), 6
PLAN = Preregistration("s@1", WORLDS, Rule("score", n_max=N), WRITTEN, POLICIES)


def records(n: int):
    rng = np.random.default_rng(1)
    return [
        r
        for world in WORLDS
        for policy in POLICIES
        for r in trials(policy, [False] * n, 0.9 * rng.random(n), world)
    ]


def folder(path: Path, made) -> Path:
    """Of three policies in two worlds, as asked for."""
    first = [r for r in made if (r.policy, r.env) == (POLICIES[0], WORLDS[0])]
    with TrialStore(path) as store:
        store.add(
            [dataclasses.replace(r, reason="time_limit", env_hash=f"hash-{r.env}") for r in made]
        )
    return pages.asked(path, first, POLICIES, WORLDS)


def written(path: Path, **changes):
    return write_plan(path, dataclasses.replace(PLAN, **changes))


def results(path: Path, digest: str, n=N, plan_file: Path | None = None, **changes) -> Path:
    made = [dataclasses.replace(r, plan=digest, started=LATER) for r in records(n)]
    if plan_file is not None:
        keep_plan(path, plan_file)
    return folder(path, [dataclasses.replace(r, **changes) for r in made])


def planned(path: Path, n=N, **changes):
    """A results folder of trials that were run under a plan."""
    found = written(path / "plan.yaml", **changes)
    return results(path / "r", found.hash, n, path / "plan.yaml"), found


def words_of(comparison) -> str:
    (words,) = {s.words for s in comparison.standings}
    return words


def test_what_was_planned_says_so_everywhere_under_which_plan(tmp_path):
    place, found = planned(tmp_path)
    comparison = compare([place])
    assert comparison.rule == PLAN.rule
    assert all(s.planned for s in comparison.standings)
    assert len(comparison.standings) == 3 * len(WORLDS)
    said = f"planned (plan {found.hash}, written 2026-01-01 00:00:00 UTC, before its first trial"
    assert all(s.words.startswith(said) for s in comparison.standings)
    data = load_report_data(place)
    assert data.evaluation is not None
    points = summary_points(data)
    assert points[0].endswith("This is planned.")
    page, markdown = build_report(data), report_markdown(data, "x", points)
    assert found.hash in page
    assert said in markdown
    assert "standing" in markdown
    document = report_document(data, "x", points)
    assert {s["planned"] for s in document["evaluation"]["comparison"]["standings"]} == {True}
    assert document["evaluation"]["plans"][found.hash]["rule"]["n_max"] == N


def test_the_page_heads_every_policy_by_the_planned_measure_best_first(tmp_path):
    place, _ = planned(tmp_path)
    data = load_report_data(place)
    assert data.evaluation is not None
    comparison = data.evaluation.comparison
    assert comparison is not None
    compared = comparison.in_world(data.evaluation.first_world)
    assert compared is not None
    by = {"score": "mean score", "success": "success"}[comparison.rule.by]
    assert [tile.label for tile in summary_tiles(data)] == [
        f"{by}, policy “{e.name}” in {compared.world}" for e in compared.entries
    ]


def test_one_sentence_says_that_the_other_measure_was_not_planned(tmp_path):
    place, _ = planned(tmp_path)
    comparison = compare([place])
    (line,) = standing_lines(comparison)
    assert line.startswith("every comparison: planned (plan")
    decided = dataclasses.replace(comparison.worlds[0].effects[0], other_decision="b")
    first = dataclasses.replace(comparison.worlds[0], effects=(decided,))
    found = standing_lines(dataclasses.replace(comparison, worlds=(first,)))
    assert found[-1] == "what is said by success, which was not planned, is exploratory"


def test_without_a_plan_everything_is_exploratory_and_told_once(tmp_path):
    place = results(tmp_path / "r", "")
    assert words_of(compare([place])) == f"exploratory: {UNPLANNED}"
    data = load_report_data(place)
    assert summary_points(data)[0].endswith("This is exploratory.")
    assert build_report(data).count(UNPLANNED.partition("(")[0]) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"by": "success"}, "its measure is score, here success"),
        ({"kind": "sequential"}, "its rule is fixed, here sequential"),
        ({"alpha": 0.2}, "its alpha is 0.05, here 0.2"),
        ({"margin": 0.3}, "its margin is none, here 0.3 (equivalence)"),
    ],
)
def test_another_rule_than_planned_is_exploratory(tmp_path, change, why):
    place, found = planned(tmp_path)
    comparison = compare([place], lambda rule: dataclasses.replace(rule, **change))
    assert not any(s.planned for s in comparison.standings)
    assert words_of(comparison) == f"exploratory: not as plan {found.hash} says; {why}"


@pytest.mark.parametrize(("n", "why"), [(4, "4 of 6 planned starts"), (8, "8 starts were tried")])
def test_more_or_fewer_starts_than_a_fixed_rule_planned_are_exploratory(tmp_path, n, why):
    place, _ = planned(tmp_path, n)
    assert why in words_of(compare([place]))


def test_worlds_may_have_numbers_of_their_own(tmp_path):
    place, _ = planned(tmp_path, starts={"one": N - 2, "two": N})
    by_world = {s.world: s for s in compare([place]).standings}
    assert by_world["two"].planned
    assert f"{N} starts were tried, {N - 2} planned" in by_world["one"].words
    for starts in ({"one": N}, {"one": N, "two": N + 1}):
        with pytest.raises(ConfigError, match="a number for each world of the plan"):
            dataclasses.replace(PLAN, starts=starts)


def test_a_sequential_plan_may_be_stopped_early_but_not_go_on(tmp_path):
    rule = Rule("score", "sequential", n_max=8)
    early, _ = planned(tmp_path / "early", 6, rule=rule)
    found = compare([early])
    assert found.rule.kind == "sequential"
    assert all(s.planned for s in found.standings)
    late, _ = planned(tmp_path / "late", 9, rule=rule)
    assert "9 starts were tried, 8 planned" in words_of(compare([late]))
    data = load_report_data(late).evaluation
    assert data is not None
    assert data.comparison is not None
    assert not any(s.planned for s in data.comparison.standings)


def test_a_plan_that_was_written_after_the_first_trial_is_none(tmp_path):
    place, _ = planned(tmp_path / "a", written="2026-01-03T00:00:00+00:00")
    assert "the plan was written after the first trial (2026-01-02" in words_of(compare([place]))
    # The trials were there before: their rows say so, whatever a file says.
    write_plan(tmp_path / "plan.yaml", PLAN)
    late = results(tmp_path / "r", "", plan_file=tmp_path / "plan.yaml")
    assert UNPLANNED in words_of(compare([late]))
    unknown = dataclasses.replace(PLAN, note="when?")
    found = write_plan(tmp_path / "other.yaml", unknown)
    odd = results(tmp_path / "o", found.hash, plan_file=tmp_path / "other.yaml", started="")
    assert "whose time is not known" in words_of(compare([odd]))


def test_a_plan_that_was_edited_taken_away_or_exchanged_is_none(tmp_path):
    place, found = planned(tmp_path)
    copy = place / "plans" / f"{found.hash}.yaml"
    text = copy.read_text()
    copy.write_text(text.replace("by: score", "by: success"))
    assert "was edited since it was written" in words_of(compare([place]))
    with pytest.raises(ConfigError, match="was edited since it was written"):
        read_plan(copy)
    # With a hash of its own it is another plan, and not that of the trials.
    copy.unlink()
    written(copy, rule=Rule("success", n_max=N))
    assert "holds another plan than its name says" in words_of(compare([place]))
    copy.unlink()
    assert "is not in the results folder" in words_of(compare([place]))
    copy.write_text("{")
    assert "is not valid YAML" in words_of(compare([place]))
    data = load_report_data(place).evaluation
    assert data is not None
    assert list(data.plans) == [found.hash]
    copy.write_text(text)
    assert all(s.planned for s in compare([place]).standings)


def test_another_suite_world_or_policy_than_planned_is_exploratory(tmp_path):
    place, _ = planned(tmp_path / "a", suite="s@2")
    assert "its suite is s@2, here s@1" in words_of(compare([place]))
    place, _ = planned(tmp_path / "b", worlds=WORLDS[:1])
    by_world = {s.world: s for s in compare([place]).standings}
    assert by_world["one"].planned
    assert "it is about one, not two" in by_world["two"].words
    place, _ = planned(tmp_path / "c", policies=POLICIES[:2])
    by_pair = {(s.a, s.b): s for s in compare([place]).standings}
    assert by_pair["ann", "bob"].planned
    assert "it does not name cid" in by_pair["ann", "cid"].words


def test_a_family_smaller_than_planned_is_exploratory(tmp_path):
    """Two of four policies share the error among fewer comparisons than was planned."""
    place, _ = planned(tmp_path, policies=(*POLICIES, "eve"))
    assert "the error was to be shared with eve in one" in words_of(compare([place]))


def test_trials_of_the_plan_that_are_left_out_are_told(tmp_path):
    place, found = planned(tmp_path)
    with TrialStore(place) as store:
        # Another version of a policy, tried under the same plan.
        first = store.all()[0]
        store.add([dataclasses.replace(first, policy_hash="was-worse", policy="ann")])
    with TrialStore(place) as store:
        last = store.all()[1]
        store.add([dataclasses.replace(last, seed=999)])
    data = load_report_data(place).evaluation
    assert data is not None
    assert data.comparison is not None
    odd = [s for s in data.comparison.standings if not s.planned]
    assert {s.a for s in odd} == {"ann"}
    assert {s.world for s in odd} == {"one"}
    assert "2 trials were run under the plan and do not count in it" in odd[0].words
    assert found.hash in odd[0].words


def test_trials_of_two_plans_are_not_what_either_planned(tmp_path):
    first, second = written(tmp_path / "1.yaml"), written(tmp_path / "2.yaml", note="again")
    made = [
        dataclasses.replace(r, started=LATER, plan=(second if r.seed % 2 else first).hash)
        for r in records(N)
    ]
    place = folder(tmp_path / "r", made)
    for name in ("1.yaml", "2.yaml"):
        keep_plan(place, tmp_path / name)
    assert "run under different plans" in words_of(compare([place]))
    assert set(kept_plans([place])) == {first.hash, second.hash}


def test_runs_of_a_method_are_planned_as_groups(tmp_path):
    groups = {"left": POLICIES[:2]}
    place, _ = planned(tmp_path, groups=groups)
    data = load_report_data(place).evaluation
    assert data is not None
    assert data.comparison is not None
    assert {(s.a, s.b, s.planned) for s in data.comparison.standings} == {("left", "cid", True)}
    words = words_of(compare([place], groups={"left": POLICIES[1:]}))
    assert "it does not say that bob, cid are the runs of left" in words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rule": Rule()}, "over how many starts"),
        ({"worlds": ()}, "at least one world"),
        ({"policies": ("ann",)}, "two or more different policies"),
        ({"written": "yesterday"}, "expected a time"),
        ({"written": "2026-01-01T00:00:00"}, "says its zone"),
        ({"groups": {"g": ("ann", "eve")}}, "runs of a group"),
        (
            {"groups": {"g": POLICIES[:2]}, "rule": Rule(kind="sequential")},
            "compares single policies",
        ),
    ],
)
def test_a_plan_that_says_too_little_is_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        dataclasses.replace(PLAN, **changes)


def test_a_plan_is_read_as_it_was_written_and_never_written_over(tmp_path):
    found = written(tmp_path / "plan.yaml")
    assert read_plan(tmp_path / "plan.yaml") == found
    with pytest.raises(ConfigError, match="is there already"):
        written(tmp_path / "plan.yaml")
    (tmp_path / "odd.yaml").write_text("a: 1\n")
    with pytest.raises(ConfigError, match="expected version 1 of 'robolearn plan'"):
        read_plan(tmp_path / "odd.yaml")
