"""An evaluation as a function: what it tells while it runs, what it returns, who else may write."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from eval.trials.table import TrialStore, read_trials
from robolearn.agents.execution import Execution
from robolearn.errors import ConfigError, StoreLockedError
from robolearn.operations.builders import executed_as
from robolearn.operations.evaluate import EvaluateListener, EvaluateOptions, evaluate
from robolearn.operations.suites import aside, open_suite

FEW = EvaluateOptions(
    worlds=("so101_reach",), suite=None, conditions=2, workers=0, videos=0, repeat=False
)


@pytest.fixture
def suite(tmp_path):
    from robolearn.cli.main import main

    path = tmp_path / "reach.yaml"
    more = ("--n", "3", "--seed", "1", "--json")
    assert main(["suite", "draw", "so101_reach", "--out", str(path), *more]) == 0
    return path


def test_it_tells_what_it_does_and_returns_what_was_found(tmp_path, suite, capsys):
    options = dataclasses.replace(FEW, suite=suite)
    capsys.readouterr()
    begun, chunks = [], []
    listener = EvaluateListener(on_begin=begun.append, on_trials=chunks.append)
    for there in (0, 2):
        result = evaluate(("scripted",), tmp_path / "r", options, listener=listener)
        assert (begun[-1].there, begun[-1].wanted, begun[-1].unplaced) == (there, 2, False)
    assert sum(p.added for p in chunks) == 2
    assert result.trials == read_trials(tmp_path / "r")
    assert [(r.policy, r.world, r.n) for r in result.data.results] == [
        ("scripted", "so101_reach", 2)
    ]
    assert result.others == ()
    assert {r.kind for r in result.trials} == {"sim"}
    # Nothing is printed: that is for commands.
    assert capsys.readouterr().out == ""
    more = evaluate(("scripted:0.5",), tmp_path / "r", options)
    assert more.others == ("scripted",)
    with TrialStore(tmp_path / "r"), pytest.raises(StoreLockedError):
        evaluate(("scripted:0.7",), tmp_path / "r", options, listener=listener)
    # It was refused before it computed.
    assert sum(p.added for p in chunks) == 2


def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path):
    for runs, options, execution, words in (
        ((), FEW, Execution(), "at least one run"),
        (("scripted",), EvaluateOptions(batch=0), Execution(), "batch must be at least 1"),
        (("scripted",), FEW, Execution(execute=0), "execute must be at least 1"),
        (("scripted",), EvaluateOptions(guidance="hard"), Execution(), "real-time chunking"),
    ):
        with pytest.raises(ConfigError, match=words):
            evaluate(runs, tmp_path / "r", options, execution)
    assert not (tmp_path / "r").exists()


def test_a_policy_is_named_by_all_that_changes_its_trials():
    how = Execution(lead_ticks=1, realtime_chunking=True, goal_s=2.0)
    assert executed_as("p", "h", execution=how, guidance="hard", delay_ticks=2) == (
        "p+lead_ticks=1,realtime=True,goal_s=2.0,guidance=hard,delay=2",
        "h+lead_ticks=1,realtime=True,goal_s=2.0,guidance=hard,delay=2",
    )
    assert executed_as("p", "h", execution=Execution(), runtime="onnx") == ("p", "h-onnx")
    assert executed_as("p", "h", execution=Execution()) == ("p", "h")
    suite = open_suite(Path("configs/eval/pusht.yaml")).config
    assert aside(suite, suite.max_steps, suite.instruction) == ""
    told = aside(suite, 30, "push it away")
    assert told.startswith("max_steps=30,instruction=")
    assert told != aside(suite, 30, "push it here")
    assert executed_as("p", "h", execution=Execution(), aside=told) == (f"p+{told}", f"h+{told}")
