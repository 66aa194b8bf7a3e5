"""``robolearn trial`` with two tiny policies on the emulated arm: planned, run, resumed, told."""

import json

import pytest

from eval.blinded.plan import read_locked
from eval.trials.table import read_trials
from robolearn.cli.main import main as robolearn
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.cell import opened
from robolearn.operations.deploy import policy as deploy_policy
from tests.mocks import BuildWalk
from tests.robolearn.operations.trial.files import PLAN, RUNS, write_files


@pytest.fixture
def files(tmp_path, monkeypatch):
    write_files(tmp_path, 27)
    monkeypatch.setattr(deploy_policy, "policy_builder", lambda *_, **__: BuildWalk())
    monkeypatch.setattr(deploy_policy, "policy_hash", lambda run: run.name)
    monkeypatch.setattr(deploy_policy, "run_provenance", lambda run: {})
    monkeypatch.setattr(opened, "take_real_time", lambda *_, **__: False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_trials_are_planned_run_resumed_and_unblinded(files, capsys):
    more = ("--start-lab", "--max-steps", "4", "--yes", "--operator", "me", "--at-most", "1")
    assert robolearn(["trial", *PLAN, *more]) == 0
    assert "1 left" in capsys.readouterr().out
    assert robolearn(["trial", "--out", "out", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "all done" in said
    assert not any(name in said for name in RUNS)
    locked, rows = read_locked(files / "out"), read_trials(files / "out" / "blind")
    assert [(r.slot, r.alias, r.policy) for r in rows] == [
        (s.number, s.alias, s.alias) for s in locked.plan.slots
    ]
    assert {(r.plan, r.kind, r.status) for r in rows} == {(locked.hash, "lab", "finished")}
    assert all(set(r.achieved) == {"tool/xy_table", "block/pose"} for r in rows)
    meta = EpisodeStore.open(files / "out" / "store").meta(rows[0].episode)
    assert meta.provenance["trial"] == {"plan": locked.hash, "slot": 1, "row": 1}
    assert (meta.agent, meta.provenance["policy"]) == (rows[0].alias, rows[0].alias)
    assert robolearn(["trial", "report", "out", "--unblind", "--json"]) == 0
    names = json.loads(capsys.readouterr().out)["policies"]
    assert [names[r.alias] for r in rows] == [r.policy for r in read_trials(files / "out")]
    assert robolearn(["compare", "out"]) == 0
    assert "planned (plan" in capsys.readouterr().out
