"""Names that people, files and servers tell are shown as they are, or refused."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path

import pytest

from eval.report.page import text
from eval.report.text import markdown_table, markdown_text
from eval.trials import rows
from eval.trials.table import TrialStore, read_trials
from robolearn.cli.main import main
from robolearn.data.names import plain_name, shown, steering
from robolearn.errors import DataError, StoreCorruptError
from tests.eval.report_folder import trial

FORGED = "p\nverdict: ranks reliably"
STEERING = {"\x1b[2J": "U+001B", "\u202e": "U+202E", FORGED: "U+000A", "\x85": "U+0085",
            "a\u2029b": "U+2029", "\ud800": "U+D800", "\u2066x": "U+2066"}  # fmt: skip
IMAGE = "<img src=x onerror=alert(1)>"


def test_what_steers_is_found_and_letters_of_any_script_are_not() -> None:
    assert {name: steering(name) for name in STEERING} == STEERING
    for name in ("pusht flow", "näive", "策略", "مرحبا", "a\u200db", "a\u00a0b", "×"):
        assert steering(name) == ""
        assert shown(name) == name
    assert shown("a\u202eb\nc") == "a\\u202eb\nc"


def test_one_way_of_writing_a_name() -> None:
    assert plain_name(" na\u0308ive   net ") == "n\u00e4ive net"
    # Line feeds between words are white space, as in a cell of a spreadsheet.
    assert plain_name(FORGED) == "p verdict: ranks reliably"
    for name in ("", "  ", "\n"):
        with pytest.raises(ValueError, match="is empty"):
            plain_name(name)
    with pytest.raises(ValueError, match=r"control character U\+202E"):
        plain_name("a\u202eb")


@pytest.mark.parametrize("name", ["policy", "env", "condition", "suite", "reason", "operator"])
def test_a_row_with_a_name_that_steers_is_not_written(tmp_path: Path, name: str) -> None:
    plain = trial("p", "scene", 0, 0.3, False)
    with TrialStore(tmp_path) as store:
        for odd, code in STEERING.items():
            with pytest.raises(DataError) as refused:
                store.add([dataclasses.replace(plain, **{name: odd})])
            assert f"its {name} has the control character {code}" in str(refused.value)
            assert odd not in str(refused.value)
        store.add([dataclasses.replace(plain, **{name: "策略 näive"})])


def test_rows_that_somebody_else_wrote_are_not_shown(tmp_path: Path, capsys) -> None:
    """With a digest that fits, and through the command."""
    with TrialStore(tmp_path / "sim") as store:
        store.add([trial(f"p{k}", "scene", i, 0.3, False) for k in range(3) for i in range(4)])
    file = tmp_path / "sim" / rows.FILE_NAME
    with sqlite3.connect(file) as db:
        for (name,) in db.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            db.execute(f"DROP TRIGGER {name}")
        names = [*rows.COLUMNS]
        for number, *values in db.execute(rows.select(names)).fetchall():
            row = {**dict(zip(names, values, strict=True)), "policy": f"{FORGED} {number % 3}"}
            digest = rows.digest_of(number, row)
            db.execute("UPDATE trials SET policy = ?, digest = ? WHERE id = ?",
                       (row["policy"], digest, number))  # fmt: skip
    db.close()
    with pytest.raises(StoreCorruptError, match=r"trial 1 cannot be shown: its policy has .*000A"):
        read_trials(tmp_path / "sim")
    assert main(["trust", "--real", str(tmp_path / "sim"), "--sim", str(tmp_path / "sim")]) != 0
    shown_ = capsys.readouterr()
    assert "\nverdict: ranks" not in shown_.out + shown_.err


def test_markdown_shows_names_as_they_are(tmp_path: Path, capsys) -> None:
    said = markdown_text(f"{IMAGE}|`[a](javascript:x)` ~~b~~ &lt;i&gt; a\\")
    assert said == (
        "&lt;img src=x onerror=alert(1)>\\|\\`[a\\](javascript:x)\\` \\~\\~b\\~\\~ "
        "&amp;lt;i&amp;gt; a\\\\"
    )
    # Figures stay as they are.
    for plain in ("p < 0.01", "[0.2, 0.9]", "0.3 [0.1, 0.5] (n = 4)", "a_b", "R&D", "-0.012"):
        assert markdown_text(plain) == plain
    assert markdown_text("# a\nb") == "\\# a b"
    assert markdown_table(["a"], [["x\\|y"]])[2] == "| x\\\\\\|y |"
    lines = ["task,policy,real_successes,real_trials,sim_successes,sim_trials"]
    lines += [f"{IMAGE}|x,{IMAGE}|p{k}`,{5 * k + 5},50,{20 * k + 20},200" for k in range(6)]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(lines) + "\n")
    pages = [tmp_path / "t.md", tmp_path / "t.html"]
    words = ["trust", "--table", str(table), "--markdown", str(pages[0]), "--html", str(pages[1])]
    assert main(words) == 0
    assert all("<img src=x" not in page.read_text() for page in pages)
    tables = [line for line in pages[0].read_text().splitlines() if line.startswith("| &lt;img")]
    assert len(tables) == 6
    assert all(line.replace("\\|", "").count("|") == 6 for line in tables)
    capsys.readouterr()
    assert main(["trust", "--table", str(table), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["task"] == f"{IMAGE}|x"


def test_a_page_turns_nothing_round() -> None:
    assert text("a\u202eb<i>") == "a\\u202eb&lt;i&gt;"
