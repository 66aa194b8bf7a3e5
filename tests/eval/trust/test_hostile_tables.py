"""Tables as people have them, every number beside a plain recomputation that shares no code."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from eval.trust.report import TaskTrust
from robolearn.errors import DataError
from robolearn.operations.trust.table import trust_of_table

Row = tuple[str, int, int, int, int]
HEAD = "task,policy,real_successes,real_trials,sim_successes,sim_trials"


def written(path: Path, rows: list[Row], separator: str = ",", encoding: str = "utf-8") -> Path:
    lines = [HEAD, *(",".join(map(str, ("t", *row))) for row in rows)]
    text = "\r\n".join(line.replace(",", separator) for line in lines)
    path.write_bytes(text.encode(encoding))
    return path


def judged(path: Path) -> TaskTrust:
    (task,) = trust_of_table(path).report.tasks
    return task


def plainly(rows: list[Row]) -> dict[str, float | None]:
    """Every measure from exact fractions, pair by pair, and from scipy."""
    real = [Fraction(r, n) for _, r, n, _, _ in rows]
    sim = [Fraction(s, m) for _, _, _, s, m in rows]
    k, x, y = len(rows), np.array(sim, dtype=float), np.array(real, dtype=float)
    pairs = list(itertools.combinations(range(k), 2))
    wrong = [
        [abs(real[i] - real[j]) * ((sim[i] > sim[j]) != (real[i] > real[j])) for j in range(k)]
        for i in range(k)
    ]
    signs = [((sim[i] > sim[j]) - (sim[i] < sim[j]), (real[i] > real[j]) - (real[i] < real[j]))
             for i, j in pairs]  # fmt: skip
    loss = [Fraction(abs(a - b), 2) for a, b in signs]
    best = [real[i] for i in range(k) if sim[i] == max(sim)]
    flat, varies = len(set(sim)) == 1, len(set(sim)) > 1 and len(set(real)) > 1
    spread = x.var() + y.var() + (x.mean() - y.mean()) ** 2
    cov = ((x - x.mean()) * (y - y.mean())).mean()
    line = None if flat or k < 3 else stats.linregress(x, y)
    few = k < 3
    return {
        "pearson": float(stats.pearsonr(x, y)[0]) if varies and not few else None,
        "spearman": float(stats.spearmanr(x, y)[0]) if varies and not few else None,
        "kendall": float(stats.kendalltau(x, y)[0]) if varies and not few else None,
        "mmrv": float(sum(map(max, wrong)) / k),
        "pairwise_rank_loss": float(sum(loss) / len(pairs)),
        "top1_regret": float(max(real) - sum(best) / len(best)),
        "bias": float(sum(sim) - sum(real)) / k,
        "mae": float(sum(abs(s - r) for s, r in zip(sim, real, strict=True)) / k),
        "ccc": 2 * float(cov) / float(spread) if spread > 1e-24 and not few else None,
        "slope": None if line is None else float(line.slope),
        "intercept": None if line is None else float(line.intercept),
    }


def hostile(rng: np.random.Generator) -> list[Row]:
    """Few policies, many ties, one trial or thousands, rates of 0 and 1, constant columns."""
    k = int(rng.choice([2, 3, 4, 5, 8, 12]))
    few = int(rng.choice([2, 3, 10**6]))
    kind = rng.integers(5)
    rows: list[Row] = []
    for i in range(k):
        n, m = (int(rng.choice([1, 2, 3, 7, 10, 50, 999])) for _ in range(2))
        r, s = (int(rng.integers(0, min(t, few) + 1)) for t in (n, m))
        r = (r, 0, n, r, r)[kind]
        s = (s, s, s, m, 0)[kind]
        rows.append((f"p{i}", r, n, s, m))
    return rows


@pytest.mark.parametrize("seed", range(24))
def test_every_number_is_that_of_a_plain_recomputation(seed: int, tmp_path: Path) -> None:
    rows = hostile(np.random.default_rng(seed))
    task = judged(written(tmp_path / "t.csv", rows))
    for name, value in plainly(rows).items():
        found = task.measures[name].value
        assert (found is None) == (value is None), (name, found, value, task.measures[name].why)
        if value is not None:
            assert found == pytest.approx(value, abs=1e-9), name
    floors = task.order_noise
    assert all(f.p5 - 1e-12 <= f.mean <= f.p95 + 1e-12 for f in floors.values())
    if min(n for _, _, n, _, m in rows for n in (n, m)) < 10:
        assert task.judgement.verdict != "ranks reliably"


def test_what_chance_says_is_all_orders_gone_through(tmp_path: Path) -> None:
    rows: list[Row] = [("a", 1, 10, 2, 10), ("b", 4, 10, 4, 10), ("c", 4, 10, 9, 10),
                       ("d", 9, 10, 8, 10)]  # fmt: skip
    task = judged(written(tmp_path / "t.csv", rows))
    real = np.array([r / n for _, r, n, _, _ in rows])
    sim = np.array([s / m for *_, s, m in rows])
    seen = np.corrcoef(sim, real)[0, 1]
    orders = [np.corrcoef(np.array(p), real)[0, 1] for p in itertools.permutations(sim)]
    chance = task.measures["pearson"].chance
    assert chance is not None
    assert chance.p == pytest.approx(np.mean([v >= seen - 1e-9 for v in orders]))
    z = np.arctanh(seen) + np.array([-1, 1]) * stats.norm.ppf(0.975) / np.sqrt(len(rows) - 3)
    assert task.measures["pearson"].fisher_z == pytest.approx(tuple(np.tanh(z)))
    dropped = [np.corrcoef(np.delete(sim, i), np.delete(real, i))[0, 1] for i in range(4)]
    assert task.measures["pearson"].drop_one == pytest.approx((min(dropped), max(dropped)))


def test_one_table_is_one_report_however_it_was_saved(tmp_path: Path) -> None:
    rows: list[Row] = [(f"Straße {i}", 3 * i, 30, 5 * i, 50) for i in range(6)]
    plain = judged(written(tmp_path / "t.csv", rows))
    for number, (separator, encoding) in enumerate(
        itertools.product((";", "\t", ","), ("utf-8-sig", "utf-16"))
    ):
        again = judged(written(tmp_path / f"{number}.csv", rows, separator, encoding))
        assert again.measures == plain.measures
        assert again.table.real.tolist() == plain.table.real.tolist()
    lines = ["task;policy;real_score;sim_score", *(f"t;p{i};0,{i};0,{i}5" for i in range(1, 6))]
    (tmp_path / "comma.csv").write_text("\n".join(lines), encoding="utf-8")
    comma = judged(tmp_path / "comma.csv")
    assert comma.table.real.tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert comma.table.sim.tolist() == pytest.approx([0.15, 0.25, 0.35, 0.45, 0.55])


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        # One letter, written by one code point and by two.
        (["t,\u00e9,1,2,1,2", "t,e\u0301,1,2,1,2"], "policy '\u00e9' is there twice"),
        (["t,a,1,2,1,2", "t,b,1,2,1,2", "t,a,2,2,2,2"], "add up its trials"),
        (["t,a,50%,2,1,2"], "expected a number"),
        (["t,a,3,2,1,2"], "3 of 2 trials"),
        (["t,a,-1,2,1,2"], "whole number from 0"),
        (["t,a,0.5,2,1,2"], "whole number from 0"),
        (["t,a,1,9007199254740993999,1,2"], "whole number from 0 to 9007199254740992"),
        (["t,a,1,0,1,2"], "without trials is left out"),
        (["t,a,1,2,1"], "sim_trials is empty"),
        (["t,a,1,2,1,2,9"], "7 cells"),
        (["t,a,1e400,2,1,2"], "expected"),
        (["t,a,NaN,2,1,2"], "expected"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_cannot_be_is_refused_with_its_line(
    lines: list[str], said: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join([HEAD, *lines]), encoding="utf-8")
    with pytest.raises(DataError, match=said) as told:
        trust_of_table(path)
    assert f"t.csv:{len(lines) + 1}" in str(told.value)


def test_scores_in_percent_and_rates_beside_counts(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("task,policy,real_score,sim_score\nt,a,50,0.5\n")
    with pytest.raises(DataError, match="shares, not percent"):
        trust_of_table(path)
    path.write_text(f"{HEAD},real_score\nt,a,1,4,2,4,\nt,b,,,3,4,0.5\nt,c,3,4,4,4,0.75\n")
    task = judged(path)
    assert task.table.real.tolist() == [0.25, 0.5, 0.75]
    assert task.table.real_trials is None
    assert task.table.sim_trials == (4, 4)
    path.write_text(f"{HEAD},real_score\nt,a,1,4,2,4,0.9\n")
    with pytest.raises(DataError, match=r"real_score is 0\.9, but 1 of 4 are 0\.250"):
        trust_of_table(path)


def test_the_order_of_lines_changes_no_digit(tmp_path: Path) -> None:
    """Sums were rounded, and the first of equally wrong pairs was named, by the order of lines."""
    rng = np.random.default_rng(0)
    rows: list[Row] = [
        (f"p{i}", int(rng.integers(0, 4)), 3, int(rng.integers(0, 8)), 7) for i in range(11)
    ]
    first, again = (
        judged(written(tmp_path / f"{i}.csv", lines)) for i, lines in enumerate((rows, rows[::-1]))
    )
    assert again.measures == first.measures
    assert (again.worst, again.choice) == (first.worst, first.choice)
    assert (again.judgement, again.calibration) == (first.judgement, first.calibration)


def test_nor_does_the_order_of_tasks_that_are_pooled(tmp_path: Path) -> None:
    lines = [
        f"{task},p{i},{(i * a) % 10},9,{(i * b) % 10},9"
        for task, a, b in (("one", 3, 7), ("two", 1, 3), ("three", 7, 9))
        for i in range(7)
    ]
    pooled = []
    for name, order in (("first", lines), ("again", lines[::-1])):
        path = tmp_path / f"{name}.csv"
        path.write_text("\n".join((HEAD, *order)) + "\n", encoding="utf-8")
        pooled.append(trust_of_table(path).report.pooled)
    first, again = pooled
    assert first is not None
    assert again is not None
    assert again.measures == first.measures
    assert again.order_noise == first.order_noise
    assert again.judgement == first.judgement


def test_ten_thousand_lines_are_read_or_refused_at_once(tmp_path: Path) -> None:
    rows: list[Row] = [(f"p{i}", i % 11, 10, i % 7, 10) for i in range(10_000)]
    with pytest.raises(DataError, match="5000 or fewer"):
        trust_of_table(written(tmp_path / "t.csv", rows))
