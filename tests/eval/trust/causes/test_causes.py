"""A cause that is there is found, one that is not is not, and what looks alike is said to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from eval.trust.causes.cells import Cells, Shift, cells_of
from eval.trust.causes.report import CausesReport, causes_report
from eval.trust.causes.response import responses
from robolearn.errors import DataError
from tests.eval.report_folder import trial

# What every parameter does to the probability of success of each policy, per unit of shift.
RESPONSES = {
    "friction": (-0.25, -0.05, -0.3, -0.1, 0.05),
    "mass": (0.05, -0.3, -0.05, 0.2, -0.25),
    "delay": (-0.24, -0.06, -0.28, -0.12, 0.04),
    "light": (0.0, 0.0, 0.0, 0.0, 0.0),
}
RATES = np.array([0.85, 0.7, 0.6, 0.45, 0.5])


def judged(seed: int, real_of=None, names=("friction", "mass", "light"), starts=30, **changes):
    """A report of synthetic worlds; ``real_of``: parameter -> how far it is off in reality."""
    rng = np.random.default_rng(seed)
    shifts = [Shift(n, level, f"w~{n}={level:g}") for n in names for level in (-1.0, 1.0)]
    rollouts = changes.pop("rollouts", 5)
    easy = rng.uniform(-0.2, 0.2, (starts, 1))
    # The same uniform numbers in every world, as the same seeds give.
    dice = rng.random((starts, len(RATES), rollouts))

    def chances(of) -> np.ndarray:
        moved = sum(level * np.array(RESPONSES[n]) for n, level in of.items())
        return np.clip(RATES + easy + moved, 0.0, 1.0)

    def simulated(of) -> np.ndarray:
        return (dice < chances(of)[..., None]).reshape(-1, rollouts).astype(np.float64)

    happened = rng.random((starts, len(RATES))) < chances(real_of or {})
    cells = Cells(
        tuple(f"p{p}" for p in range(len(RATES))),
        tuple(range(len(RATES))) * starts,
        tuple(np.repeat(range(starts), len(RATES)).tolist()),
        tuple(np.array([float(v)]) for v in happened.ravel()),
        simulated({}),
        tuple(simulated({s.parameter: s.level}) for s in shifts),
    )
    return causes_report(cells, shifts, "w", **changes)


def parameter(report: CausesReport, name: str):
    return next(q for q in report.parameters if q.parameter == name)


def test_one_wrong_parameter_is_found_with_its_size() -> None:
    report = judged(1, {"friction": 1.0})
    assert (report.verdict, report.suspects) == ("found", ("friction",))
    assert report.gap_p <= 0.05
    found = report.parameters[0]
    assert found.parameter == "friction"
    assert found.best.shift.level == 1.0
    assert found.best.level is not None
    assert found.plausible is not None
    assert found.best.level.low < 1.0 < found.best.level.high
    assert found.plausible[0] > 0.0
    # Shifts that change nothing say nothing.
    light = parameter(report, "light")
    assert (light.best.moves, light.plausible, light.cause) == (False, None, False)
    assert not parameter(report, "mass").cause
    other = judged(2, {"mass": -1.0})
    assert other.suspects == ("mass",)
    level = other.parameters[0].best.level
    assert level is not None
    assert level.high < 0.0


def test_where_nothing_is_wrong_nothing_is_found() -> None:
    report = judged(3)
    assert (report.verdict, report.suspects) == ("nothing shown", ())
    assert report.gap.low < 0.0 < report.gap.high
    # What the trials leave open holds the truth.
    assert all(q.plausible[0] < 0.0 < q.plausible[1] for q in report.parameters if q.plausible)


def test_false_alarms_are_as_rare_as_the_level_says() -> None:
    alarms = [judged(seed, starts=12).verdict != "nothing shown" for seed in range(25)]
    # Two tests at .05 each; more than 7 of 25 has a chance below .01 at .1.
    assert sum(alarms) <= 7


def test_what_acts_alike_is_not_told_apart() -> None:
    report = judged(4, {"friction": 1.0}, names=("friction", "mass", "delay"))
    assert report.verdict == "several"
    assert set(report.suspects) == {"friction", "delay"}


def test_a_gap_that_no_shift_explains_is_said_to_be_that() -> None:
    report = judged(5, {"mass": 1.0}, names=("light",))
    assert (report.verdict, report.suspects) == ("unexplained", ())
    assert report.gap_p <= 0.05


def test_mixed_worlds_are_a_fallback_with_figures() -> None:
    report = judged(6, {"friction": 1.0}, names=("friction",))
    first = report.mixed.rates[0]
    assert first.lowest <= first.nominal <= first.highest
    assert first.mixed == pytest.approx((first.nominal + first.lowest + first.highest) / 3, abs=0.1)
    assert report.mixed.nominal_agreement["mmrv"] is not None


def test_products_of_noisy_means_are_unbiased() -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    # Rollouts 0 and 1 of both worlds share their noise; nothing is shifted, nothing is wrong.
    noise = rng.normal(size=(n, 2))
    nominal = noise + rng.normal(size=(n, 2))
    shifted = noise + rng.normal(size=(n, 2))
    real = rng.normal(size=n)
    # One policy, and one of its own for every start, whose means say nothing more.
    for policy in ([0] * n, [*range(n)]):
        for found in responses(real, nominal, shifted, policy):
            assert abs(found.mean()) < 4 * max(found.std(), 1e-3) / np.sqrt(n)
    naive = ((shifted - nominal).mean(axis=1) * (real - nominal.mean(axis=1))).mean()
    assert naive > 0.4


def test_cells_hold_what_was_tried_everywhere_rollout_by_rollout() -> None:
    def rows(world: str, good: int) -> list:
        return [trial("p", world, c, 0.1 * s, s < good, condition=f"c{c}", seed=s)
                for s in (2, 0, 1) for c in range(9)]  # fmt: skip

    real = [trial("p", "cell", c, 0.9, c < 3, condition=f"c{c}", kind="robot") for c in range(10)]
    real.append(dataclasses.replace(real[0], success=False))
    shifts = [Shift("mass", 1.0, "w~m")]
    sims = {"w": rows("w", 1), "w~m": rows("w~m", 2)}
    cells = cells_of(real, sims, "w", shifts)
    assert (cells.starts, cells.policies) == (9, ("p",))
    assert [v.tolist() for v in cells.real] == [[1, 0], [1], [1], *[[0]] * 6]
    assert np.array_equal(cells.nominal, [[1, 0, 0]] * 9)
    assert np.array_equal(cells.shifted[0], [[1, 1, 0]] * 9)
    assert cells_of(real, sims, "w", shifts, "score").nominal[0] == pytest.approx([0, 0.1, 0.2])


def test_what_does_not_pair_up_is_refused() -> None:
    def rows(world: str, seeds, starts=9) -> list:
        return [trial("p", world, c, 0.5, True, condition=f"c{c}", seed=s)
                for c in range(starts) for s in seeds]  # fmt: skip

    real = [dataclasses.replace(r, kind="robot") for r in rows("cell", (0,))]
    shift = [Shift("mass", 1.0, "w~m")]
    for sims, said in (
        ({"w": rows("w", (0, 1)), "w~m": rows("w~m", (0, 2))}, "have other seeds in 'w~m'"),
        ({"w": rows("w", (0,)), "w~m": rows("w~m", (0,))}, "2 or more; got .1."),
        ({"w": rows("w", (0, 1), 3), "w~m": rows("w~m", (0, 1))}, "causes need 8 or more"),
        ({"w": rows("w", (0, 1))}, "0 starts were tried"),
    ):
        with pytest.raises(DataError, match=said):
            cells_of(real, sims, "w", shift)
