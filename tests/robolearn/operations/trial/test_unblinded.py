"""What stands by names is what was tried blinded: attacks on the table, the plan, their folder."""

import dataclasses
import shutil

import pytest

from eval.trials.table import TrialStore, read_trials
from robolearn.errors import ConfigError, DataError
from robolearn.operations.compare import compare
from robolearn.operations.trial.report import unblind
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
    for read in (lambda: trust_of_trials([tried], [sim]), lambda: compare([tried])):
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
