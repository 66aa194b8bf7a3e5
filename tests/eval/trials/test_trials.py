from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from eval.trials.table import (
    TrialStore,
    from_json,
    key_of,
    read_trials,
    to_csv,
    to_json,
    write_parquet,
)
from robolearn.errors import DataError, StoreCorruptError, StoreError
from robolearn.types import TrialRecord


def record(condition: str = "c0", **changes) -> TrialRecord:
    base = TrialRecord(
        policy="flow",
        policy_hash="p1",
        env="gym_pusht",
        env_hash="e1",
        engine="pymunk 6",
        real=False,
        condition=condition,
        seed=3,
        success=True,
        score=0.5,
        final_progress=0.25,
        return_=12.5,
        steps=300,
        duration_s=30.0,
        reason="time_limit",
        commit="abc",
        suite="s@1",
        metrics={"max_coverage": 0.475},
        code="k",
        batch=4,
    )
    return dataclasses.replace(base, **changes)


def test_trials_come_back_as_they_were(tmp_path):
    rows = [record("a"), record("b", success=False, score=0.0, metrics={})]
    with TrialStore(tmp_path) as store:
        store.add(rows)
        assert store.all() == tuple(rows)
        assert store.keys() == {key_of(r) for r in rows}
    assert read_trials(tmp_path) == tuple(rows)


def test_a_double_trial_is_impossible_and_takes_nothing_with_it(tmp_path):
    with TrialStore(tmp_path) as store:
        store.add([record("a")])
        with pytest.raises(DataError, match="already has this trial"):
            store.add([record("b"), record("a", score=0.9)])
        assert [r.condition for r in store.all()] == ["a"]
        store.add([record("a", seed=4), record("a", code="k2"), record("a", batch=1)])
        assert len(store.all()) == 4


def test_real_trials_are_told_apart_by_their_episode(tmp_path):
    with TrialStore(tmp_path) as store:
        store.add([record(real=True, episode="e1"), record(real=True, episode="e2")])
        with pytest.raises(DataError, match="already"):
            store.add([record(real=True, episode="e2")])
        with pytest.raises(DataError, match="names no episode"):
            store.add([record(real=True)])


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
    assert from_json(json.loads(json.dumps(to_json(rows)))) == rows
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
    assert table["score"] == [0.5, 0.5]
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


def test_a_kill_leaves_whole_transactions(tmp_path):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_write_until_killed, args=(tmp_path, ready), daemon=True)
    process.start()
    assert ready.wait(30)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    rows = read_trials(tmp_path)
    assert len(rows) >= 16
    assert len(rows) % 4 == 0
    with TrialStore(tmp_path) as store:
        store.add([record("after")])
