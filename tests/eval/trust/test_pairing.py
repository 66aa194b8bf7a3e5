"""Trials of two worlds pair up by policy and condition; what does not is refused."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from eval.preregistration import FOLDER, Preregistration, write_plan
from eval.rule import Rule
from eval.trials.table import TrialStore
from eval.trust.agreement import agreement
from eval.trust.pairing import paired_tasks, require_paired
from eval.trust.report import trust_report
from eval.trust.tables import rate_interval
from robolearn.cli.main import main
from robolearn.errors import DataError
from robolearn.types import TrialRecord
from tests.eval.report_folder import trial

NAMES = tuple(f"p{i}" for i in range(7))


def trials(
    kind: str, *, names: Sequence[str] = NAMES, conditions: int = 12, repeats: int = 1, **changes
) -> list[TrialRecord]:
    """Policies of rising quality; whether a condition is hard is the same in both worlds."""
    rng = np.random.default_rng(len(kind))
    world = {"sim": "scene", "robot": "cell"}[kind]
    found: list[TrialRecord] = []
    for k, name in enumerate(names):
        for i in range(conditions):
            for again in range(repeats):
                good = bool((k + 1) / 8 > (i % 12) / 12 + rng.normal(0, 0.05))
                record = trial(name, world, i, 0.9 if good else 0.3, good, again, kind=kind,
                               reason="success" if good else "time_limit",
                               episode=f"{name}-{i}-{again}" if kind == "robot" else "",
                               **changes)  # fmt: skip
                found.append(record)
    return found


def test_rates_and_conditions_pair_up() -> None:
    (task,) = paired_tasks(trials("robot", repeats=2), trials("sim", conditions=20))
    assert (task.table.task, task.table.k) == ("pusht", 7)
    assert (task.table.real_trials, task.table.sim_trials) == ((24, 24), (12, 12))
    assert any("56 trials of conditions that the other world lacks" in n for n in task.notes)
    assert len(task.conditions[0].only_simulated) == 8
    found = agreement(task)
    assert [a.policy for a in found] == [*NAMES, ""]
    assert found[-1].conditions == 84
    assert found[-1].correlation.value > 0.6
    assert found[-1].ceiling is not None
    assert found[-1].ceiling.value > 0.6
    (single,) = paired_tasks(trials("robot"), trials("sim"))
    assert agreement(single)[3].correlation.method.startswith("phi, ")
    assert agreement(single)[-1].ceiling is None
    (by_score,) = paired_tasks(trials("robot"), trials("sim"), by="score")
    assert by_score.table.real.max() == pytest.approx(0.9, abs=0.06)
    assert by_score.table.pairs[0].real[0].scores is not None


@pytest.mark.parametrize(
    ("real", "sim", "said"),
    [
        (trials("sim"), trials("robot"), "trials of a robot; the two sides are swapped"),
        (trials("robot"), trials("sim", suite="pusht@9"), "'pusht' in different versions"),
        (trials("robot"), trials("sim", suite="lift@9"), "of different suites"),
        (trials("robot"), trials("sim", policy_hash="other"), "two different policies are called"),
        (trials("robot"), trials("sim", names=("x",), policy_hash="h-p0"), "is called 'x' in sim"),
        (trials("robot"), trials("sim", names=("x", "y")), "no policy was tried in both worlds"),
        (trials("sim", env="scene"), trials("sim"), "both sides are trials of one world"),
        (
            trials("robot"),
            [*trials("sim"), *trials("sim", names=("z",), env_hash="v2")],
            "different versions of the world",
        ),
        (trials("robot"), [*trials("sim"), trial("p0", "other", 0, 1.0, True)], "several worlds"),
        (trials("robot", condition="elsewhere")[:1], trials("sim"), "under no condition in both"),
        (trials("robot", status="voided", note="bump"), trials("sim"), "no trials that count"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_does_not_belong_together_is_refused(real, sim, said) -> None:
    with pytest.raises(DataError, match=said):
        paired_tasks(real, sim)


def test_one_policy_under_two_names_counts_once() -> None:
    """Five policies show no reliable order; the same five under two names each passed for ten."""
    five = NAMES[:1] + NAMES[2:5] + NAMES[6:]

    def doubled(kind: str) -> list[TrialRecord]:
        found = trials(kind, names=five)
        return found + [dataclasses.replace(r, policy=f"copy of {r.policy}") for r in found]

    with pytest.raises(DataError, match="'p0' and 'copy of p0' are one policy"):
        paired_tasks(doubled("robot"), doubled("sim"))
    with pytest.raises(DataError, match=r"is called 'p0' in simulation .*; give it one name"):
        paired_tasks(doubled("robot"), trials("sim", names=five))


def of_starts_alone(kind: str, rng: np.random.Generator, first: int) -> list[TrialRecord]:
    """Of eight policies that are all the same: success depends on the start. ``p3`` was tried under
    the conditions from ``3 * first`` on, and so on.
    """
    world = {"sim": "scene", "robot": "cell"}[kind]
    return [
        trial(f"p{k}", world, i, float(good), good, kind=kind, episode=f"{k}-{i}" * (kind != "sim"))
        for k in range(8)
        for i in range(k * first, k * first + 40)
        if (good := bool(rng.random() < (i // 20 + 0.5) / (7 * first / 20 + 2))) is not None
    ]


def test_policies_are_compared_from_the_same_starts() -> None:
    """Rates of other starts differ by how hard these are, in both worlds alike: policies that are
    all the same were found to be ranked reliably.
    """
    rng = np.random.default_rng(3)
    real, sim = (of_starts_alone(kind, rng, 40) for kind in ("robot", "sim"))
    with pytest.raises(DataError, match="no condition was tried by every policy"):
        paired_tasks(real, sim)
    require_paired(real, sim, "success")
    real, sim = (of_starts_alone(kind, rng, 5) for kind in ("robot", "sim"))
    (task,) = paired_tasks(real, sim)
    assert task.table.real_trials == task.table.sim_trials == (5, 5)
    assert any("rates are taken over the 5 conditions" in n for n in task.notes)
    assert any("real: 280 trials of conditions that another policy lacks" in n for n in task.notes)
    # Start by start every one says something.
    assert agreement(task)[-1].conditions == 320
    report = trust_report([task.table]).tasks[0]
    assert report.judgement.verdict == "not shown"


def repeated_unevenly(kind: str, rng: np.random.Generator) -> list[TrialRecord]:
    """Of eight policies that are all the same, from the same 16 starts, of which half are easy:
    ``p0`` repeats the easy ones seven times, ``p7`` the hard ones.
    """
    world, each = {"sim": ("scene", 5), "robot": ("cell", 1)}[kind]
    return [
        trial(f"p{k}", world, i, 0.9 * good, good, again, kind=kind,
              episode=f"{k}-{i}-{again}" * (kind != "sim"))
        for k in range(8)
        for i in range(16)
        for again in range(each * (1 + (7 - k if i < 8 else k)))
        if (good := bool(rng.random() < (0.9 if i < 8 else 0.1))) is not None
    ]  # fmt: skip


@pytest.mark.parametrize("by", ["success", "score"])
def test_a_start_that_is_repeated_counts_once(by) -> None:
    """Trials of a policy are easy or hard by which starts it repeats, in both worlds alike: equal
    policies were found to be ranked reliably.
    """
    rng = np.random.default_rng(0)
    real, sim = (repeated_unevenly(kind, rng) for kind in ("robot", "sim"))
    (task,) = paired_tasks(real, sim, by)
    best = 0.9 if by == "score" else 1.0
    for pair, starts in zip(task.table.pairs, task.conditions, strict=True):
        for (outcomes,), side in ((pair.real, starts.real), (pair.sim, starts.sim)):
            assert outcomes.rate == pytest.approx(np.mean([np.mean(o) for o in side.values()]))
            assert outcomes.rate == pytest.approx(0.5 * best, abs=0.13)
        for side in ("real", "sim"):
            found = rate_interval(pair, side)
            assert found is not None
            assert found.low < 0.5 * best < found.high
    assert task.table.real_trials == (72, 72)
    said = "real: 8 of 8 policies were tried more often from some starts than from others"
    assert any(f"{said} ('p0': 1 to 8 times)" in n for n in task.notes)
    assert trust_report([task.table]).tasks[0].judgement.verdict != "ranks reliably"


def test_equally_many_repetitions_are_not_said() -> None:
    (task,) = paired_tasks(trials("robot", repeats=2), trials("sim", repeats=3))
    assert not any("more often" in n for n in task.notes)


def at_times(kind: str, gap_s: float, duration_s: float) -> list[TrialRecord]:
    begin = datetime(2026, 3, 1, 9, tzinfo=UTC)
    return [
        dataclasses.replace(
            r,
            started=(begin + timedelta(seconds=gap_s * i)).isoformat(),
            duration_s=duration_s,
            kind=kind,
        )
        for i, r in enumerate(trials("robot"))
    ]


def test_an_arm_does_one_trial_at_a_time() -> None:
    sim = trials("sim")
    (task,) = paired_tasks(at_times("robot", 40.0, 30.0), sim)
    assert not any("began before" in n for n in task.notes)
    with pytest.raises(DataError, match=r"two trials ran at once on 'cell': .* took 30\.0 s"):
        paired_tasks(at_times("robot", 20.0, 30.0), sim)
    # A lab's cell may stand on several computers.
    (told,) = paired_tasks(at_times("lab", 20.0, 30.0), sim)
    assert any("83 trials on 'cell' began before" in n for n in told.notes)
    # Given out of order they are sorted; another time zone is the same moment.
    assert paired_tasks(at_times("robot", 40.0, 30.0)[::-1], sim)
    moved = at_times("robot", 40.0, 30.0)
    there = datetime.fromisoformat(moved[1].started).astimezone(timezone(timedelta(hours=9)))
    moved[1] = dataclasses.replace(moved[1], started=there.isoformat())
    assert paired_tasks(moved, sim)
    for word, said in (("noon", "expected a time"), ("2026-03-01T09:00:00", "time zone")):
        bad = [dataclasses.replace(r, started=word) for r in trials("robot")]
        with pytest.raises(DataError, match=said):
            paired_tasks(bad, sim)


def test_an_arm_does_one_trial_at_a_time_of_all_suites() -> None:
    """The second suite's trials ran between those of the first, on the same arm."""
    first = at_times("robot", 40.0, 30.0)
    second = [
        dataclasses.replace(
            r,
            suite="lift@1",
            episode=f"lift-{r.episode}",
            started=(datetime.fromisoformat(r.started) + timedelta(seconds=10)).isoformat(),
        )
        for r in first
    ]
    sim = [*trials("sim"), *trials("sim", suite="lift@1")]
    with pytest.raises(DataError, match="two trials ran at once on 'cell'"):
        paired_tasks([*first, *second], sim)


def folder(path: Path, records: Sequence[TrialRecord]) -> str:
    with TrialStore(path) as table:
        table.add(records)
    return str(path)


def test_the_command_reads_results_folders(tmp_path: Path, capsys) -> None:
    real = folder(tmp_path / "real", trials("robot"))
    sim = folder(tmp_path / "sim", [*trials("sim"), *trials("sim", names=("extra",))])
    page = tmp_path / "t.html"
    words = ("trust", "--real", real, "--sim", sim, "--json", "--html", str(page))
    assert main(list(words)) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["task"], found["k"], found["verdict"]) == ("pusht", 7, "ranks reliably")
    assert found["per_condition"][-1]["conditions"] == 84
    assert "pusht: only simulated, and not judged: extra" in found["notes"]
    assert "Condition by condition" in page.read_text()
    # A world stands for reality.
    both = folder(tmp_path / "both", [*trials("sim"), *trials("sim", env="gym", env_hash="h-gym")])
    assert main(["trust", "--real", both, "--sim", both]) == 2
    assert "name the one that counts (real world, sim world)" in capsys.readouterr().err
    named = ("--real", both, "--real-world", "gym", "--sim", both, "--sim-world", "scene")
    assert main(["trust", *named, "--by", "score"]) == 0
    assert "reality is a simulated world here: 'gym'" in capsys.readouterr().out
    assert main(["trust", "--real", real, "--sim", sim, "--sim-world", "moon"]) == 2
    assert "no simulated trials in 'moon'" in capsys.readouterr().err
    assert main(["trust", "--real", real]) == 2
    assert main(["trust", "--real", real, "--sim", sim, "--table", "x.csv"]) == 2
    assert main(["trust", "--real", str(tmp_path), "--sim", sim]) == 2


def test_a_row_that_was_edited_is_refused(tmp_path: Path, capsys) -> None:
    real = folder(tmp_path / "real", trials("robot"))
    sim = folder(tmp_path / "sim", trials("sim"))
    with sqlite3.connect(tmp_path / "sim" / "trials.sqlite") as db:
        names = db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for (name,) in names:
            db.execute(f"DROP TRIGGER {name}")
        db.execute("UPDATE trials SET success = 1, score = 1.0 WHERE id = 5")
    db.close()
    assert main(["trust", "--real", real, "--sim", sim]) == 2
    assert (
        "trial 5 (p0, pusht-0004) is not as it was written: it was edited"
        in capsys.readouterr().err
    )


def test_a_plan_that_was_changed_after_the_first_trial_is_refused(tmp_path: Path, capsys) -> None:
    plan = Preregistration("pusht@1", ("cell",), Rule(n_max=12), "2026-03-01T08:00:00+00:00")
    written = write_plan(tmp_path / "plan.yaml", plan)
    real = folder(tmp_path / "real", trials("robot", plan=written.hash))
    sim = folder(tmp_path / "sim", trials("sim"))
    words = ("trust", "--real", real, "--sim", sim)
    assert main(list(words)) == 0
    assert f"plan {written.hash}, under which 84 trials" in capsys.readouterr().out
    kept = tmp_path / "real" / FOLDER / f"{written.hash}.yaml"
    kept.parent.mkdir()
    text = (tmp_path / "plan.yaml").read_text()
    kept.write_text(text)
    assert main(list(words)) == 0
    assert "which 84 trials" not in capsys.readouterr().out
    write_plan(tmp_path / "other.yaml", dataclasses.replace(plan, rule=Rule(n_max=8)))
    for changed, said in (
        (text.replace("n_max: 12", "n_max: 8"), "was edited since it was written"),
        ((tmp_path / "other.yaml").read_text(), "holds another plan than its name says"),
    ):
        kept.write_text(changed)
        assert main(list(words)) == 2
        assert said in capsys.readouterr().err
