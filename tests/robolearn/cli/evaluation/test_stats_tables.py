"""Statistics of tables: what the functions say of the same numbers, and what a table must be."""

from __future__ import annotations

import json

import numpy as np
import pytest

from eval.statistics.sequential import betting_sequence
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


def test_bad_tables_name_file_and_line(tmp_path, capsys):
    path = tmp_path / "t.csv"
    for text, words, named in (
        ("0.5\n2\n", ("sequence",), "t.csv:2: expected 1 outcomes"),
        ("1,0\n", ("blocks", "--blocks", "1", "--size", "1"), "must name the policies"),
        ("a,b\n1,0\n", ("blocks", "--blocks", "1", "--size", "2"), "whole blocks of 2 rows"),
        ("a,b,1\na,b,x\n", ("preferences",), "t.csv:2: expected first,second,score"),
        ("a\n", ("profile",), "has no outcomes"),
    ):
        path.write_text(text)
        assert main(["stats", words[0], str(path), *words[1:]]) == 2
        assert named in capsys.readouterr().err
