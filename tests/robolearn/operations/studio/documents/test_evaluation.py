"""Evaluations, trials, deployments and comparisons, whole, half written, damaged and huge."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from eval.statistics.intervals import wilson
from eval.trials.rows import FILE_NAME
from eval.trials.table import TrialStore
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.operations.studio.documents import evaluation as evaluation_module
from robolearn.operations.studio.documents.comparison import comparison_document
from robolearn.operations.studio.documents.deployment import deployment_document
from robolearn.operations.studio.documents.evaluation import evaluation_document
from robolearn.operations.studio.documents.trial_session import trial_session_document
from robolearn.operations.studio.documents.trials import clip_of, recorded, trials_document
from robolearn.operations.studio.documents.trust import trust_document
from robolearn.operations.studio.encoding import encode as encoded
from robolearn.operations.trial.report import unblind
from tests.episodes import small_episode
from tests.eval.report_folder import results_folder, trial
from tests.robolearn.operations.trial.toy import Life, Person, live, plan_toy


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return results_folder(tmp_path_factory.mktemp("results"))


@pytest.fixture
def results(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def plain(document):
    return json.loads(encoded(document))


def test_the_report_of_an_evaluation(results: Path) -> None:
    path = results / "evaluate"
    found = plain(evaluation_document(path, now_s=path.stat().st_mtime + 1e6))
    assert found["problems"] == []
    assert not found["live"]
    assert {r["policy"] for r in found["data"]["results"]} == {"flow", "iql"}
    assert found["data"]["comparison"]["worlds"][0]["effects"][0]["words"]
    assert "Holm" in found["rule"]
    rate = next(r for r in found["rates"] if (r["policy"], r["world"]) == ("flow", "gym_pusht"))
    assert rate["trials"] == 60
    assert rate["success"]["low"] < rate["successes"] / 60 < rate["success"]["high"]
    assert plain(comparison_document([path]))["comparison"]["worlds"]


def _tried(folder: Path, *rows) -> dict:
    with TrialStore(folder) as table:
        table.add(rows)
    found = plain(evaluation_document(folder))
    assert found["problems"] == []
    return found["data"]


def test_an_odd_moved_trial_costs_no_comparison(tmp_path: Path) -> None:
    rows = [trial(p, "w", i, 0.5, i < k) for p, k in (("a", 2), ("b", 5)) for i in range(6)]
    elsewhere = [trial(p, "other", 10 + i, 0.5, False) for p in "ab" for i in range(3)]
    found = _tried(tmp_path, *rows, *elsewhere, trial("a", "w", 40, 0.5, True, variant="moved"))
    assert [w["effects"][0]["n"] for w in found["comparison"]["worlds"]] == [6, 3]
    assert found["agreement"] == []
    words = "; ".join(found["not_agreed"])
    assert "1 of 1 trials of 'a' with a moved start" in words
    assert "pusht-0040" in words
    assert "how far other agrees with w about 'b' cannot be said" in words
    one = trial("a", "w", 3, 0.5, True, variant="moved")
    found = _tried(tmp_path, dataclasses.replace(one, seed=77))
    assert [(a["policy"], a["kind"], a["n"]) for a in found["agreement"]] == [("a", "moved", 1)]
    assert "1 of 2 trials" in found["not_agreed"][0]


def test_a_policy_without_a_common_start_leaves_the_others_their_comparison(
    tmp_path: Path,
) -> None:
    rows = [trial(p, "w", i, 0.5, i < k) for p, k in (("a", 2), ("b", 5)) for i in range(6)]
    found = _tried(tmp_path, trial("odd", "w", 30, 0.5, True), *rows)
    world = found["comparison"]["worlds"][0]
    assert [(e["a"], e["b"], e["n"]) for e in world["effects"]] == [("a", "b", 6)]
    assert "'odd' is not compared here" in world["notes"][-1]
    assert {r["policy"] for r in found["results"]} == {"a", "b", "odd"}
    apart = _tried(tmp_path / "apart", trial("a", "w", 0, 0.5, True), trial("b", "w", 1, 0.5, True))
    assert apart["comparison"]["worlds"][0]["effects"] == []
    assert "no start was tried with it and all of a" in apart["comparison"]["worlds"][0]["notes"][0]


def test_trials_come_in_pages_and_say_what_plays_them(results: Path) -> None:
    path = results / "evaluate"
    every = trials_document(path, 0, 10_000)
    assert every.total == len(every.trials) > 300
    page = trials_document(path, 100, 7)
    assert page.trials == every.trials[100:107]
    mine = trials_document(path, 0, 10_000, policy="iql", world="pusht_ur5e")
    assert mine.total == 25
    assert {t.trial.policy for t in mine.trials} == {"iql"}
    clips = [t for t in every.trials if t.plays == "clip"]
    assert clips
    assert clip_of(path, clips[0].row) == path / clips[0].clip
    without = next(t for t in every.trials if t.plays == "nothing")
    assert clip_of(path, without.row) is None
    assert clip_of(path, every.total + 5) is None
    assert trials_document(path, -5, -1).trials == every.trials[:1]
    assert trials_document(results / "deploy").trials[0].plays == "episode"


def test_a_trials_recording_is_the_one_that_it_names_when_others_were_removed(
    tmp_path: Path,
) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    with store.writer() as writer:
        names = [writer.append(small_episode(seed, 12, image=False)) for seed in range(3)]
    with TrialStore(tmp_path) as table:
        rows = [trial("p", "w", i, 0.5, False, episode=name) for i, name in enumerate(names)]
        table.add(rows)
    with store.writer() as writer:
        writer.remove((names[0],), "me")
    assert recorded(tmp_path, 3) == ("store", 2)
    with pytest.raises(DataError, match="thrown away"):
        recorded(tmp_path, 1)


@pytest.mark.parametrize("name", ["../../secret.mp4", "/etc/passwd", "..", ".", "a/b.mp4"])
def test_no_film_lies_outside_the_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.mp4").write_bytes(b"x")
    folder = tmp_path / "a" / "results"
    with TrialStore(folder) as table:
        table.add([trial("p", "w", 0, 0.5, False, video=name)])
    (folder / "videos").mkdir()
    assert clip_of(folder, 1) is None
    assert trials_document(folder).trials[0].clip == ""


@pytest.mark.parametrize("damage", ["cut", "edited", "no table", "empty", "future", "asked"])
def test_a_damaged_table_is_said_in_place(results: Path, damage: str) -> None:
    path = results / "evaluate"
    table = path / FILE_NAME
    if damage == "cut":
        table.write_bytes(table.read_bytes()[:3000])
    elif damage == "empty":
        table.write_bytes(b"")
    elif damage == "no table":
        table.unlink()
    elif damage == "asked":
        (path / "evaluation.json").write_text("{")
    else:
        with sqlite3.connect(table) as db:
            if damage == "edited":
                db.executescript("DROP TRIGGER ended_trials_stay;"
                                 "UPDATE trials SET score = 0.123 WHERE id = 3;")  # fmt: skip
            else:
                db.execute("PRAGMA user_version = 99")
        db.close()
    found = plain(evaluation_document(path))
    assert found["data"] is None
    # An empty table is no damage: nothing was tried yet.
    assert bool(found["problems"]) == (damage != "empty")
    assert plain(trials_document(path, 0, 10))["problems"] or damage in ("empty", "asked")
    if damage in ("edited", "asked"):
        assert found["rates"], "what can be counted is counted"


def test_a_folder_that_vanished(tmp_path: Path) -> None:
    for make in (evaluation_document, deployment_document, trial_session_document):
        assert "not there any more" in make(tmp_path / "gone").problems[0].words


def test_too_many_trials_are_counted_and_not_compared(results: Path, monkeypatch) -> None:
    monkeypatch.setattr(evaluation_module, "MOST_TRIALS", 50)
    found = evaluation_document(results / "evaluate")
    assert found.data is None
    assert sum(r.trials for r in found.rates) > 300
    assert "too many" in found.problems[0].words
    monkeypatch.setattr("robolearn.operations.studio.documents.comparison.MOST_TRIALS", 50)
    assert "too many" in comparison_document([results / "evaluate"]).problems[0].words


def test_a_deployment(results: Path) -> None:
    found = plain(deployment_document(results / "deploy"))
    assert found["trials"] == 2
    assert found["interventions"] == {"speed": 2, "stale_tracker": 1}
    assert {t["name"] for t in found["times"]} >= {"set-points that came late"}
    (results / "deploy" / "deploy.json").write_text('{"trials": 7')
    again = plain(deployment_document(results / "deploy"))
    assert again["trials"] == 2
    assert any("deploy.json" in p["words"] for p in again["problems"])


def test_blinded_trials_tell_nothing_before_the_end(tmp_path: Path) -> None:
    trials = plan_toy(tmp_path, trials=1)
    assert live(trials, Person(), Life(), at_most=1)
    found = plain(trial_session_document(tmp_path))
    assert found["report"]["done"] == 1
    assert found["plan"]["slots"] == 3
    assert (found["rates"], found["names"], found["problems"]) == ([], {}, [])
    for path in (tmp_path, tmp_path / "blind"):
        for document in (evaluation_document(path), trials_document(path)):
            text = encoded(document).decode()
            assert "blinded" in text or "no trials" in text
            assert '"successes"' not in text
            assert '"score"' not in text
    assert live(trials, Person(), Life())
    unblind(tmp_path)
    after = plain(trial_session_document(tmp_path))
    assert set(after["names"].values()) == {"slow", "middling", "fast"}
    assert {r["policy"] for r in after["rates"]} == {"slow", "middling", "fast"}
    assert trials_document(tmp_path).trials[0].plays == "episode"


def test_simulated_and_real_trials_side_by_side(tmp_path: Path) -> None:
    for name, kind in (("real", "robot"), ("sim", "sim")):
        rows = [
            trial(f"p{k}", name, i, 1.0 if (good := i < 3 * k + 2) else 0.3, good, kind=kind,
                  reason="success" if good else "time_limit",
                  episode=f"e{k}{i}" if kind == "robot" else "")
            for k in range(4)
            for i in range(10)
        ]  # fmt: skip
        with TrialStore(tmp_path / name) as table:
            table.add([dataclasses.replace(r, policy_hash=f"h-{r.policy}") for r in rows])
    found = plain(trust_document(tmp_path / "real", tmp_path / "sim"))
    assert found["problems"] == []
    assert found["report"]["tasks"][0]["judgement"]
    assert len(found["pairs"]) == 40
    rates = {r["policy"]: r for r in found["rates"]}
    wanted = wilson(5, 10)
    assert (rates["p1"]["real"]["low"], rates["p1"]["sim"]["high"]) == (wanted.low, wanted.high)
    assert found["pairs"][0]["real"][0]["episode"] == "e00"
    swapped = trust_document(tmp_path / "sim", tmp_path / "real")
    assert "swapped" in swapped.problems[0].words
