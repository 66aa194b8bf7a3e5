"""Suites half of whose starts a run was trained on: what is marked, what the report makes of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from eval.evaluation import PolicyIdentity, inferred
from eval.generalisation import generalisation
from eval.statistics.nested import generalisation_gap
from eval.trials.suites import ConditionConfig, SuiteConfig, make_suite, suite_yaml
from eval.trials.unseen import seen_and_unseen
from robolearn.cli.main import main
from robolearn.config import load_config
from robolearn.data.episode import EpisodeStart
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.collect import CollectConfig, collect
from robolearn.operations.stores.collect_options import CollectOptions
from robolearn.operations.suites import draw_suite
from robolearn.operations.train import load_experiment, train
from robolearn.training.run_directory import load_run, seal_run, unseal_run, write_json
from robolearn.training.trained_starts import starts_entry, starts_hash, starts_of, worlds_seen
from robolearn.types import Condition
from tests.eval.test_compare import trials

POSE = "cube/pose"


def start(x: float, world: str = "w", seed: int = 0) -> EpisodeStart:
    return EpisodeStart(world, seed, {POSE: (x, 0.0)})


def draw(i: int) -> Condition:
    return Condition(f"lift-{i:04d}", 100 + i, {POSE: (float(i), 0.0)})


def possible(poses) -> str:
    return "off the table" if poses[POSE][0] < 0 else ""


def test_seen_are_starts_of_all_runs_and_unseen_those_of_none():
    trained = {
        "a": [start(1.0, seed=7), start(2.0), start(3.0000001), start(-1.0)],
        "b": [start(3.0), start(1.0), start(-1.0), start(4.0)],
    }
    found = seen_and_unseen(draw, possible, 6, 0, "w", trained)
    by_mark = {mark: [c for c in found if c.seen is mark] for mark in (True, False)}
    assert {c.poses[POSE][0] for c in by_mark[True]} == {1.0, 3.0}
    assert [c.poses[POSE][0] for c in by_mark[False]] == [0.0, 5.0]
    # By turns, so that whoever takes the first so many has both; a seen start keeps its seed.
    assert [c.seen for c in found] == [True, False, True, False]
    assert {c.seed for c in by_mark[True]} == {7, 0}
    assert len({c.id for c in found}) == len(found)
    assert seen_and_unseen(draw, possible, 6, 0, "w", trained) == found


def test_more_seen_starts_than_needed_are_chosen_by_the_seed():
    trained = {"a": [start(float(x)) for x in range(100, 140)]}
    drawn = [seen_and_unseen(draw, possible, 10, seed, "w", trained) for seed in (0, 0, 1)]
    assert [sum(c.seen is True for c in found) for found in drawn] == [5, 5, 5]
    assert drawn[0] == drawn[1] != drawn[2]


def test_starts_that_only_a_seed_names_are_those_of_their_world():
    def seeds(i: int) -> Condition:
        return Condition(f"lift-{i}", 100 + i, {})

    mine = [EpisodeStart("robosuite/Lift", 101, {}), EpisodeStart("robosuite/Lift", 7, {})]
    found = seen_and_unseen(seeds, lambda p: "", 4, 0, "robosuite/Lift", {"a": mine})
    assert {c.seed for c in found if c.seen} == {101, 7}
    assert {c.seed for c in found if not c.seen} == {100, 102}
    for others in ([EpisodeStart("", 101, {})], [start(1.0)]):
        with pytest.raises(ConfigError, match="no start in common that 'robosuite/Lift' could"):
            seen_and_unseen(seeds, lambda p: "", 4, 0, "robosuite/Lift", {"a": others})


@pytest.mark.parametrize("trained", [{"a": [start(1.0)], "b": [start(2.0)]}, {"a": [start(-1.0)]}])
def test_runs_without_a_common_possible_start_are_refused(trained):
    with pytest.raises(ConfigError, match="no start in common"):
        seen_and_unseen(draw, possible, 4, 0, "w", trained)
    every = {"a": [start(float(i)) for i in range(4)]}
    with pytest.raises(ConfigError, match="has no start that the runs were not trained on"):
        seen_and_unseen(draw, possible, 4, 0, "w", every)


def suite_of(*marks: bool | None, trained_on=("h",)) -> SuiteConfig:
    conditions = tuple(
        ConditionConfig(f"c{i}", i, {POSE: (float(i), 0.0)}, seen=mark)
        for i, mark in enumerate(marks)
    )
    return SuiteConfig("s", "lift", 5, 1, "w", 1, "p", conditions, trained_on=trained_on)


def test_marks_are_in_the_file_and_in_its_hash(tmp_path):
    config = suite_of(True, False, None)
    path = tmp_path / "s.yaml"
    path.write_text(suite_yaml(config))
    assert load_config(SuiteConfig, path) == config
    suite = make_suite(config)
    assert suite.seen == {"c0": True, "c1": False}
    hashes = {make_suite(suite_of(*marks)).hash for marks in ((True, False), (False, True))}
    assert len(hashes) == 2
    # A suite without marks has the hash that it had before there were any.
    plain = suite_of(None, None, trained_on=())
    assert "seen" not in suite_yaml(plain)
    assert make_suite(plain).hash == "91ef924edcd8e68b"
    for bad in (lambda: suite_of(True, trained_on=()), lambda: suite_of(None)):
        with pytest.raises(ConfigError, match="marked 'seen' together with"):
            bad()


def test_the_gap_is_that_of_the_starts_and_only_for_whoever_was_trained_on_them():
    rng = np.random.default_rng(0)
    made = {p: trials(p, rng.random(8) < 0.5, rng.random(8), "w") for p in ("a", "b", "c")}
    cells = {("w", p): found for p, found in made.items()}
    asked = dataclasses.replace(
        inferred([r for found in made.values() for r in found]),
        policies=(
            PolicyIdentity("a", "h", trained_on="mine"),
            PolicyIdentity("b", "h", trained_on="other"),
            PolicyIdentity("c", "h"),
        ),
        seen={f"c{i}": i % 2 == 0 for i in range(6)},
        trained_on=("mine",),
    )
    (found,), without = generalisation(asked, cells)
    assert (found.policy, found.world) == ("a", "w")
    scores = [r.score for r in made["a"][:6]]
    assert found.score == generalisation_gap(
        [[s] for s in scores[::2]], [[s] for s in scores[1::2]]
    )
    assert (found.success.seen.n, found.success.unseen.n) == (3, 3)
    assert [w.partition(": ")[2] for w in without] == [
        "it was trained on other starts than the suite was drawn for",
        "what it was trained on is not known",
    ]
    one_kind = dataclasses.replace(asked, seen={"c0": True, "c1": True})
    assert generalisation(one_kind, cells)[0] == ()
    unmarked = dataclasses.replace(asked, seen={}, trained_on=())
    assert generalisation(unmarked, cells) == ((), ())


def test_variants_that_were_trained_in_are_told_from_others():
    """Each variant counts once, however many trials it has; two of each kind at least."""
    rng = np.random.default_rng(0)
    worlds = {f"w~mass={k}": k < 3 for k in range(1, 6)}
    cells = {
        (name, "a"): trials("a", rng.random(8) < 0.5, rng.random(8), name)
        for name in (*worlds, "w~say=short", "v~mass=1")
    }
    everything = [r for found in cells.values() for r in found]
    policy = PolicyIdentity("a", "h", worlds_seen={**worlds, "v~mass=1": True})
    asked = dataclasses.replace(inferred(everything), policies=(policy,))
    ((found,), without) = generalisation(asked, cells)
    assert (found.policy, found.world, found.over, without) == ("a", "w", "variants", ())
    scores = {name: [r.score for r in cells[name, "a"]] for name in worlds}
    seen, unseen = ([s for w, s in scores.items() if worlds[w] is kind] for kind in (True, False))
    assert found.score == generalisation_gap(seen, unseen)
    assert (found.score.seen.n, found.score.unseen.n) == (2, 3)
    one = PolicyIdentity("a", "h", worlds_seen={w: w == "w~mass=1" for w in worlds})
    assert generalisation(dataclasses.replace(asked, policies=(one,)), cells) == ((), ())


def test_which_worlds_a_run_was_trained_in_follows_from_their_scenes():
    starts = [start(1.0, "w~mass=1"), start(2.0, "w~mass=2")]
    made = [dataclasses.replace(s, scene=f"scene-{s.world}") for s in starts]
    provenance = starts_entry(("a", "b"), made, (), None)
    worlds = {w: f"scene-{w}" for w in ("w~mass=1", "w~mass=3")} | {"w~mass=2": "edited since"}
    assert worlds_seen(provenance, worlds) == {"w~mass=1": True, "w~mass=3": False}
    # Recordings of which one does not say where it was made.
    unknown = starts_entry(("a", "b"), [made[0], starts[1]], (), None)
    assert worlds_seen(unknown, worlds) == worlds_seen({}, worlds) == {}


def test_a_run_says_what_it_and_the_run_that_it_builds_on_were_trained_on():
    ids, starts = ("e0", "e1", "e2"), [start(float(i)) for i in range(3)]
    mine = starts_entry(ids, starts, ("e1",), None)
    assert starts_of(mine, "r") == (starts[0], starts[2])
    both = starts_entry(ids[:1], starts[:1], (), mine)
    assert starts_of(both, "r") == (starts[0], starts[2], starts[0])
    assert starts_hash(mine) != starts_hash(both)
    unknown = starts_entry(ids, starts, (), {"episodes": 3})
    assert unknown == {}
    assert starts_hash(unknown) == ""
    with pytest.raises(DataError, match="does not say which starts it was trained on"):
        starts_of(unknown, "r")


def test_from_recordings_to_the_table_of_the_report(tmp_path, capsys):
    world = "so101_reach"
    short = CollectConfig(world, max_steps=8, seed=3)
    recorded = collect(short, tmp_path / "store", CollectOptions(agent="scripted", episodes=4))
    settings = {"fit.steps": 2, "fit.warmup": 1, "fit.log_every": 1}
    experiment = load_experiment(Path("configs/train/so101_reach_bc.yaml"), settings)
    run = train(experiment, tmp_path / "bc", recorded.store).run_dir
    provenance = load_run(run).provenance
    store = EpisodeStore.open(recorded.store)
    all_starts = {i: EpisodeStart.of(store.meta(i)) for i in store.ids()}
    held_out = set(provenance["held_out"])
    assert set(map(repr, starts_of(provenance, "r"))) == {
        repr(s) for i, s in all_starts.items() if i not in held_out
    }
    assert {s.world for s in all_starts.values()} == {world}
    assert all(s.scene for s in all_starts.values())

    file = tmp_path / "suite.yaml"
    asked = ("suite", "draw", world, "--n", "4", "--out", str(file), "--unseen", str(run), "--json")
    assert main([*asked]) == 0
    assert json.loads(capsys.readouterr().out)["seen"] == 2
    out = tmp_path / "r"
    few = ("--workers", "0", "--videos", "0", "--out", str(out))
    assert main(["evaluate", str(run), "scripted", "--suite", str(file), *few]) == 0
    said = capsys.readouterr().out
    assert f"bc in {world}, success: seen " in said
    assert "starts 2 + 2" in said
    assert "which starts 'scripted' has seen cannot be said" in said
    page = tmp_path / "page.html"
    assert main(["report", "--results", str(out), "--out", str(page)]) == 0
    for text in (page.read_text(), page.with_suffix(".md").read_text()):
        assert "Where training has not been" in text
    document = json.loads(page.with_suffix(".json").read_text())["evaluation"]
    (gap,) = document["generalisation"]
    assert (gap["policy"], gap["over"], gap["score"]["gap"]["n"]) == ("bc", "starts", 4)
    seen = {p["name"]: p["worlds_seen"] for p in document["policies"]}
    assert seen == {"bc": {world: True}, "scripted": {}}

    # A run that does not say it is refused.
    unseal_run(run)
    write_json(run / "provenance.json", {k: v for k, v in provenance.items() if k != "starts"})
    seal_run(run)
    with pytest.raises(DataError, match="does not say which starts it was trained on"):
        draw_suite(world, tmp_path / "other.yaml", unseen=[run])
    assert not (tmp_path / "other.yaml").exists()
