"""What stands by names is what was tried blinded: attacks on the table, the plan, their folder."""

import dataclasses
import json
import shutil
import sqlite3

import pytest

from eval.blinded.unblinded import UNBLINDED, require_still_blinded
from eval.report.data import load_evaluation
from eval.report.deployment import deploy_facts
from eval.trials.closing import read_closing
from eval.trials.table import TrialStore, read_trials
from robolearn.cli.main import main as robolearn
from robolearn.errors import ConfigError, DataError, StoreCorruptError
from robolearn.operations.compare import compare
from robolearn.operations.studio.documents.evaluation import evaluation_document
from robolearn.operations.studio.documents.trial_session import trial_session_document
from robolearn.operations.studio.documents.trials import clip_of, recorded, trials_document
from robolearn.operations.trial.like import real_trials
from robolearn.operations.trial.report import unblind, void_trial
from robolearn.operations.trust.trials import trust_of_trials
from tests.robolearn.operations.trial.toy import Life, Person, live, plan_toy

SWAPPED = {"slow": "fast", "fast": "slow", "middling": "middling"}


@pytest.fixture
def tried(tmp_path):
    """Four starts of three policies, blinded and then unblinded."""
    trials = plan_toy(tmp_path / "real", trials=4)
    assert live(trials, Person(), Life())
    unblind(trials.folder)
    return trials.folder


@pytest.fixture
def sim(tmp_path, tried):
    """The same policies and starts in a simulator."""
    there = {"kind": "sim", "env": "scene", "env_hash": "s", "engine": "mujoco", "started": ""}
    none = {"episode": "", "slot": None, "plan": "", "alias": "", "operator": ""}
    with TrialStore(tmp_path / "sim") as table:
        table.add([dataclasses.replace(r, **there, **none) for r in read_trials(tried)])
    return tmp_path / "sim"


def exchange(folder, rows):
    """Another table, which is sound by itself."""
    for path in folder.glob("trials.sqlite*"):
        path.unlink()
    with TrialStore(folder) as table:
        table.add(rows)


def named_otherwise(row):
    name = SWAPPED[row.policy]
    return dataclasses.replace(row, policy=name, policy_hash=name)


@pytest.mark.parametrize(
    "other",
    [
        lambda rows: rows[:9],
        lambda rows: [named_otherwise(r) for r in rows],
        lambda rows: [dataclasses.replace(rows[0], success=not rows[0].success), *rows[1:]],
    ],
    ids=["fewer", "names", "outcome"],
)
def test_a_table_that_is_not_what_was_tried_is_refused(tried, sim, other):
    exchange(tried, other(read_trials(tried)))
    reads = (
        lambda: trust_of_trials([tried], [sim]),
        lambda: compare([tried]),
        lambda: real_trials(tried),
    )
    for read in reads:
        with pytest.raises(DataError, match="not those that were tried"):
            read()
    for path in tried.glob("trials.sqlite*"):
        path.unlink()
    unblind(tried)
    assert trust_of_trials([tried], [sim]).report.tasks


@pytest.mark.parametrize("gone", ["plan.yaml", "blind"])
def test_unblinded_trials_without_what_they_are_held_against_are_refused(tried, sim, gone):
    (tried / gone).rename(tried / "away")
    with pytest.raises(DataError, match=f"not '{gone}'"):
        trust_of_trials([tried], [sim])


def test_the_locked_plan_of_blinded_trials_is_looked_at_too(tried, sim):
    path = tried / "plan.yaml"
    path.write_text(path.read_text().replace("seed: 0", "seed: 1"))
    with pytest.raises(ConfigError, match="was edited since it was written"):
        trust_of_trials([tried], [sim])


def test_a_key_that_is_gone_is_said(tried, sim):
    (tried / "key.sealed").unlink()
    with pytest.raises(ConfigError, match=r"key\.sealed"):
        trust_of_trials([tried], [sim])


def test_rows_of_blinded_trials_without_their_plan_are_noted(tmp_path, tried, sim):
    alone = tmp_path / "alone"
    shutil.copytree(tried / "plans", alone / "plans")
    for path in tried.glob("trials.sqlite*"):
        shutil.copy(path, alone)
    (note,) = trust_of_trials([alone], [sim]).report.notes
    assert "12 trials of blinded ones without their plan.yaml" in note
    assert not trust_of_trials([tried], [sim]).report.notes


@pytest.fixture
def early(tmp_path):
    """Six of twelve trials, unblinded because somebody was curious."""
    trials = plan_toy(tmp_path / "early", trials=4)
    assert live(trials, Person(), Life(), at_most=6)
    unblind(trials.folder, reason="curious")
    return trials


def forget(folder, *names):
    for name in names:
        for path in folder.glob(f"{name}*"):
            path.unlink()


def test_unblinding_is_not_undone_by_deleting_what_it_wrote(early):
    """The session went on, and its comparison passed for planned."""
    folder = early.folder
    forget(folder, UNBLINDED, "trials.sqlite", "trials.csv")
    rows = read_trials(folder / "blind")
    with pytest.raises(ConfigError, match=r"were unblinded at .* cannot go on"):
        require_still_blinded(folder, rows, "go on")
    with pytest.raises(ConfigError, match="no trial is added or voided any more"):
        live(early, Person(), Life())
    with pytest.raises(ConfigError, match="cannot take one out"):
        void_trial(folder, 1, "bumped")
    assert read_trials(folder / "blind") == rows
    # Whoever asks again is told the same: it was early, and why.
    assert not unblind(folder, reason="all done").complete
    said = json.loads((folder / UNBLINDED).read_text())
    assert (said["reason"], said["complete"]) == ("curious", False)


def test_names_that_stand_in_the_folder_end_the_blinding(tmp_path, tried):
    """Of a release that did not close the table."""
    trials = plan_toy(tmp_path / "older", trials=2)
    assert live(trials, Person(), Life(), at_most=1)
    rows = read_trials(trials.folder / "blind")
    shutil.copy(tried / "trials.sqlite", trials.folder)
    with pytest.raises(ConfigError, match="a table of trials with the policies' names"):
        require_still_blinded(trials.folder, rows, "go on")
    forget(trials.folder, "trials.sqlite")
    require_still_blinded(trials.folder, rows, "go on")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DROP TABLE closing", "was taken away"),
        ("PRAGMA application_id = 0", "was taken away"),
        ("DROP TRIGGER closing_is_fixed; UPDATE closing SET said = '{}'", "are not as they were"),
    ],
)
def test_what_closed_the_blinded_table_is_missed(early, statement, said):
    with sqlite3.connect(early.folder / "blind" / "trials.sqlite") as db:
        db.executescript(statement)
    db.close()
    for read in (lambda: compare([early.folder]), lambda: unblind(early.folder)):
        with pytest.raises(StoreCorruptError, match=said):
            read()


@pytest.mark.parametrize(("name", "value"), [("reason", ""), ("complete", True)])
def test_what_unblinding_says_is_held_against_what_closed_the_table(early, name, value):
    path = early.folder / UNBLINDED
    before = path.read_text()
    path.write_text(json.dumps({**json.loads(before), name: value}))
    for read in (lambda: compare([early.folder]), lambda: unblind(early.folder)):
        with pytest.raises(StoreCorruptError, match=f"{name}: .* it was edited"):
            read()
    path.unlink()
    with pytest.raises(DataError, match="is gone"):
        compare([early.folder])
    unblind(early.folder)
    assert path.read_text() == before
    assert compare([early.folder]).standings


@pytest.mark.parametrize(("key", "value"), [("policy", "other"), ("did_not_count", 7), ("a", 1)])
def test_the_names_that_unblinding_told_are_held_against_the_key(tried, key, value):
    """They are what a person reads, and nothing looked at them."""
    path = tried / UNBLINDED
    said = json.loads(path.read_text())
    said["policies"]["amber"][key] = value
    path.write_text(json.dumps(said))
    for read in (lambda: compare([tried]), lambda: unblind(tried), lambda: load_evaluation(tried)):
        with pytest.raises(StoreCorruptError, match=f"policies: .*'{key}': '?{value}.* was edited"):
            read()
    shown = trial_session_document(tried)
    assert (shown.names, shown.rates) == ({}, ())
    assert any("it was edited" in p.words for p in shown.problems)
    path.unlink()
    unblind(tried)
    assert len(trial_session_document(tried).names) == 3


@pytest.mark.parametrize(
    "other", [lambda rows: rows[:9], lambda rows: [named_otherwise(r) for r in rows]]
)
def test_pages_show_nothing_of_a_table_that_is_not_what_was_tried(tried, other):
    """The report and the studio read it as it stood."""
    assert len(trial_session_document(tried).rates) == 3
    exchange(tried, other(read_trials(tried)))
    for document in (trial_session_document(tried), evaluation_document(tried)):
        assert not document.rates
        assert any("not those that were tried" in p.words for p in document.problems)
    page = trials_document(tried)
    assert not page.trials
    assert "not those that were tried" in page.problems[0].words
    for read in (
        lambda: load_evaluation(tried),
        lambda: deploy_facts(tried),
        lambda: recorded(tried, 1),
        lambda: clip_of(tried, 1),
    ):
        with pytest.raises(DataError, match="not those that were tried"):
            read()


def test_an_unblinding_that_died_after_it_closed_the_table_goes_on(early):
    whole = {p.name: p.read_bytes() for p in early.folder.glob("*.json")}
    forget(early.folder, UNBLINDED, "trials.sqlite", "trials.csv")
    shutil.rmtree(early.folder / "plans")
    unblind(early.folder)
    assert {p.name: p.read_bytes() for p in early.folder.glob("*.json")} == whole
    assert compare([early.folder]).standings


def test_an_unblinding_that_is_refused_tells_nothing(tmp_path, tried):
    """It wrote the names before it saw that the table in its folder is another one."""
    trials = plan_toy(tmp_path / "other", trials=2)
    assert live(trials, Person(), Life(), at_most=2)
    shutil.copy(tried / "trials.sqlite", trials.folder)
    with pytest.raises(DataError, match=r"move trials\.sqlite away"):
        unblind(trials.folder, reason="curious")
    assert not (trials.folder / UNBLINDED).is_file()
    rows = read_trials(trials.folder / "blind")
    assert read_closing(trials.folder / "blind", rows) is None
    forget(trials.folder, "trials.sqlite")
    assert live(trials, Person(), Life())


@pytest.mark.parametrize("command", ["evaluate", "deploy"])
def test_other_results_do_not_go_where_blinded_trials_are(tried, capsys, command):
    given = {
        "evaluate": ["scripted", "--suite", "configs/eval/pusht.yaml"],
        "deploy": ["scripted", "--robot", "configs/hardware/lab_ur5e.yaml"],
    }[command]
    assert robolearn([command, *given, "--out", str(tried)]) == 2
    assert "is blinded trials; choose another folder" in capsys.readouterr().err


def test_a_folder_without_a_plan_is_left_as_it_is(tmp_path):
    for act in (unblind, lambda folder: void_trial(folder, 1, "bumped")):
        with pytest.raises(DataError, match="no blinded trials in"):
            act(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()
