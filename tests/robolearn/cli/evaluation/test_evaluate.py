"""``robolearn evaluate`` end to end on an almost untrained policy and a few short episodes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.trials.table import read_trials
from robolearn.cli.evaluation import evaluate as command
from robolearn.cli.main import main
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import ConfigError
from robolearn.operations.deploy.policy import open_policy
from robolearn.operations.report import best_run
from tests.learning_mocks import BLOCK, TOOL
from tests.two_runs import two_runs

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    data = DataConfig(observations=(TOOL, BLOCK))
    return two_runs(tmp_path_factory.mktemp("evaluate"), data, 12)


def arguments(folder: Path, out: str, *more: str) -> list[str]:
    return [
        *(str(folder / "one"), str(folder / "two"), "--suite", str(folder / "short.yaml")),
        *("--out", str(folder / out), "--workers", "0", "--batch", "3", *more),
    ]


def test_paired_results_in_two_worlds(setting, capsys):
    worlds = (
        "--worlds",
        "gym_pusht",
        "pusht_reference",
        "--conditions",
        "4",
        "--videos",
        "2",
        "--repeat",
    )
    assert command.main(arguments(setting, "r", *worlds, "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads((setting / "r" / "summary.json").read_text())
    assert document["suite"].startswith("short@")
    assert "maximum over the episode" in document["protocol"]
    rows = {(r["policy"], r["world"]): r for r in document["results"]}
    assert {k: r["n"] for k, r in rows.items()} == {
        (p, w): 4 for p in ("one", "two") for w in ("gym_pusht", "pusht_reference")
    }
    clips = document["clips"]
    assert len(clips) == 8
    assert all((setting / "r" / c["file"]).stat().st_size > 500 for c in clips)
    compared = document["comparison"]["worlds"]
    assert [c["world"] for c in compared] == ["gym_pusht", "pusht_reference"]
    assert [(e["a"], e["b"]) for c in compared for e in c["effects"]] == [("one", "two")] * 2
    assert [a["kind"] for a in document["agreement"]] == ["moved", "world", "noise"] * 2
    assert best_run(setting / "r", "gym_pusht") in {setting / "one", setting / "two"}
    records = read_trials(setting / "r")
    # Four conditions in two worlds and two times two repeats in the source world, twice.
    assert len(records) == 2 * (4 + 4 + 2 + 2)
    assert {r.steps for r in records} == {12}
    assert (setting / "r" / "trials.csv").read_text().count("\n") == 25

    # The same again: nothing is run twice, the summary is the same.
    assert command.main(arguments(setting, "r", *worlds)) == 0
    output = capsys.readouterr().out
    assert "24 trials, 8 of them moved and repeated starts (--repeat)" in output
    assert "24 of 24 trials are there already" in output
    assert "rule: McNemar's exact test of success, Holm over all pairs" in output
    assert "two - one in gym_pusht: success" in output
    again = json.loads((setting / "r" / "summary.json").read_text())
    assert again["results"] == document["results"]
    assert again["agreement"] == document["agreement"]

    # One of them alone: whose trials are not in the summary is told.
    alone = arguments(setting, "r", *worlds)
    alone.remove(str(setting / "two"))
    assert command.main(alone) == 0
    assert "there are trials of two, too" in capsys.readouterr().out


WRAPPERS = {
    "": (),
    "+ensemble=0.01": ("--ensemble", "0.01"),
    "+lead_ticks=2,realtime=True,guidance=hard,delay=2": (
        *("--realtime-chunking", "--lead-ticks", "2", "--delay-ticks", "2", "--guidance", "hard"),
    ),
    "+realtime=True,guidance=identity": ("--realtime-chunking", "--guidance", "identity"),
}


def test_how_chunks_are_executed_is_part_of_a_trial(setting, capsys, monkeypatch):
    """Every choice has a name and a hash of its own, and moves the tool otherwise."""
    from sim.adapters.pusht.gym_pusht import GymPushTEnv

    sent: dict[str, list[float]] = {}
    apply = GymPushTEnv.apply

    def watched(self, command):
        sent[choice].append(float(command.action[TOOL][0]))
        apply(self, command)

    monkeypatch.setattr(GymPushTEnv, "apply", watched)
    more = ("--conditions", "1", "--videos", "0", "--no-repeat", "--worlds", "gym_pusht", "--json")
    hashes = set()
    for choice, options in WRAPPERS.items():
        sent[choice] = []
        words = arguments(setting, "wrapped", *more, *options)
        words.remove(str(setting / "two"))
        assert command.main(words) == 0
        document = json.loads(capsys.readouterr().out)
        assert [r["policy"] for r in document["results"]] == [f"one{choice}"]
        hashes.add(document["policies"][0]["hash"])
        assert len(sent[choice]) == 12
    assert len(hashes) == len({tuple(v) for v in sent.values()}) == len(WRAPPERS)
    assert len(read_trials(setting / "wrapped")) == len(WRAPPERS)


def test_a_way_to_continue_needs_something_to_continue(setting, capsys):
    for options, words in (
        (("--guidance", "hard"), "goes with real-time chunking"),
        (("--guidance", "hard", "--realtime-chunking", "--runtime", "onnx"), "the runtime torch"),
        (("--guidance", "trained", "--realtime-chunking"), "takes a run with algorithm.max_prefix"),
    ):
        out = "refused"
        assert main(["evaluate", *arguments(setting, out, *options)]) == 2
        assert words in capsys.readouterr().err
        assert not (setting / out).exists()
    with pytest.raises(ConfigError, match="tell the server"):
        open_policy(None, "ws://127.0.0.1:1", guidance="hard")
    cell = str(ROOT / "configs" / "hardware" / "lab_ur5e.yaml")
    told = ["deploy", str(setting / "one"), "--robot", cell, "--out", str(setting / "d"), "--yes"]
    assert main([*told, "--guidance", "hard", "--no-realtime-chunking"]) == 2
    assert "goes with real-time chunking" in capsys.readouterr().err
    assert not (setting / "d").exists()


def test_bad_input_is_one_line(setting, capsys):
    assert main(["evaluate", *arguments(setting, "x", "--worlds", "gym_push")]) == 2
    assert "Did you mean 'gym_pusht'?" in capsys.readouterr().err
    assert main(["evaluate", str(setting / "on"), "--out", str(setting / "x")]) == 2
    assert "no run directory" in capsys.readouterr().err
    assert main(["evaluate", *arguments(setting, "x", "--suite", "none.yaml")]) == 2
    assert "none.yaml" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="at least one run"):
        command.main([])
    with pytest.raises(ConfigError, match="at least 1"):
        command.main(arguments(setting, "x", "--conditions", "0"))
