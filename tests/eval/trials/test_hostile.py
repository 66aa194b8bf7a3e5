"""Kills, a second writer, an edited table: nothing is lost, nothing false is told."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import sqlite3
from contextlib import closing

import pytest

from eval.blinded.plan import read_locked
from eval.blinded.votes import read_votes
from eval.evaluation import read_evaluation
from eval.plain import read_mapping
from eval.trials import refusals
from eval.trials.old_tables import lines_of, mapping_of
from eval.trials.pages import trial_page
from eval.trials.rows import COLUMNS, FILE_NAME, LACKED, digest_of
from eval.trials.table import TrialStore, read_trials
from robolearn.cli.main import main
from robolearn.errors import DataError, RobolearnError, StoreCorruptError, StoreLockedError
from tests.eval.mocks import without_times
from tests.eval.trials.test_rollouts import CRITIC, FLOW, A, B, run
from tests.eval.trials.test_trials import record
from tests.waiting import wait_until

FORK = multiprocessing.get_context("fork")
N = 60


def count(folder):
    return len(read_trials(folder)) if (folder / FILE_NAME).is_file() else 0


def everything(folder):
    return run(folder, (FLOW, CRITIC), (A, B), n=N, batch=2)


def test_the_first_writer_hears_of_the_second(tmp_path, caplog):
    def second() -> None:
        with contextlib.suppress(StoreLockedError):
            TrialStore(tmp_path)

    def told() -> list[str]:
        caplog.clear()
        with TrialStore(tmp_path):
            process = FORK.Process(target=second)
            process.start()
            process.join()
        return [r.getMessage() for r in caplog.records if f"process {process.pid} at" in r.message]

    (line,) = told()
    assert line.endswith(f"wanted to write into '{tmp_path}', too, and was refused")
    assert len(told()) == 1
    # What was left to a writer that was killed is not told to the next one; nor are there files.
    (tmp_path / refusals.FILE_NAME).write_text("process 1 at noon\n")
    caplog.clear()
    store = TrialStore(tmp_path)
    store.close()
    store.close()
    assert not caplog.records
    assert not (tmp_path / refusals.FILE_NAME).exists()


def test_twelve_kills_and_a_second_writer_change_no_bit(tmp_path):
    folder, before = tmp_path / "killed", 0
    for kill in range(12):
        process = FORK.Process(target=everything, args=(folder,))
        process.start()
        wait_until(
            lambda process=process, before=before: not process.is_alive() or count(folder) > before,
            timeout_s=60.0,
            poll_s=0.001,
        )
        if kill == 0 and process.is_alive():
            with pytest.raises(StoreLockedError, match=f"process {process.pid}"):
                run(folder, on_progress=lambda p: pytest.fail("it computed"))
        process.kill()
        process.join()
        assert count(folder) % 2 == 0
        assert count(folder) > before or count(folder) == 4 * N
        before = count(folder)
    assert without_times(everything(folder)) == without_times(everything(tmp_path / "whole"))
    assert count(folder) == 4 * N


def test_a_reader_beside_a_writer_sees_one_moment(tmp_path, monkeypatch):
    """A row that is added between the reader's two looks is in neither of them."""
    connect = sqlite3.connect

    def traced(*args, **options):
        db = connect(*args, **options)
        db.set_trace_callback(on_statement)
        return db

    def on_statement(statement):
        if "sqlite_sequence" in statement and len(store.all()) == 1:
            store.add([record("b")])

    with TrialStore(tmp_path) as store:
        store.add([record("a")])
        monkeypatch.setattr(sqlite3, "connect", traced)
        assert len(read_trials(tmp_path)) == 1
        assert len(store.all()) == 2, "the row was added in between"
        assert len(read_trials(tmp_path)) == 2


def forge(folder, statement):
    """Edit rows and give them the digests that they would have."""
    with closing(sqlite3.connect(folder / FILE_NAME, isolation_level=None)) as db:
        db.executescript(f"DROP TRIGGER ended_trials_stay; {statement};")
        for row in db.execute(f"SELECT id, {', '.join(COLUMNS)} FROM trials").fetchall():
            values = dict(zip(COLUMNS, row[1:], strict=True))
            digest = digest_of(row[0], values)
            db.execute("UPDATE trials SET digest = ? WHERE id = ?", (digest, row[0]))


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE trials SET success = 0 WHERE id = 2", "trial 2 .* not marked as a success"),
        (
            "UPDATE trials SET success = 1 WHERE id = 3",
            "trial 3 .* with the score 0.4",
        ),
        ("UPDATE trials SET score = 0.1 WHERE id = 3", "trial 3 .* progress at the end"),
        ("UPDATE trials SET metrics = '{half' WHERE id = 1", "'metrics' of trial 1 is no JSON"),
        ("UPDATE trials SET metrics = '[1]' WHERE id = 1", r"'metrics' of trial 1 .* got '\[1\]'"),
    ],
)
def test_a_table_that_contradicts_itself_is_named_by_every_command(
    tmp_path, capsys, statement, told
):
    won = {"reason": "success", "score": 1.0}
    with TrialStore(tmp_path) as store:
        store.add([record("a", **won), record("b", **won), record("c", success=False, score=0.4)])
    forge(tmp_path, statement)
    for read in (read_trials, TrialStore):
        with pytest.raises(StoreCorruptError, match=rf"trials\.sqlite.*{told}"):
            read(tmp_path)
    for words in (
        ("compare", str(tmp_path)),
        ("report", "--results", str(tmp_path), "--out", str(tmp_path / "x.html")),
        ("evaluate", "scripted", "--worlds", "so101_reach", "--workers", "0", "--conditions", "1",
         "--out", str(tmp_path)),
    ):  # fmt: skip
        assert main([*words, "--json"]) == 2
        error = json.loads(capsys.readouterr().out)["error"]
        assert "trials.sqlite" in error
        assert "internal" not in error


def test_a_trial_that_contradicts_itself_is_not_written(tmp_path):
    judged = {"success": True, "reason": "success", "score": 0.4, "judge": "j"}
    with TrialStore(tmp_path) as store:
        store.add([dataclasses.replace(record("a"), **judged)])
        with pytest.raises(DataError, match="not marked as a success"):
            store.add([record("b", success=False, reason="success")])


def test_corrupt_metrics_in_a_table_of_version_1_name_file_and_row(tmp_path):
    from tests.eval.trials.test_old_tables import ROWS, SCHEMA

    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as db:
        db.executescript(SCHEMA)
        for i, values in enumerate(ROWS[:2]):
            broken = values | ({"metrics": "{half"} if i else {})
            marks = ", ".join("?" * len(broken))
            names = ", ".join(broken)
            db.execute(f"INSERT INTO trials ({names}) VALUES ({marks})", tuple(broken.values()))
    for read in (read_trials, TrialStore):
        with pytest.raises(StoreCorruptError, match=r"trials\.sqlite.*'metrics' of trial 2"):
            read(tmp_path)


@pytest.mark.parametrize("version", [2, 3])
def test_a_table_of_an_earlier_version_is_read_and_carried_over(tmp_path, version):
    rows = [record("a"), record("b", success=False, score=0.3)]
    with TrialStore(tmp_path) as store:
        store.add(rows)
    older = tuple(name for name in COLUMNS if name not in LACKED[version])
    drop = " ".join(f"ALTER TABLE trials DROP COLUMN {name};" for name in LACKED[version])
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as db:
        db.executescript(
            "DROP TRIGGER ended_trials_stay; DROP INDEX one_trial;"
            f" {drop} PRAGMA user_version = {version};"
        )
        for row in db.execute(f"SELECT id, {', '.join(older)} FROM trials").fetchall():
            digest = digest_of(row[0], dict(zip(older, row[1:], strict=True)))
            db.execute("UPDATE trials SET digest = ? WHERE id = ?", (digest, row[0]))
    assert read_trials(tmp_path) == tuple(rows)
    assert trial_page(tmp_path).trials == tuple(rows)
    errors = {"block/pose": (0.0005, 0.003)}
    with TrialStore(tmp_path) as store:
        store.add([record("c", libraries="mujoco 3.8.1", standard_errors=errors)])
    assert [r.libraries for r in read_trials(tmp_path)] == ["", "", "mujoco 3.8.1"]
    assert [dict(r.standard_errors) for r in read_trials(tmp_path)] == [{}, {}, errors]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ((0.001,), "two numbers of at least 0"),
        ((0.001, -0.1), "two numbers of at least 0"),
        ((float("inf"), 0.1), "not finite"),
    ],
)
def test_standard_errors_that_are_none_are_refused(tmp_path, error, said):
    with TrialStore(tmp_path) as store, pytest.raises(DataError, match=said):
        store.add([record(standard_errors={"block/pose": error})])


@pytest.mark.parametrize("column", ["achieved", "standard_errors"])
def test_values_of_signals_that_are_no_numbers_are_refused_with_their_row(tmp_path, column):
    """Whoever can compute a digest can sign anything."""
    with TrialStore(tmp_path) as store:
        store.add([record()])
    names = tuple(COLUMNS)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as db:
        db.execute("DROP TRIGGER ended_trials_stay")
        for odd in ('{"block/pose": 3}', '{"block/pose": ["far", 0.1]}', '{"block/pose": null}'):
            row = db.execute(f"SELECT {', '.join(names)} FROM trials").fetchone()
            values = {**dict(zip(names, row, strict=True)), column: odd}
            signed = (odd, digest_of(1, values))
            db.execute(f"UPDATE trials SET {column} = ?, digest = ?", signed)
            with pytest.raises(StoreCorruptError, match=f"'{column}' of trial 1 is no list of num"):
                read_trials(tmp_path)


@pytest.mark.parametrize("depth", [300, 600, 970, 5_000])
def test_values_that_are_nested_without_end_are_refused_by_file(tmp_path, depth: int) -> None:
    """Programs that write JSON nest a few levels; readers and writers of it know how many."""
    nested = "[" * depth + "]" * depth
    files = {
        "evaluation.json": f'{{"format": "robolearn evaluation", "version": 2, "suite": {nested}}}',
        "votes.jsonl": f'{{"digest": {nested}}}\n',
        "plan.yaml": f"hash: x\nformat: robolearn trial plan\nversion: 1\nplan: {nested}\n",
        "trials.jsonl": f'{{"engine": {nested}}}\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    for read in (
        lambda: read_mapping(tmp_path / "evaluation.json") and read_evaluation(tmp_path, ()),
        lambda: read_votes(tmp_path),
        lambda: read_locked(tmp_path),
        lambda: lines_of(tmp_path / "trials.jsonl"),
    ):
        with pytest.raises(RobolearnError):
            read()
    if depth > 1_000:
        with pytest.raises(StoreCorruptError, match="no JSON mapping"):
            mapping_of(f'{{"a": {nested}}}', "metrics", 1, tmp_path)
