"""Results folders that are linked, copied, written into, or tried under one plan in two places."""

from __future__ import annotations

import dataclasses
import datetime as dt
import shutil
from pathlib import Path

import pytest

from eval.trials.table import TrialStore
from robolearn.errors import DataError
from robolearn.operations.compare import pooled
from robolearn.operations.trust.options import Beside
from robolearn.operations.trust.trials import trust_of_trials
from robolearn.types import TrialRecord
from tests.eval.report_folder import trial

BEGAN = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
POLICIES, STARTS = 8, 12


def rows(env: str, kind: str, suite: str = "pusht@1234", **changes) -> list[TrialRecord]:
    """Policies that succeed under as many starts as their number says, and one more."""
    return [
        trial(
            *(f"p{k}", env, i, 1.0 if i <= k else 0.2, i <= k),
            kind=kind,
            suite=suite,
            final_progress=1.0 if i <= k else 0.1,
            reason="success" if i <= k else "time_limit",
            episode="" if kind == "sim" else f"{k}-{i}",
            started=(BEGAN + dt.timedelta(minutes=k * STARTS + i)).isoformat(),
            **changes,
        )
        for k in range(POLICIES)
        for i in range(STARTS)
    ]


def written(folder: Path, found: list[TrialRecord]) -> Path:
    with TrialStore(folder) as store:
        store.add(found)
    return folder


@pytest.mark.parametrize("kind", ["lab", "robot"])
def test_a_link_or_a_copy_is_no_repetition(tmp_path: Path, kind: str) -> None:
    """A real trial that stands there twice agrees with its repetition, however noisy it is."""
    real = written(tmp_path / "real", rows("cell", kind))
    sim = written(tmp_path / "sim", rows("scene", "sim"))
    alone = trust_of_trials([real], [sim]).report.tasks[0]
    link, copy = tmp_path / "link", tmp_path / "copy"
    link.symlink_to(real)
    shutil.copytree(real, copy)
    for other in (link, copy):
        with pytest.raises(DataError, match="a link, a copy, or a plan that was gone on with"):
            trust_of_trials([real, other], [sim])
    # By itself a link is the folder.
    assert trust_of_trials([link], [sim]).report.tasks[0].measures == alone.measures
    # Trials of another day are repetitions.
    later = [dataclasses.replace(r, started=f"2026-12-{r.started[8:]}") for r in rows("cell", kind)]
    found = pooled([real, written(tmp_path / "later", later)])
    assert len(found.kept) == 2 * POLICIES * STARTS


def test_one_plan_in_two_places_is_refused(tmp_path: Path) -> None:
    """Two computers went on with copies of one folder: each tried slot 5, at another time."""
    for name, minutes in (("here", 0), ("there", 200)):
        found = [
            dataclasses.replace(
                r,
                plan="a" * 16,
                slot=n,
                episode=f"{name}-{n}",
                started=(BEGAN + dt.timedelta(minutes=n + minutes)).isoformat(),
                status="voided" if n == 4 else "finished",
            )
            for n, r in enumerate(rows("cell", "lab")[:10], 1)
        ]
        written(tmp_path / name, found[: 5 if name == "here" else 10][-7:])
    folders = [tmp_path / "here", tmp_path / "there"]
    with pytest.raises(DataError, match=r"slot 5 of plan a{16} \(pusht-0004\) is in .*two places"):
        pooled(folders)


def test_a_folder_that_is_being_written_into_is_said(tmp_path: Path) -> None:
    real = written(tmp_path / "real", rows("cell", "lab"))
    sim = tmp_path / "sim"
    with TrialStore(sim) as store:
        store.add(rows("scene", "sim"))
        notes = trust_of_trials([real], [sim]).report.notes
        assert f"trials are being written into '{sim}': these are the ones until now" in notes
    assert not [n for n in trust_of_trials([real], [sim]).report.notes if "being written" in n]


def test_tasks_that_the_other_simulator_lacks_or_has_alone_are_said(tmp_path: Path) -> None:
    real = written(tmp_path / "real", rows("cell", "lab") + rows("cell", "lab", "two@1"))
    real_3 = written(tmp_path / "three", rows("cell", "lab", "three@1"))
    sim = written(tmp_path / "sim", rows("scene", "sim") + rows("scene", "sim", "two@1"))
    with TrialStore(tmp_path / "other") as store:
        store.add(rows("old", "sim") + rows("old", "sim", "three@1"))
    beside = Beside(against=(tmp_path / "other",))
    notes = trust_of_trials([real, real_3], [sim], beside=beside).report.notes
    assert "two: the other simulator has no trials of it" in notes
    assert "the other simulator's trials of three are left out: no others" in notes
