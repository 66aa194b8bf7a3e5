"""Beside the agreement of rates: which change hurts, which simulator is closer, whole motions."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from eval.trust.closer import closer
from eval.trust.endings import endings
from eval.trust.pairing import PairedTask, paired_tasks
from eval.trust.trajectories import Replay, trajectories
from eval.trust.variants import variants
from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.cli.main import main
from robolearn.errors import DataError
from robolearn.types import TrialRecord
from tests.eval.report_folder import trial
from tests.eval.trust.test_pairing import folder

STARTS = 24
LEVELS = np.linspace(0.1, 0.9, 6)


def world(name: str, kind: str, levels=LEVELS, seed: int = 0, **changes) -> list[TrialRecord]:
    """Policies succeed at ``levels``; a start is as hard for all."""
    hard = np.random.default_rng(5).permutation(STARTS) / STARTS
    own = np.random.default_rng(seed).normal(0.0, 0.06, (len(levels), STARTS))
    return [
        trial(
            f"p{k}",
            name,
            i,
            float(good),
            bool(good),
            kind=kind,
            episode=f"{name} {k} {i}" if kind == "robot" else "",
            **changes,
        )
        for k, level in enumerate(levels)
        for i in range(STARTS)
        for good in (level > hard[i] + own[k, i],)
    ]


def paired(real: list[TrialRecord], sim: list[TrialRecord]) -> PairedTask:
    (task,) = paired_tasks(real, sim)
    return task


def test_which_change_hurts() -> None:
    real = {
        "": world("cell", "robot"),
        "mass=1": world("cell~mass=1", "robot", LEVELS - 0.4, seed=1),
        "light=1": world("cell~light=1", "robot", LEVELS, seed=2),
        "only here": world("cell~x=1", "robot"),
    }
    sim = {
        "": world("scene", "sim", seed=3),
        "mass=1": world("scene~mass=1", "sim", LEVELS - 0.3, seed=4),
        "light=1": world("scene~light=1", "sim", LEVELS, seed=5),
    }
    found = variants(paired(real[""], sim[""]), real, sim)
    assert found is not None
    assert [c.name for c in found.changes] == ["mass=1", "light=1"]
    assert (found.worst_real, found.worst_sim) == ("mass=1", "mass=1")
    assert (found.clear, found.same_way) == (1, 1)
    mass = found.changes[0]
    # Of levels 0.1 to 0.9 less 0.4, what is below 0 does not get worse.
    assert mass.real.value == pytest.approx(-np.mean(np.minimum(0.4, LEVELS)), abs=0.08)
    assert mass.real.high < 0.0
    assert found.correlation is not None
    assert found.correlation.value > 0.7
    assert found.aggregated["pearson"] == pytest.approx(1.0, abs=0.1)
    # A simulator in which the same change helps.
    wrong = {**sim, "mass=1": world("scene~mass=1", "sim", LEVELS + 0.3, seed=4)}
    other = variants(paired(real[""], wrong[""]), real, wrong)
    assert other is not None
    assert (other.clear, other.same_way, other.worst_sim) == (1, 0, "light=1")
    assert variants(paired(real[""], sim[""]), {"": real[""]}, sim) is None
    spoilt = {**sim, "mass=1": world("scene~mass=1", "sim", policy_hash="another")}
    with pytest.raises(DataError, match="another one under the change 'mass=1'"):
        variants(paired(real[""], sim[""]), real, spoilt)


def test_changes_are_compared_over_the_same_starts() -> None:
    """Easy starts that some policies were tried from in simulation alone made these better."""
    real = {
        "": world("cell", "robot"),
        "mass=1": world("cell~mass=1", "robot", LEVELS - 0.4, seed=1),
    }
    sim = {
        "": world("scene", "sim", seed=3),
        "mass=1": world("scene~mass=1", "sim", LEVELS - 0.3, seed=4),
    }
    plain = variants(paired(real[""], sim[""]), real, sim)
    assert plain is not None
    assert (plain.aggregated_worlds, plain.aggregated_starts) == (2, STARTS)

    def easy(name: str, good: bool) -> list[TrialRecord]:
        return [
            trial(f"p{k}", name, i, float(good), good, kind="sim")
            for k in range(2)
            for i in range(100, 160)
        ]

    more = {"": sim[""] + easy("scene", True), "mass=1": sim["mass=1"] + easy("scene~mass=1", True)}
    assert variants(paired(real[""], more[""]), real, more) == plain
    # Starts that one world lacks count in none.
    fewer = {**sim, "mass=1": [r for r in sim["mass=1"] if int(r.condition[-4:]) < 16]}
    less = variants(paired(real[""], fewer[""]), real, fewer)
    assert less is not None
    assert (less.aggregated_starts, less.changes[0].real.n, less.changes[0].sim.n) == (16, 16, 16)
    # A world that lacks a policy says nothing of the order.
    without = {**sim, "light=1": [r for r in world("scene~light=1", "sim") if r.policy != "p0"]}
    same = variants(paired(real[""], without[""]), real, without)
    assert same is not None
    assert (same.aggregated, same.aggregated_worlds) == (plain.aggregated, 2)
    nowhere = {**sim, "mass=1": [r for r in sim["mass=1"] if int(r.condition[-4:]) < 0]}
    assert variants(paired(real[""], nowhere[""]), real, nowhere) is None


def test_which_simulator_is_closer() -> None:
    real = world("cell", "robot")
    near, far = world("near", "sim", seed=7), world("far", "sim", 1.0 - LEVELS, seed=8)
    found = closer(paired(real, far), paired(real, near))
    assert (found.policies, found.starts) == (6, STARTS)
    order, rates = found.changes["pearson"], found.changes["mae"]
    assert order.before < -0.9 < 0.9 < order.after
    for change, better in ((order, 1.0), (rates, -1.0)):
        for span in (change.over_starts, change.over_policies):
            assert span is not None
            assert min(better * v for v in span) > 0.0
    same = closer(paired(real, near), paired(real, near))
    assert all(c.difference == 0.0 and c.over_starts == (0.0, 0.0) for c in same.changes.values())
    assert found == closer(paired(real, far), paired(real, near))
    other = world("cell", "robot", seed=9)
    with pytest.raises(DataError, match=r"the real trials of 'p.' differ"):
        closer(paired(other, far), paired(real, near))


def test_nothing_is_said_of_fewer_than_four() -> None:
    real = world("cell", "robot", LEVELS[::2])
    near = world("near", "sim", LEVELS[::2], seed=7)
    found = closer(paired(real, near), paired(real, near))
    assert found.changes["mae"].over_policies is None
    assert found.changes["mae"].over_starts is not None


def test_errors_grow() -> None:
    t_s = np.arange(0, 8.0, 0.1)
    grown = [Replay(10.0, 1e-4 * f * 2.0**t_s, 0.01 * t_s) for f in (0.5, 1.0, 2.0, 4.0)]
    found = trajectories(grown, "store", "scene")
    assert [r.after_s for r in found.rows] == [0.5, 1.0, 2.0, 5.0]
    assert found.doubles_s == pytest.approx(1.0, rel=1e-6)
    assert found.rows[1].position_mm[0] == pytest.approx(0.3)
    still = [Replay(10.0, np.full(30, 0.001), np.zeros(30))] * 3
    assert trajectories(still, "store", "scene").doubles_s is None
    assert trajectories(still[:2], "store", "scene").rows == ()


def test_how_trials_end() -> None:
    def ended(kind: str, by_start: dict[int, str]) -> list[TrialRecord]:
        return [
            trial(f"p{k}", kind, i, float(not why), not why, again, kind=kind,
                  reason=why or "success", episode=f"{k} {i} {again}" if kind == "robot" else "")
            for k in range(3)
            for i in range(STARTS)
            for again in range(2)
            for why in (by_start.get(i, ""),)
        ]  # fmt: skip

    stopped = dict.fromkeys(range(8), "safety_stop")
    late = {8: "time_limit", 9: "time_limit"}
    real, sim = ended("robot", {**stopped, **late}), ended("sim", late)
    found = endings(paired(real, sim), real, sim)
    assert found is not None
    assert [(r.reason, r.real, r.sim) for r in found.rows] == [
        ("success", pytest.approx(14 / 24), pytest.approx(22 / 24)),
        ("safety_stop", pytest.approx(8 / 24), 0.0),
        ("time_limit", pytest.approx(2 / 24), pytest.approx(2 / 24)),
    ]
    assert [r.reason for r in found.rows if r.lacking] == ["safety_stop"]
    assert (found.cells, found.elsewhere) == (72, 48)
    assert found.bias == pytest.approx(8 / 24)
    assert found.bias_elsewhere == pytest.approx(0.0)
    # The same ends on both sides lack nothing; trials that do not say are left out.
    both = ended("sim", {**stopped, **late})
    same = endings(paired(real, both), real, both)
    assert same is not None
    assert (same.bias, same.bias_elsewhere) == (0.0, None)
    silent = [dataclasses.replace(r, reason="") for r in sim]
    assert endings(paired(real, silent), real, silent) is None
    # One unlucky trial of seventy is no way to fail.
    once = ended("robot", {})
    once[0] = dataclasses.replace(once[0], success=False, score=0.0, reason="safety_stop")
    rare = endings(paired(once, sim), once, sim)
    assert rare is not None
    assert not any(r.lacking for r in rare.rows)


def test_motions_of_a_store_are_replayed_in_the_simulator(tmp_path: Path, capsys) -> None:
    store = tmp_path / "store"
    assert main(["data", "import", str(pusht_demonstrations_path()), "--out", str(store),
                 "--limit", "3"]) == 0  # fmt: skip
    real = folder(tmp_path / "real", world("cell", "robot", engine="cell"))
    sim = folder(tmp_path / "sim", world("pusht_reference", "sim", seed=3))
    capsys.readouterr()
    words = ["trust", "--real", real, "--sim", sim, "--trajectories"]
    assert main([*words, str(store), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    told = found["trajectories"]
    assert (told["world"], told["source"], told["diverged"]) == ("pusht_reference", "store", 0)
    assert {r["recordings"] for r in told["rows"]} == {3}
    first, *_, last = told["rows"]
    assert 0.0 <= first["position_mm"][0] <= last["position_mm"][0] < 100.0
    assert main([*words, str(tmp_path / "nowhere")]) == 2
    assert "no episode store" in capsys.readouterr().err


def test_the_command_shows_them(tmp_path: Path, capsys) -> None:
    changed = [("~mass=1", LEVELS - 0.4, 1)]
    real = folder(
        tmp_path / "real",
        [r for add, v, s in [("", LEVELS, 0), *changed]
         for r in world(f"cell{add}", "robot", v, s, engine="cell")],
    )  # fmt: skip
    sim = folder(
        tmp_path / "sim",
        [r for add, v, s in [("", LEVELS, 3), *changed] for r in world(f"scene{add}", "sim", v, s)],
    )
    far = folder(tmp_path / "far", world("far", "sim", 1.0 - LEVELS, seed=8))
    page, text = tmp_path / "t.html", tmp_path / "t.md"
    words = ["trust", "--real", real, "--sim", sim, "--against", far]
    assert main([*words, "--json", "--html", str(page), "--markdown", str(text)]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["variants"]["worst_sim"] == "mass=1"
    assert found["closer"]["changes"]["mae"]["before"] > found["closer"]["changes"]["mae"]["after"]
    assert found["trajectories"] is None
    assert main(words) == 0
    said = capsys.readouterr().out
    for words_ in (
        "How trials ended",
        "Does it know which change hurts?",
        "closer to reality than the other: yes",
    ):
        assert words_ in said
        assert words_.partition(":")[0].lower() in page.read_text().lower()
        assert words_ in text.read_text()
    # Names that differ are told to belong together.
    told = ["trust", "--real", real, "--sim", sim, "--sim-world", "scene"]
    assert main([*told, "--changed", "cell~mass=1=>scene", "--json"]) == 0
    capsys.readouterr()
    assert main([*told, "--changed", "cell~mass=1=>moon"]) == 2
    assert "no trials in 'moon'" in capsys.readouterr().err
    assert main([*told, "--changed", "cell"]) == 2
    assert "expected 'REAL=>SIM'" in capsys.readouterr().err
    assert main([*told, "--against-world", "far"]) == 2
    assert main([*told, "--trajectories-world", "scene"]) == 2
    assert "which is missing" in capsys.readouterr().err
    assert main(["trust", "--table", "x.csv", "--against", far]) == 2
    assert "belong to trials" in capsys.readouterr().err
