"""Tables of trials are read in pages, and counted, however long they are."""

from __future__ import annotations

import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest

from eval.trials.old_tables import LINES
from eval.trials.pages import trial_count, trial_page, trial_tallies
from eval.trials.rows import COLUMNS, FILE_NAME
from eval.trials.table import TrialStore, read_trials
from robolearn.errors import StoreCorruptError, StoreError
from tests.eval.trials.test_old_tables import ROWS, SCHEMA
from tests.eval.trials.test_trials import record


def table(folder: Path, n: int = 10) -> Path:
    with TrialStore(folder) as store:
        store.add(
            [record(f"c{i}", policy="ab"[i % 2], success=i < 4, score=1.0 if i < 4 else 0.5,
                    reason="success" if i < 4 else "time_limit")
             for i in range(n)]
        )  # fmt: skip
    return folder


def test_pages_are_what_the_whole_table_says(tmp_path: Path) -> None:
    every = read_trials(table(tmp_path))
    page = trial_page(tmp_path, 3, 4)
    assert (page.total, page.rows, page.trials) == (10, (4, 5, 6, 7), every[3:7])
    mine = trial_page(tmp_path, 1, 10, policy="b")
    assert (mine.total, mine.rows) == (5, (4, 6, 8, 10))
    assert trial_page(tmp_path, 50, 5).trials == ()
    assert trial_page(tmp_path, 0, 5, env="nowhere").total == 0
    assert trial_count(tmp_path) == 10
    found = {t.policy: (t.trials, t.successes, t.score) for t in trial_tallies(tmp_path)}
    assert found == {"a": (5, 2, 0.7), "b": (5, 2, 0.7)}
    with pytest.raises(StoreError, match="offset"):
        trial_page(tmp_path, -1, 5)


def test_an_edited_row_is_refused_on_its_page_only(tmp_path: Path) -> None:
    table(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.executescript(
            "DROP TRIGGER ended_trials_stay; UPDATE trials SET score = 0.7 WHERE id = 6"
        )
    assert len(trial_page(tmp_path, 0, 5).trials) == 5
    with pytest.raises(StoreCorruptError, match="trial 6"):
        trial_page(tmp_path, 5, 5)


def test_tables_of_the_first_release_and_lines_come_in_pages_too(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.executescript(SCHEMA)
        marks = ", ".join("?" for _ in ROWS[0])
        db.executemany(
            f"INSERT INTO trials ({', '.join(ROWS[0])}) VALUES ({marks})",
            [tuple(r.values()) for r in ROWS],
        )
    every = read_trials(tmp_path)
    assert trial_page(tmp_path, 1, 1).trials == every[1:2]
    assert trial_count(tmp_path) == len(every)
    assert sum(t.trials for t in trial_tallies(tmp_path)) == len(every)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / LINES).write_text("")
    assert trial_count(tmp_path / "lines") == 0
    assert trial_tallies(tmp_path / "lines") == ()
    with pytest.raises(StoreError, match="no trials"):
        trial_count(tmp_path / "none")


def test_a_long_table_takes_little_memory(tmp_path: Path) -> None:
    table(tmp_path, 1)
    names = ", ".join(c for c in COLUMNS if c != "condition")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db, db:
        db.executescript(
            f"""WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
            INSERT INTO trials ({names}, condition)
            SELECT {names}, 'c' || i FROM trials, n"""
        )
    tracemalloc.start()
    assert trial_count(tmp_path) == 20_000
    assert trial_tallies(tmp_path)[0].trials == 20_000
    page = trial_page(tmp_path, 0, 1)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert page.total == 20_000
    assert most < 2_000_000
