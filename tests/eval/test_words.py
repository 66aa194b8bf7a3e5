"""Counts and differences in words, and in the reports that are made of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from eval.report.text import estimate_text
from eval.statistics.intervals import Estimate
from eval.words import count_of, is_nothing, size
from robolearn.operations.trust.table import Trust, trust_of_table
from robolearn.operations.trust.trials import trust_of_trials
from tests.robolearn.operations.trust.test_folders import rows, written

HEAD = "task,policy,real_successes,real_trials,sim_successes,sim_trials\n"
RATES = "task,policy,real_score,sim_score\n"
# One of what is told in the plural, and a difference that is none.
ODD = re.compile(r"(?<![\d.])1 (?:[a-z]+ )?(policies|trials|starts|tasks|conditions|worlds|pairs)\b"
                 r"|[-+ ]0\.000 (higher|lower|in reality|off|by)|-0\.0+\b(?!\d)")  # fmt: skip


def test_counts_and_differences() -> None:
    assert [count_of(n, "policy", "policies") for n in (0, 1, 2)] == [
        *("0 policies", "1 policy", "2 policies"),
    ]
    assert count_of(1, "trial") == "1 trial"
    assert [size(v) for v in (0.0, 1e-17, -4e-4, 6e-4, -0.25)] == [
        *("0.000", "0.000", "less than 0.001", "0.001", "0.250"),
    ]
    assert is_nothing(1e-17)
    assert not is_nothing(1e-4)
    tiny = Estimate(-1e-5, -2e-4, 0.1, 9, "t")
    assert estimate_text(tiny, sign=True) == "+0.000 [+0.000, +0.100]"
    assert estimate_text(tiny) == "0.000 [0.000, 0.100]"


def told(trust: Trust, folder: Path) -> str:
    trust.write_markdown(folder / "t.md")
    trust.write_page(folder / "t.html")
    page = re.sub(r"data:[^\"]*", "", (folder / "t.html").read_text())
    return "\n".join([*trust.lines, (folder / "t.md").read_text(), page])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD + "t,p,1,1,1,1\n", "1 policy, 1 real and 1 simulated trial each"),
        (HEAD + "t,p,1,2,3,4\nu,q,1,1,0,1\n", "0 policies"),
        (RATES + "".join(f"t,p{i},.{i},.{i}\n" for i in range(8)), "rates are those of reality"),
        (RATES + "".join(f"t,p{i},.{i}0001,.{i}\n" for i in range(8)), "less than 0.001 lower"),
        (
            RATES + "".join(f"t,p{i},.{i},.{i + (-1) ** i}\n" for i in range(1, 9)),
            "simulated rates are neither higher nor lower on average, 0.100 off",
        ),
        (
            RATES + "t,a,.5,.6\nt,b,.5001,.4\nt,c,.9,.9\nt,d,.1,.1\n",
            "is better by less than 0.001 in reality",
        ),
    ],
)
def test_reports_of_one_and_of_nothing(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    words = told(trust_of_table(path), tmp_path)
    assert said in words
    assert not ODD.search(words)


def test_folders_of_one_policy_and_one_trial_left_out(tmp_path: Path) -> None:
    real = rows("cell", "lab")[:12]
    real[3] = dataclasses.replace(real[3], status="voided", success=False)
    sim = [r for r in rows("scene", "sim") if r.policy == "p0"]
    trust = trust_of_trials([written(tmp_path / "r", real)], [written(tmp_path / "s", sim)])
    words = told(trust, tmp_path)
    assert "pusht: real: 1 trial of moved or repeated starts, voided or running, does not" in words
    assert "simulated: 1 trial of conditions that the other world lacks does not count" in words
    assert not ODD.search(words)
