"""Tables and lists of trials as release 0.1.0 wrote them."""

import json
import sqlite3

import pytest

from eval.trials.rows import FILE_NAME
from eval.trials.suites import repeat_seed
from eval.trials.table import TrialStore, read_trials
from robolearn.errors import DataError

# The statements of version 1, word for word.
SCHEMA = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS trials (id INTEGER PRIMARY KEY, policy TEXT NOT NULL, policy_hash TEXT \
NOT NULL, env TEXT NOT NULL, env_hash TEXT NOT NULL, engine TEXT NOT NULL, real INTEGER NOT NULL \
CHECK (real IN (0, 1)), condition TEXT NOT NULL, seed INTEGER NOT NULL, success INTEGER NOT NULL \
CHECK (success IN (0, 1)), score REAL NOT NULL CHECK (score BETWEEN 0 AND 1), final_progress REAL \
NOT NULL CHECK (final_progress BETWEEN 0 AND 1), return_ REAL NOT NULL, steps INTEGER NOT NULL \
CHECK (steps >= 0), duration_s REAL NOT NULL CHECK (duration_s >= 0), reason TEXT NOT NULL, \
commit_ TEXT NOT NULL, suite TEXT NOT NULL, episode TEXT NOT NULL, video TEXT NOT NULL, operator \
TEXT NOT NULL, metrics TEXT NOT NULL, code TEXT NOT NULL, batch INTEGER NOT NULL CHECK (batch >= 1)
) STRICT;
CREATE UNIQUE INDEX IF NOT EXISTS one_trial
  ON trials (policy_hash, env_hash, suite, condition, seed, code, batch,
             CASE WHEN real THEN episode ELSE '' END);
PRAGMA user_version = 1;
COMMIT;
"""


def row(condition, seed=3, **changes):
    """One row of version 1 by column."""
    values = {
        "policy": "flow", "policy_hash": "p1", "env": "gym_pusht", "env_hash": "e1",
        "engine": "pymunk 6", "real": 0, "condition": condition, "seed": seed, "success": 1,
        "score": 1.0, "final_progress": 0.25, "return_": 12.5, "steps": 300, "duration_s": 30.0,
        "reason": "time_limit", "commit_": "abc", "suite": "s@1", "episode": "", "video": "v.mp4",
        "operator": "", "metrics": '{"max_coverage": 0.475}', "code": "k", "batch": 4,
    }  # fmt: skip
    return values | changes


ROWS = (
    row("c0"),
    row("c0~moved"),
    row("c0", repeat_seed(3)),
    row("c1", 9, success=0, score=0.5),
    # The same start with another seed that nobody derived from its own is a condition.
    row("c1", 10),
    row("c0", suite="s@1+judge=j1"),
    row("c0", real=1, episode="e1", engine="virtual lab, pybullet"),
    row("c0", real=1, episode="e2", engine="robot"),
)


@pytest.fixture
def table(tmp_path):
    db = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(SCHEMA)
    for values in ROWS:
        names, marks = ", ".join(values), ", ".join("?" * len(values))
        db.execute(f"INSERT INTO trials ({names}) VALUES ({marks})", tuple(values.values()))
    db.close()
    return tmp_path


def check(records):
    assert [(r.kind, r.condition, r.variant, r.seed, r.suite, r.judge) for r in records] == [
        ("sim", "c0", "", 3, "s@1", ""),
        ("sim", "c0", "moved", 3, "s@1", ""),
        ("sim", "c0", "noise", repeat_seed(3), "s@1", ""),
        ("sim", "c1", "", 9, "s@1", ""),
        ("sim", "c1", "", 10, "s@1", ""),
        ("sim", "c0", "", 3, "s@1", "j1"),
        ("lab", "c0", "", 3, "s@1", ""),
        ("robot", "c0", "", 3, "s@1", ""),
    ]
    assert {(r.status, r.started, r.plan, r.slot, r.alias, r.note) for r in records} == {
        ("finished", "", "", None, "", "")
    }
    assert [r.success for r in records] == [bool(v["success"]) for v in ROWS]
    assert (records[0].metrics, records[0].video) == ({"max_coverage": 0.475}, "v.mp4")


def test_a_table_of_version_1_is_read_without_a_change(table):
    before = (table / FILE_NAME).read_bytes()
    check(read_trials(table))
    assert (table / FILE_NAME).read_bytes() == before


def test_a_table_of_version_1_is_carried_over_once_it_is_written_to(table):
    for _ in range(2):
        with TrialStore(table) as store:
            check(store.all())
    check(read_trials(table))
    db = sqlite3.connect(table / FILE_NAME)
    assert db.execute("PRAGMA user_version").fetchone() == (4,)
    db.close()


def lines(folder):
    rows = []
    for values in ROWS[-2:]:
        plain = {k.replace("commit_", "commit"): v for k, v in values.items()}
        flags = {"real": True, "success": bool(values["success"])}
        rows.append(json.dumps(plain | flags | {"metrics": {"overruns": 1.0}}))
    (folder / "trials.jsonl").write_text("\n".join(rows) + "\n")


def test_the_lines_of_an_older_deployment_are_read_and_taken_over(tmp_path):
    lines(tmp_path)
    records = read_trials(tmp_path)
    assert [(r.kind, r.episode, r.commit) for r in records] == [
        ("lab", "e1", "abc"),
        ("robot", "e2", "abc"),
    ]
    assert not (tmp_path / FILE_NAME).exists()
    text = (tmp_path / "trials.jsonl").read_text()
    for _ in range(2):
        with TrialStore(tmp_path) as store:
            assert store.all() == records
    assert read_trials(tmp_path) == records
    assert (tmp_path / "trials.jsonl").read_text() == text


@pytest.mark.parametrize("text", ["{", "[]", "3", '{"policy": "x"}'])
def test_lines_that_are_no_trials_are_named(tmp_path, text):
    (tmp_path / "trials.jsonl").write_text(text + "\n")
    with pytest.raises(DataError, match=r"trials\.jsonl.*one trial of a deployment per line"):
        read_trials(tmp_path)
