"""Statistics of tables: what the functions say of the same numbers, and what a table must be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eval.plain import plain_values
from eval.statistics.betting import paired_sequence
from eval.statistics.nested import mixed_model
from eval.statistics.sequential import SequentialBarnard, betting_sequence
from robolearn.cli.main import main


def told(capsys, *words):
    assert main(["stats", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_tables_give_what_the_functions_give(tmp_path, capsys):
    rng = np.random.default_rng(0)
    path = tmp_path / "t.csv"
    values = rng.random(40)
    path.write_text("score\n" + "\n".join(map(repr, values.tolist())) + "\n")
    last = betting_sequence(values).last
    assert told(capsys, "sequence", str(path))["low"] == last.low
    a, b = rng.random(60) < 0.2, rng.random(60) < 0.8
    path.write_text("a,b\n" + "\n".join(f"{x:d},{y:d}" for x, y in zip(a, b, strict=True)) + "\n")
    found = told(capsys, "sequence", str(path))
    assert (found["decision"], found["trials"]) == ("b", paired_sequence(a, b).trials)
    # As Excel writes it: the names are no line of outcomes, wherever they stand.
    path.write_text("\nSEP=;\n" + path.read_text().replace(",", ";"))
    assert told(capsys, "sequence", str(path)) == found
    apart = told(capsys, "sequence", str(path), "--independent", "60")
    assert apart["trials"] == SequentialBarnard(60).run(a, b).trials < found["trials"]
    rows = (rng.random((20, 3)) < [0.95, 0.95, 0.05]).astype(int)
    path.write_text("flow,act,bc\n" + "\n".join(",".join(map(str, r)) for r in rows) + "\n")
    found = told(capsys, "blocks", str(path), "--blocks", "2", "--size", "10")
    decided = {(d["better"], d["worse"]) for d in found["decisions"]}
    assert decided == {("flow", "bc"), ("act", "bc")}
    assert found["undecided"] == [["flow", "act"]]
    found = told(capsys, "profile", str(path), "--at", "0.5")
    assert found["value"] == [pytest.approx(rows.mean())]
    path.write_text("first,second,score\n" + "flow,bc,1\n" * 8 + "flow,bc,0\n" * 2)
    theta = told(capsys, "preferences", str(path))["theta"]
    assert theta["flow"]["value"] > theta["bc"]["value"]


def test_blocks_of_scores_state_what_they_assume(tmp_path, capsys):
    path = tmp_path / "t.csv"
    words = ["stats", "blocks", str(path), "--blocks", "1", "--size", "2"]
    for rows, stated in (("1,0\n1,1\n", False), ("0.9,0.2\n0.8,0.1\n", True)):
        path.write_text("a,b\n" + rows)
        assert main(words) == 0
        assert ("symmetric" in capsys.readouterr().out) == stated


def test_a_table_of_rollouts_is_taken_apart(tmp_path, capsys):
    rng = np.random.default_rng(1)
    rates = {"flow": rng.beta(9, 1, 12), "bc": rng.beta(1, 9, 12)}
    outcomes = {
        n: {f"c{i}": (rng.random(4) < p).astype(float).tolist() for i, p in enumerate(row)}
        for n, row in rates.items()
    }
    lines = [f"{v:g},{n},{c}" for n, row in outcomes.items() for c, vs in row.items() for v in vs]
    path = tmp_path / "t.csv"
    path.write_text("outcome,policy,condition\n" + "\n".join(lines) + "\n", encoding="utf-8-sig")
    found = told(capsys, "mixed", str(path))
    assert found == plain_values(mixed_model(outcomes))
    assert found["effects"][0]["better"] == "flow"
    assert main(["stats", "mixed", str(path)]) == 0
    out = capsys.readouterr().out
    assert "12 conditions" in out
    assert "of policies on conditions" in out
    assert "flow is better" in out
    path.write_text("condition,outcome\nx,1\nx,0\ny,1\n")
    assert list(told(capsys, "mixed", str(path))["means"]) == ["mean"]


def test_bad_tables_name_file_and_line(tmp_path, capsys):
    path = tmp_path / "t.csv"
    for text, words, named in (
        ("0.5\n2\n", ("sequence",), "t.csv:2: expected 1 outcomes"),
        ("1,0\n", ("blocks", "--blocks", "1", "--size", "1"), "must name the policies"),
        ("a,b\n1,0\n", ("blocks", "--blocks", "1", "--size", "2"), "whole blocks of 2 rows"),
        ("a,b,1\na,b,x\n", ("preferences",), "t.csv:2: expected first,second,score"),
        ("a\n", ("profile",), "has no outcomes"),
        ("0.9,o.8\n1,1\n", ("sequence",), "t.csv:1: expected"),
        ("1,0,1\n", ("sequence",), "got 3"),
        ("1\n0\n", ("sequence", "--independent", "9"), "got 1"),
        ("x,1\n", ("mixed",), "first line of the names condition, outcome"),
        ("condition,outcome\nx,2\n", ("mixed",), "t.csv:2: expected condition,outcome"),
        ("condition,outcome\nx,1,1\n", ("mixed",), "t.csv:2: expected condition,outcome"),
        ("condition,outcome\n", ("mixed",), "has no outcomes"),
        ("policy,condition,outcome\na,x,1\nb,y,1\n", ("mixed",), "same conditions"),
    ):
        path.write_text(text)
        assert main(["stats", words[0], str(path), *words[1:]]) == 2
        assert named in capsys.readouterr().err
    path.write_bytes(b"\xff\xfe\x00")
    assert main(["stats", "sequence", str(path)]) == 2
    assert "no CSV file in UTF-8" in capsys.readouterr().err
