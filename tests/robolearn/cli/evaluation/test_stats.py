"""``robolearn stats``: the calculator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from robolearn.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["stats", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_interval_prints_exact_and_wilson(capsys):
    code, out, _ = run(capsys, "interval", "14/50")
    assert code == 0
    assert "Clopper-Pearson" in out
    assert "[0.1623, 0.4249]" in out
    assert "[0.1747, 0.4167]" in out


def test_what_is_no_count_is_said(capsys):
    for words in ("14", "14/x", "²/5"):
        code, _, error = run(capsys, "interval", words)
        assert code == 2
        assert f"got '{words}'" in error


def test_interval_as_json(capsys):
    code, out, _ = run(capsys, "interval", "20/20", "--json")
    document = json.loads(out)
    assert code == 0
    found = {i["method"]: (round(i["low"], 4), round(i["high"], 4)) for i in document["intervals"]}
    assert found["Clopper-Pearson"] == (0.8316, 1.0)
    assert found["Wilson"] == (0.8389, 1.0)


def test_compare_names_its_tests(capsys):
    code, out, _ = run(capsys, "compare", "14/50", "40/50", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["method"] == "Boschloo, two-sided"
    assert 0 < document["p_value"] < 1e-6
    assert document["difference"]["value"] == pytest.approx(0.52)
    assert "lines" not in document
    code, out, _ = run(capsys, "compare", "25/50", "26/50")
    assert code == 0
    assert "does not show that they are equal" in out


def test_compare_pairs(capsys, tmp_path: Path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("a,b\n" + "1,1\n" * 5 + "0,1\n" * 9 + "1,0\n")
    code, out, _ = run(capsys, "compare", "--paired", str(pairs))
    assert code == 0
    assert "p = 0.0215  McNemar" in out  # 2 (C(10,0) + C(10,1)) / 2^10
    assert "b is better" in out
    code, narrow, _ = run(capsys, "compare", "--paired", str(pairs), "--interval", "newcombe")
    assert "(bounded mean of differences)" in out
    assert "(Newcombe paired)" in narrow
    pairs.write_text("0.2,0.4\n0.5,0.7\n0.1,0.2\n0.3,0.6\n")
    code, out, _ = run(capsys, "compare", "--paired", str(pairs))
    assert code == 0
    assert "does not show that they are equal" in out
    pairs.write_text("0.2,0.4\n0.5,0.7\n0.1,0.2\n0.3,0.6\n" * 8)
    code, out, _ = run(capsys, "compare", "--paired", str(pairs))
    assert code == 0
    assert "b is better" in out


def test_plan(capsys):
    code, out, _ = run(capsys, "plan", "--p", "0.7", "--delta", "0.1", "--power", "0.8", "--json")
    assert code == 0
    assert json.loads(out)["trials"] == 299
    code, out, _ = run(capsys, "plan", "--p", "0.95", "--delta", "0.1", "--correlation", "0.3")
    assert code == 0
    assert "telling 0.95 from 0.85" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["interval", "3/2"], "0 <= successes <= trials"),
        (["interval", "0/0"], "at least one trial"),
        (["interval", "0.3"], "such as 14/50"),
        (["interval", "9" * 20 + "/" + "9" * 20], "cannot be told apart"),
        (["interval", "3/5", "--level", "95"], "between 0 and 1"),
        (["compare", "3/5"], "two rates"),
        (["compare", "3/5", "2/5", "--paired", "x.csv"], "not both"),
        (["compare", "--paired", "absent.csv"], "no file"),
        (["plan", "--p", "0.7", "--delta", "0"], "not 0"),
        (["plan", "--p", "1.7", "--delta", "0.1"], "must be rates"),
        (["mean"], "no verb 'mean'"),
    ],
)
def test_bad_input(capsys, words: list[str], message: str):
    code, out, err = run(capsys, *words)
    assert code == 2
    assert message in err
    assert not out
    assert "Traceback" not in err


def test_a_bad_line_of_pairs_is_named(capsys, tmp_path: Path):
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("a,b\n1,0\n1,7\n")
    code, _, err = run(capsys, "compare", "--paired", str(pairs))
    assert code == 2
    assert "pairs.csv:3" in err
