from __future__ import annotations

import ast
import dataclasses
import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from eval.evaluation import (
    Evaluation,
    PolicyIdentity,
    WorldIdentity,
    read_evaluation,
    write_evaluation,
)
from eval.report.benchmark_page import load_benchmark, tables
from eval.report.build import SECTIONS, build_report
from eval.report.data import ReportData, load_evaluation, load_report_data
from eval.report.glossary import glossary
from eval.report.plots import _share_limits
from eval.report.recordings import StoreFacts
from eval.report.sections import words_section
from eval.report.text import reached
from eval.trials.table import TrialStore, read_trials
from robolearn.cli.evaluation import report as command
from robolearn.errors import ConfigError, DataError, StoreCorruptError
from robolearn.operations.compare import compare
from robolearn.operations.report import benchmark, report
from tests.browser import chromium
from tests.eval.report_folder import results_folder, trial


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return results_folder(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def made(folder):
    return report(folder)


@pytest.fixture(scope="module")
def page(made):
    return made.page


def test_every_section_is_there(page):
    for key, title, _ in SECTIONS:
        assert f'<section id="{key}">' in page
        assert title.replace("?", "") in page


def test_nothing_is_loaded_from_elsewhere(page):
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!data:|#)""", page) == []
    assert re.findall(r"https?://|url\(|@import|<script|<link(?! rel=\"icon\")", page) == []


def test_text_from_data_is_escaped(page):
    assert "synthetic &lt;numbers&gt;" in page
    assert "<b>not bold" not in page


def test_the_summary_has_every_figure_with_interval_and_n(made):
    points = made.points
    text = " ".join(points)
    assert "n = 60" in text
    assert re.search(r"mean score of 0\.\d{3} \[0\.\d{3}, 0\.\d{3}\]", text)
    assert "20.5 mm" in text
    assert "The ceiling, gym_pusht against itself with every start moved" in text
    assert "On an emulated robot, “flow” was run 2 times in real time" in text
    compared = next(p for p in points if p.startswith("In gym_pusht, start by start (n = "))
    assert re.search(r"flow.*iql|iql.*flow", compared)


def test_lost_trials_reranked_chunks_and_interventions_are_told(page):
    plain = page.replace("\u00a0", " ")
    assert "trials were lost for technical reasons" in plain
    assert "simulation became unstable" in plain
    assert "It took another than the first proposal in 3200 of 6080" in plain
    assert "by cause (3 in 2 trials)" in plain
    assert "stale tracker" in plain
    assert "No real robot was involved" in plain
    assert "the supervisor stopped the robot" in plain


def test_parts_alone_give_a_page(folder, tmp_path):
    for part, key in (("identify", "physics"), ("deploy", "deployment")):
        shutil.copytree(folder / part, tmp_path / part / part)
        html = build_report(load_report_data(tmp_path / part)).replace("\u00a0", " ")
        assert "Not part of this report" in html
        assert f'<section id="{key}">' in html
        assert '<section id="results">' not in html
    alone = load_report_data(folder / "evaluate")
    assert alone.evaluation is not None
    # One of the named files is gone.
    named = [r for r in read_trials(folder / "evaluate") if r.video]
    assert len(alone.evaluation.clips) == len(named) - 1 >= 10


def test_bad_folders_are_explained(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        load_report_data(tmp_path / "none")
    with pytest.raises(ConfigError, match="nothing to report"):
        load_report_data(tmp_path)
    (tmp_path / "identify").mkdir()
    (tmp_path / "identify" / "identify.json").write_text("{half")
    with pytest.raises(DataError, match=r"identify\.json' is not valid JSON"):
        load_report_data(tmp_path)
    (tmp_path / "identify" / "identify.json").write_text('{"heldout": 1}')
    with pytest.raises(DataError, match=r"'heldout' must be a mapping, got 1"):
        load_report_data(tmp_path)
    with pytest.raises(ConfigError, match="either --demo FOLDER or --results"):
        command.main([])


def test_the_command_writes_the_same_page_again(folder, made, tmp_path, capsys):
    out = tmp_path / "new" / "report.html"
    assert command.main(["--demo", str(folder), "--out", str(out)]) == 0
    assert out.read_text() == made.page
    assert out.with_suffix(".md").read_text() == made.markdown
    assert json.loads(out.with_suffix(".json").read_text()) == made.document
    assert "mean score of" in capsys.readouterr().out


def test_on_a_telephone_the_verdict_stands_without_scrolling_and_tables_show_that_they_scroll(
    made, tmp_path
):
    file = tmp_path / "report.html"
    file.write_text(made.page)
    with chromium(390, 844) as tab:
        tab.open(file.as_uri())
        tab.wait_for("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        verdict = "document.querySelector('.verdict')"
        assert tab.evaluate(f"{verdict}.textContent").replace("\u00a0", " ") == made.points[0]
        assert tab.evaluate(f"{verdict}.getBoundingClientRect().bottom") < 664  # with its bars
        wide = (
            "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
        )
        assert tab.evaluate(f"{wide}.length") >= 3
        shadow = "getComputedStyle(e).backgroundImage.split('linear-gradient').length === 5"
        assert tab.evaluate(f"{wide}.every(e => {shadow})")


def test_the_page_explains_the_words_that_it_uses(folder, page):
    words = glossary(load_report_data(folder))
    assert {"flow (policy)", "iql (policy)", "gym_pusht (world)", "pusht_ur5e (world)"} <= set(
        words
    )
    assert {"Wilson", "Holm", "Pearson", "phi", "letters", "paired", "n"} <= set(words)
    assert all(meaning for meaning in words.values())
    assert "<dt>flow (policy)</dt>" in page.replace("\u00a0", " ")
    alone = load_report_data(folder / "identify" / "..")
    assert "open loop" in glossary(alone)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.9949, "0.99"), (0.9951, "> 0.99"), (0.99999, "> 0.99"), (1.0, "1.00"), (0.2, "0.20")],
)
def test_a_failure_is_never_shown_with_the_score_of_a_success(value, shown):
    assert reached(value) == shown


def test_what_took_how_long_is_no_learning_curve(tmp_path):
    run = tmp_path / "train" / "flow"
    run.mkdir(parents=True)
    lines = [{"step": s, "loss/flow": 1.0 / s, "data_seconds": s, "seconds": s} for s in (1, 2, 3)]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (facts,) = load_report_data(tmp_path).runs
    assert facts.figures() == ["loss/flow"]


def test_a_critic_is_drawn_and_judged_on_every_page(tmp_path):
    run = tmp_path / "train" / "iql"
    run.mkdir(parents=True)
    q = [0.1, 0.3, 0.6, 0.9, 1.0, 0.9, 0.7, 0.5, 0.4, 0.4]
    lines = [
        {"step": 500 * (i + 1), "seconds": 10.0 * (i + 1), "diagnosis_seconds": 0.1 * (i + 1)}
        | {"loss/critic": 0.1, "critic/q_data": v, "critic/td_error": 0.1, "critic/q_std": 1.0}
        for i, v in enumerate(q)
    ]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (facts,) = load_report_data(tmp_path).runs
    assert facts.figures() == ["loss/critic"]
    assert facts.diagnosis is not None
    assert facts.diagnosis.peak == 2000
    made = report(tmp_path)
    page = made.page.replace("\u00a0", " ")
    assert "Diagnosis of the critic of “iql”: overfit. Q on recorded actions rose until" in page
    assert "1.0% of the time" in page
    assert 'alt="Diagnosis of the critic of iql"' in page
    assert "* Critic of iql (overfit): Q on recorded" in made.markdown
    assert made.document["runs"][0]["diagnosis"]["verdict"] == "overfit"
    pages = benchmark([run])
    assert 'alt="Diagnosis of the critic of iql"' in pages.page
    assert "* Critic of iql (overfit)" in pages.markdown


def test_axes_fit_the_data():
    assert _share_limits([0.93, 0.99, float("nan")]) == pytest.approx((0.91, 1.01))
    assert _share_limits([0.0, 1.0]) == (-0.02, 1.02)
    assert _share_limits([]) == (-0.02, 1.02)


def test_one_world_alone_has_no_section_about_worlds_that_agree(folder, tmp_path):
    copied = tmp_path / "evaluate"
    shutil.copytree(folder / "evaluate", copied)
    records = read_trials(copied)
    asked = read_evaluation(copied, records)
    alone = dataclasses.replace(
        asked,
        worlds=tuple(w for w in asked.worlds if w.name == "gym_pusht"),
        conditions={"gym_pusht": asked.conditions["gym_pusht"]},
    )
    write_evaluation(copied, alone)
    page = report(copied).page.replace("\u00a0", " ")
    assert '<section id="agreement">' not in page
    assert "Does the simulator agree" not in page
    # What was repeated is told all the same.
    assert "how far single outcomes repeat themselves" in page


@pytest.mark.parametrize("width", [1200, 390])
def test_it_opens_offline_in_a_browser(page, tmp_path, width):
    file = tmp_path / "report.html"
    file.write_text(page)
    with chromium(width, 900) as tab:
        tab.call("Network.enable")
        tab.call(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        tab.open(file.as_uri())
        tab.wait_for("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert tab.evaluate("document.querySelectorAll('section').length") == len(SECTIONS) + 1
        videos = "[...document.querySelectorAll('.clip video')]"
        tab.wait_for(f"{videos}.every(v => v.readyState > 0 && v.videoWidth === 64)")
        assert tab.evaluate(f"{videos}.length") == page.count('<figure class="clip') >= 10
        assert tab.evaluate("document.querySelectorAll('.clip.bad').length") >= 3
        loaded = tab.evaluate("performance.getEntriesByType('resource').map(r => r.name)")
        assert [name for name in loaded if not name.startswith("data:")] == []
        assert tab.errors == []


def test_single_trials_give_letters_variants_failures_and_seeds(page):
    plain = page.replace("\u00a0", " ")
    assert "exact test of success, Holm over all pairs" in plain
    assert "friction=1 − nominal" in plain or "No variant was shown to change success" in plain
    assert "an object was dropped" in plain
    assert "flow (seed 0), flow_1 (seed 1)" in plain
    assert "other seeds was not measured" not in plain


def test_markdown_and_json_stand_beside_the_page(made):
    document = made.document
    evaluation = document["evaluation"]
    assert {v["variant"] for v in evaluation["variants"]} == {"friction=1", "mass=1"}
    assert evaluation["suite"] == "pusht@1234"
    names = [e["name"] for e in evaluation["comparison"]["worlds"][0]["entries"]]
    assert sorted(names) == ["flow", "iql"]
    total = sum(f["count"] for f in evaluation["failures"] if f["world"] == "gym_pusht")
    wins = sum(r["successes"] for r in evaluation["results"] if r["world"] == "gym_pusht")
    assert total + wins == 120
    text = made.markdown
    for heading in ("## Results", "## Which policy is better", "## Variants", "## How episodes"):
        assert heading in text
    for row in (line for line in text.splitlines() if line.startswith("| flow")):
        assert row.endswith("|")


def test_training_runs_of_a_method_are_told_apart_from_episodes(folder, tmp_path):
    out = tmp_path / "r.html"
    both = ["--group", "ours=flow,iql"]
    assert command.main(["--results", str(folder / "evaluate"), "--out", str(out), *both]) == 0
    assert "between training runs" in out.read_text()
    document = json.loads(out.with_suffix(".json").read_text())
    (entry,) = document["evaluation"]["comparison"]["worlds"][0]["entries"]
    assert (entry["name"], entry["runs"], entry["n"]) == ("ours", ["flow", "iql"], 120)
    assert entry["success"]["method"] == "bounded mean over runs and conditions"
    with pytest.raises(ConfigError, match=r"NAME=POLICY"):
        command.main(["--results", str(folder / "evaluate"), "--group", "ours=flow"])


def test_a_benchmark_page_over_runs_and_results(folder, tmp_path):
    out = tmp_path / "b.html"
    train = folder / "train"
    runs = [str(train / "flow"), str(train / "flow_1"), str(train / "iql"), str(folder)]
    assert command.main(["--runs", *runs, "--out", str(out)]) == 0
    document = json.loads(out.with_suffix(".json").read_text())
    assert [r["name"] for r in document["runs"]] == ["flow", "flow_1", "iql"]
    assert len(document["results"]) == 10
    html = out.read_text().replace("\u00a0", " ")
    assert "robolearn evaluate runs/flow runs/iql" in html
    assert "Same settings, other seeds: flow, flow_1" in html
    assert "<b>not bold</b>" not in html
    with chromium(1200, 900) as tab:
        tab.open(out.as_uri())
        tab.wait_for("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1200
        assert tab.errors == []
    with pytest.raises(ConfigError, match="neither a run"):
        command.main(["--runs", str(tmp_path), "--out", str(out)])


def test_results_of_different_suites_and_versions_stand_apart(folder, tmp_path):
    records = read_trials(folder / "evaluate")
    asked = read_evaluation(folder / "evaluate", records)
    for name, changed, again in (
        (
            "suite",
            dataclasses.replace(asked, suite="pusht@9999"),
            [dataclasses.replace(r, suite="pusht@9999") for r in records],
        ),
        (
            "engine",
            dataclasses.replace(
                asked, worlds=tuple(dataclasses.replace(w, engine="mock 2") for w in asked.worlds)
            ),
            [dataclasses.replace(r, engine="mock 2") for r in records],
        ),
    ):
        _table_of(again, tmp_path / name)
        write_evaluation(tmp_path / name, changed)
    benchmark = load_benchmark([folder / "evaluate", tmp_path / "suite", tmp_path / "engine"])
    assert {len(rows) for rows in tables(benchmark.entries).values()} == {2}
    assert len(tables(benchmark.entries)) == 15


def _table_of(records, folder):
    """The same evaluation with another table of trials."""
    (folder / "trials.sqlite").unlink(missing_ok=True)
    with TrialStore(folder) as store:
        store.add(records)


def test_figures_come_from_the_trials_and_from_nothing_else(folder, tmp_path):
    """An inverted table and an emptied one are refused and named, a summary changes nothing."""
    copied = tmp_path / "evaluate"
    shutil.copytree(folder / "evaluate", copied, ignore=shutil.ignore_patterns("trials.sqlite*"))
    records = read_trials(folder / "evaluate")
    # Solved or not, said alike by success, reason and score: then the page says so.
    inverted = [
        dataclasses.replace(
            r,
            success=not r.success,
            reason="time_limit" if r.success else "success",
            score=r.score if r.success else 1.0,
        )
        for r in records
    ]
    _table_of(inverted, copied)
    (copied / "summary.json").write_text("{half")
    data = load_evaluation(copied)
    true = load_evaluation(folder / "evaluate")
    assert [r.successes for r in data.results] == [r.n - r.successes for r in true.results]
    assert "45/60 = 0.75" in build_report(load_report_data(copied)).replace("\u00a0", " ")
    with closing(sqlite3.connect(copied / "trials.sqlite")) as db:
        db.executescript("DROP TRIGGER ended_trials_stay; UPDATE trials SET success = 1 - success;")
    for read in (load_report_data, lambda place: compare([place])):
        with pytest.raises(StoreCorruptError, match=r"trial 1 .* edited"):
            read(copied)
    _table_of([], copied)
    with pytest.raises(DataError, match=r"asks for 320 trials .* has none of them"):
        load_report_data(copied)
    (copied / "trials.sqlite").unlink()
    with pytest.raises(DataError, match=r"no trials\.sqlite\. Its summary\.json .* never read"):
        load_report_data(copied)


def test_a_killed_evaluation_says_what_is_missing(folder, tmp_path):
    copied = tmp_path / "evaluate"
    shutil.copytree(folder / "evaluate", copied, ignore=shutil.ignore_patterns("trials.sqlite*"))
    records = [r for r in read_trials(folder / "evaluate") if r.condition != "pusht-0003"]
    _table_of(records, copied)
    data = load_report_data(copied)
    assert data.evaluation is not None
    assert data.evaluation.missing == 10
    plain = build_report(data).replace("\u00a0", " ")
    assert "not finished: 10 of 320 trials are missing" in plain


def test_tables_of_earlier_releases_are_read_without_what_was_asked(folder, tmp_path):
    copied = tmp_path / "evaluate"
    shutil.copytree(folder / "evaluate", copied)
    (copied / "evaluation.json").unlink()
    data = load_report_data(copied)
    true = load_report_data(folder / "evaluate")
    assert data.evaluation is not None
    assert true.evaluation is not None
    assert data.evaluation.results == true.evaluation.results
    assert data.evaluation.comparison == true.evaluation.comparison
    assert data.evaluation.agreement == true.evaluation.agreement
    page = build_report(data).replace("\u00a0", " ")
    assert "come from an earlier release" in page
    assert "Protocol of all scores" not in page


def test_what_was_asked_is_checked_when_it_is_read(folder, tmp_path):
    copied = tmp_path / "evaluate"
    shutil.copytree(folder / "evaluate", copied)
    path = copied / "evaluation.json"
    document = json.loads(path.read_text())
    for change, message in (
        ({"version": 9}, "this release reads version 1"),
        ({"batch": "ten"}, "batch"),
        ({"policies": [{"name": "flow"}]}, "hash"),
    ):
        path.write_text(json.dumps(document | change))
        with pytest.raises(DataError, match=message):
            load_report_data(copied)
    path.write_text("[1]")
    with pytest.raises(DataError, match="must hold a JSON object"):
        load_report_data(copied)


DRAWER = ("coverage", "covered", "push", "t-shaped", "tool", "stem", "block")


def test_a_page_about_drawers_says_nothing_about_push_t(tmp_path):
    """Every section of an evaluation, and none of the words of another task."""
    rng = np.random.default_rng(5)
    worlds, policies = ("drawer", "drawer_panda", "drawer~mass=1"), ("act", "flow", "bc")

    def record(policy, world, i, variant=""):
        score = float(rng.uniform())
        return dataclasses.replace(
            trial(policy, world, i, score, score > 0.6),
            condition=f"drawer-{i:04d}",
            suite="drawer@77",
            metrics={},
            variant=variant,
            env_hash=f"h-{world}",
            reason="success" if score > 0.6 else "time_limit",
        )

    with TrialStore(tmp_path) as store:
        store.add([record(p, w, i) for p in policies for w in worlds for i in range(12)])
        store.add([record(p, "drawer", i, "moved") for p in policies for i in range(12)])
    asked = Evaluation(
        suite="drawer@77",
        protocol="score = how far the drawer was opened; 200 steps at 10 Hz",
        task="drawer",
        max_steps=200,
        source_world="drawer",
        starts={f"drawer-{i:04d}": i for i in range(12)},
        conditions=dict.fromkeys(worlds, 12),
        worlds=tuple(WorldIdentity(w, f"h-{w}", "mock 1.0") for w in worlds),
        policies=tuple(PolicyIdentity(p, f"h-{p}") for p in policies),
        placed=True,
        batch=1,
        code="",
    )
    write_evaluation(tmp_path, asked)
    made = report(tmp_path)
    assert any("best first: " in p and "Holm over all pairs" in p for p in made.points)
    for key in ("results", "comparison", "variants", "failures", "agreement", "words"):
        assert f'<section id="{key}">' in made.page
    texts = (re.sub(r'"data:[^"]*"|<style>.*?</style>', "", made.page, flags=re.DOTALL),
             made.markdown, json.dumps(made.document))  # fmt: skip
    for text in texts:
        found = [word for word in DRAWER if word in text.lower()]
        assert found == []
    # The same words are there when the task is Push-T: the test could fail.
    write_evaluation(tmp_path, dataclasses.replace(asked, task="pusht"))
    assert "coverage" in words_section(load_report_data(tmp_path))


def test_recordings_of_any_task_are_told_by_their_progress(tmp_path):
    facts = StoreFacts(
        "import", "drawer", {"demonstration": 24}, 400, (2.0,) * 24, (0.5,) * 24, 6, ()
    )
    data = ReportData(folder="x", stores=(facts,), task="drawer")
    page = build_report(data).replace("\u00a0", " ")
    assert "6 of 24 succeeded; they ended with 50 % of the way done in the median" in page
    assert "Histograms of episode length and of final progress" in page
    assert "coverage" not in page


def test_one_page_holds_one_comparison(folder, made):
    """In short, the table and the sentences say what the declared rule says, and nothing else."""
    page = made.page.replace("\u00a0", " ")
    assert "scores higher than" not in page
    assert "scores lower than" not in page
    comparison = load_evaluation(folder / "evaluate").comparison
    assert comparison is not None
    compared = comparison.in_world("gym_pusht")
    assert compared is not None
    (effect,) = compared.effects
    assert any(effect.words in point for point in made.points)
    assert page.count('<th class="num">p of success</th>') == len(comparison.worlds)


RENDERERS = (
    "build",
    "breakdown",
    "lines",
    "markdown",
    "page",
    "plots",
    "results",
    "sections",
    "text",
)


@pytest.mark.parametrize("name", RENDERERS)
def test_renderers_read_typed_data(name):
    """No figure is looked up by a string: a renamed field is found by the type checker."""
    path = Path(__file__).parents[3] / "eval" / "report" / f"{name}.py"
    tree = ast.parse(path.read_text())
    keys = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    ]
    gets = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
    assert (keys, gets) == ([], [])
