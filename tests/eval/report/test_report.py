from __future__ import annotations

import json
import re
import shutil

import pytest

from eval.report.benchmark_page import load_benchmark, tables
from eval.report.build import SECTIONS, build_report, summary_points
from eval.report.data import load_report_data
from robolearn.cli import report as command
from robolearn.errors import ConfigError, DataError
from tests.browser import chromium
from tests.eval.report_folder import results_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return results_folder(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def page(folder):
    return build_report(load_report_data(folder))


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


def test_the_summary_has_every_figure_with_interval_and_n(folder):
    points = summary_points(load_report_data(folder))
    text = " ".join(points)
    assert "n = 60" in text
    assert re.search(r"mean score of 0\.\d{3} \[0\.\d{3}, 0\.\d{3}\]", text)
    assert "20.5 mm" in text
    assert "The ceiling, gym_pusht against itself with every start moved" in text
    assert "On an emulated robot, “flow” was run 2 times in real time" in text
    assert any("“iql” minus “flow”" in p for p in points)


def test_lost_trials_reranked_chunks_and_interventions_are_told(page):
    plain = page.replace("\u00a0", " ")
    assert "trials were lost for technical reasons" in plain
    assert "simulation became unstable" in plain
    assert "It took another than the first proposal in 2200 of 4180" in plain
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
    named = [c for r in alone.evaluation["results"] for c in r["clips"]]
    assert len(alone.clips) == len(named) - 1 >= 10


def test_bad_folders_are_explained(tmp_path):
    with pytest.raises(ConfigError, match="no folder"):
        load_report_data(tmp_path / "none")
    with pytest.raises(ConfigError, match="nothing to report"):
        load_report_data(tmp_path)
    (tmp_path / "summary.json").write_text("{half")
    with pytest.raises(DataError, match=r"summary\.json' is not valid JSON"):
        load_report_data(tmp_path)
    with pytest.raises(ConfigError, match="either --demo FOLDER or --results"):
        command.main([])


def test_the_command_writes_the_same_page_again(folder, page, tmp_path, capsys):
    out = tmp_path / "new" / "report.html"
    assert command.main(["--demo", str(folder), "--out", str(out)]) == 0
    assert out.read_text() == page
    assert "mean score of" in capsys.readouterr().out


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


def test_markdown_and_json_stand_beside_the_page(folder, tmp_path):
    out = tmp_path / "r.html"
    assert command.main(["--demo", str(folder), "--out", str(out)]) == 0
    document = json.loads(out.with_suffix(".json").read_text())
    assert {v["variant"] for v in document["variants"]} == {"friction=1", "mass=1"}
    assert document["evaluation"]["suite"] == "pusht@1234"
    names = [e["name"] for e in document["comparison"]["worlds"][0]["entries"]]
    assert sorted(names) == ["flow", "iql"]
    total = sum(f["count"] for f in document["failures"] if f["world"] == "gym_pusht")
    wins = sum(r["successes"] for r in document["evaluation"]["results"]
               if r["world"] == "gym_pusht")  # fmt: skip
    assert total + wins == 120
    text = out.with_suffix(".md").read_text()
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
    (entry,) = document["comparison"]["worlds"][0]["entries"]
    assert (entry["name"], entry["runs"], entry["n"]) == ("ours", ["flow", "iql"], 120)
    assert entry["success"]["method"] == "two-way cluster-robust t"
    with pytest.raises(ConfigError, match=r"NAME=POLICY"):
        command.main(["--results", str(folder / "evaluate"), "--group", "ours=flow"])


def test_a_benchmark_page_over_runs_and_results(folder, tmp_path):
    out = tmp_path / "b.html"
    train = folder / "train"
    runs = [str(train / "flow"), str(train / "flow_1"), str(train / "iql"), str(folder)]
    assert command.main(["--runs", *runs, "--out", str(out)]) == 0
    document = json.loads(out.with_suffix(".json").read_text())
    assert [r["name"] for r in document["runs"]] == ["flow", "flow_1", "iql"]
    assert len(document["results"]) == 6
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
    other = tmp_path / "other"
    other.mkdir()
    document = json.loads((folder / "evaluate" / "summary.json").read_text())
    for i, change in enumerate(("pusht@9999", None)):
        (other / str(i)).mkdir()
        changed = document | ({"suite": change} if change else {})
        if change is None:
            changed = document | {"worlds": [w | {"engine": "mock 2"} for w in document["worlds"]]}
        (other / str(i) / "summary.json").write_text(json.dumps(changed))
    benchmark = load_benchmark([folder / "evaluate", other / "0", other / "1"])
    assert {len(rows) for rows in tables(benchmark.entries).values()} == {2}
    assert len(tables(benchmark.entries)) == 9
