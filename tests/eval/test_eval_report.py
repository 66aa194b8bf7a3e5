from __future__ import annotations

import re
import shutil

import pytest

from eval.report import SECTIONS, build_report, summary_points
from eval.report_data import load_report_data
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
    assert len(alone.videos) == 5


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
        assert tab.evaluate("document.querySelectorAll('video').length") == 5
        loaded = tab.evaluate("performance.getEntriesByType('resource').map(r => r.name)")
        assert [name for name in loaded if not name.startswith("data:")] == []
        assert tab.errors == []
