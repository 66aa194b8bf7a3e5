from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from eval.trials.export import to_csv, to_json, write_parquet
from eval.trials.table import FILE_NAME, TrialStore, key_of, read_trials
from robolearn.errors import DataError, StoreCorruptError, StoreError, StoreLockedError
from robolearn.types import TrialRecord
from tests import trial_records


def record(condition: str = "c0", **changes) -> TrialRecord:
    usual = {"policy": "flow", "policy_hash": "p1", "env": "gym_pusht", "env_hash": "e1"}
    usual |= {"engine": "pymunk 6", "seed": 3, "success": True, "score": 1.0}
    usual |= {"final_progress": 0.25, "return_": 12.5, "steps": 300, "duration_s": 30.0}
    usual |= {"commit": "abc", "metrics": {"max_coverage": 0.475}, "code": "k", "batch": 4}
    return trial_records.record(**{**usual, "condition": condition, **changes})


def test_trials_come_back_as_they_were(tmp_path):
    rows = [record("a"), record("b", success=False, score=0.3, metrics={})]
    with TrialStore(tmp_path) as store:
        store.add(rows)
        assert store.all() == tuple(rows)
        assert store.keys() == {key_of(r) for r in rows}
    assert read_trials(tmp_path) == tuple(rows)


def test_a_double_trial_is_impossible_and_takes_nothing_with_it(tmp_path):
    with TrialStore(tmp_path) as store:
        store.add([record("a")])
        with pytest.raises(DataError, match="already has this trial"):
            store.add([record("b"), record("a", return_=0.9)])
        assert [r.condition for r in store.all()] == ["a"]
        store.add([record("a", seed=4), record("a", code="k2"), record("a", batch=1)])
        assert len(store.all()) == 4


def test_real_trials_are_told_apart_by_their_episode(tmp_path):
    with TrialStore(tmp_path) as store:
        store.add([record(kind="robot", episode="e1"), record(kind="lab", episode="e2")])
        with pytest.raises(DataError, match="already"):
            store.add([record(kind="robot", episode="e2")])
        with pytest.raises(DataError, match="names no episode"):
            store.add([record(kind="robot")])


def test_variants_and_judges_are_trials_of_their_own(tmp_path):
    rows = [record(), record(variant="moved"), record(variant="noise", seed=4), record(judge="j")]
    with TrialStore(tmp_path) as store:
        store.add(rows)
        with pytest.raises(DataError, match="already"):
            store.add([record(variant="moved", return_=0.1)])
    assert read_trials(tmp_path) == tuple(rows)


def begun(**changes) -> TrialRecord:
    values = {"kind": "robot", "status": "started", "success": False, "reason": ""}
    return record(**values | changes)


def test_a_real_trial_is_there_before_it_ends_and_ends_once(tmp_path):
    plan = {"plan": "p@1", "slot": 3, "alias": "violet", "tolerance": {"position_m": 0.01}}
    with TrialStore(tmp_path) as store:
        row = store.begin(begun(**plan, started="2026-01-01T00:00:00+00:00"))
        assert [r.status for r in read_trials(tmp_path)] == ["started"]
        over = dataclasses.replace(
            store.all()[0],
            status="finished",
            success=True,
            reason="success",
            episode="e1",
            achieved={"block/pose": (0.1, 0.2, 0.3)},
        )
        store.end(row, over)
        assert store.all() == (over,)
        assert (over.slot, over.alias, over.started[:4]) == (3, "violet", "2026")
        with pytest.raises(DataError, match="has ended already"):
            store.end(row, dataclasses.replace(over, success=False))
        with pytest.raises(DataError, match="has no trial 2"):
            store.end(2, over)
        with pytest.raises(DataError, match="finished, aborted or voided"):
            store.end(row, begun())
        with pytest.raises(DataError, match="'started'"):
            store.begin(over)
    assert read_trials(tmp_path) == (over,)


def test_trials_are_voided_with_a_reason_and_stay(tmp_path):
    with TrialStore(tmp_path) as store:
        store.add([record("a"), record("b")])
        with pytest.raises(DataError, match="say which"):
            store.void(1, " ")
        store.void(1, "the table was bumped")
        with pytest.raises(DataError, match="can only be voided"):
            store.void(1, "again")
        first, second = store.all()
    assert (first.status, first.note, first.success) == ("voided", "the table was bumped", True)
    assert second == record("b")


def test_the_file_itself_keeps_what_was_written(tmp_path):
    with TrialStore(tmp_path) as store:
        store.add([record("a"), record("b")])
    db = sqlite3.connect(tmp_path / FILE_NAME)
    for statement in (
        "DELETE FROM trials WHERE id = 1",
        "UPDATE trials SET success = 0",
        "UPDATE trials SET status = 'aborted'",
    ):
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("trigger", "statement", "told"),
    [
        ("ended_trials_stay", "UPDATE trials SET success = 0 WHERE id = 2", "trial 2 .* edited"),
        ("ended_trials_stay", "UPDATE trials SET metrics = '{}' WHERE id = 1", "trial 1 .* edited"),
        ("status_goes_on", "UPDATE trials SET status = 'voided' WHERE id = 1", "edited"),
        ("ended_trials_stay", "UPDATE trials SET condition = 'z' WHERE id = 1", "edited"),
        ("trials_stay", "DELETE FROM trials WHERE id = 2", r"1 of 2 are there"),
        ("trials_stay", "DELETE FROM trials", r"0 of 2 are there"),
    ],
)
def test_an_edited_table_is_refused(tmp_path, trigger, statement, told):
    with TrialStore(tmp_path) as store:
        store.add([record("a"), record("b")])
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.executescript(f"DROP TRIGGER {trigger}; {statement};")
    db.close()
    with pytest.raises(StoreCorruptError, match=told):
        read_trials(tmp_path)
    with pytest.raises(StoreCorruptError, match=told):
        TrialStore(tmp_path)


def test_a_second_writer_is_refused_before_it_computes(tmp_path):
    with TrialStore(tmp_path) as store:
        with pytest.raises(StoreLockedError, match=r"table of trials .* process \d+"):
            TrialStore(tmp_path)
        store.add([record()])
        assert read_trials(tmp_path) == (record(),)
    TrialStore(tmp_path).close()


@pytest.mark.parametrize(
    "changes",
    [{"score": math.nan}, {"score": 1.5}, {"steps": -1}, {"metrics": {"x": math.inf}}],
)
def test_impossible_numbers_are_refused(tmp_path, changes):
    with TrialStore(tmp_path) as store:
        with pytest.raises(DataError):
            store.add([record(**changes)])
        assert store.all() == ()


def test_json_and_csv(tmp_path):
    rows = (record("a"), record("b", metrics={"chunks": 3.0}))
    plain = json.loads(json.dumps(to_json(rows)))
    assert tuple(TrialRecord(**row) for row in plain) == rows
    lines = to_csv(rows).splitlines()
    assert lines[0].endswith("metrics.chunks,metrics.max_coverage")
    assert len(lines) == 3
    assert lines[2].endswith(",3.0,")


def test_parquet_has_typed_columns_and_gaps(tmp_path):
    import pyarrow.parquet as pq

    rows = [record("a"), record("b", success=False, metrics={"chunks": 3.0})]
    write_parquet(rows, tmp_path / "trials.parquet")
    table = pq.read_table(tmp_path / "trials.parquet").to_pydict()
    assert table["condition"] == ["a", "b"]
    assert table["success"] == [True, False]
    assert table["score"] == [1.0, 1.0]
    assert table["metrics.max_coverage"] == [0.475, None]
    assert table["metrics.chunks"] == [None, 3.0]
    assert [p.name for p in tmp_path.iterdir()] == ["trials.parquet"]


def test_missing_broken_and_foreign_files(tmp_path):
    with pytest.raises(StoreError, match=r"expected the file trials\.sqlite"):
        read_trials(tmp_path / "none")
    (tmp_path / "trials.sqlite").write_text("no database, but long enough to be taken for one" * 30)
    with pytest.raises(StoreCorruptError, match="move it away"):
        TrialStore(tmp_path)


def _write_until_killed(folder: Path, ready) -> None:
    store = TrialStore(folder)
    for i in range(100_000):
        store.add([record(f"{i}-{k}") for k in range(4)])
        if i == 3:
            ready.set()


def test_newer_tables_are_refused(tmp_path):
    TrialStore(tmp_path).close()
    db = sqlite3.connect(tmp_path / FILE_NAME)
    db.execute("PRAGMA user_version = 5")
    db.close()
    for read in (read_trials, TrialStore):
        with pytest.raises(StoreError, match="table version 5; this release reads up to 4"):
            read(tmp_path)


def test_a_kill_leaves_whole_transactions(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_write_until_killed, args=(tmp_path, ready), daemon=True)
    process.start()
    assert ready.wait(30)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    rows = read_trials(tmp_path)
    assert len(rows) >= 16
    assert len(rows) % 4 == 0
    with TrialStore(tmp_path) as store:
        store.add([record("after")])


def _begin_and_wait(folder: Path, ready) -> None:
    store = TrialStore(folder)
    store.begin(begun())
    ready.set()
    multiprocessing.Event().wait()


def test_a_trial_whose_process_was_killed_is_aborted_for_an_unknown_reason(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_begin_and_wait, args=(tmp_path, ready), daemon=True)
    process.start()
    assert ready.wait(30)
    # While it lives, the trial is under way, whoever looks.
    assert [r.status for r in read_trials(tmp_path)] == ["started"]
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    for _ in range(2):
        (row,) = read_trials(tmp_path)
        assert (row.status, row.reason, row.success) == ("aborted", "unknown", False)
        # The next writer writes down what readers told.
        with TrialStore(tmp_path) as store:
            assert store.all() == (row,)
