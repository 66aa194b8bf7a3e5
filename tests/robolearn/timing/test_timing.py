import numpy as np
import pytest

from robolearn.errors import ClockError
from robolearn.timing import clocks as timing
from robolearn.timing.clocks import ClockAnchor, Rate


class Clock:
    """Stands in for the module ``time``: sleeping takes exactly as long as asked."""

    def __init__(self):
        self.now, self.slept = 1_000, []

    def monotonic_ns(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += round(seconds * 1e9)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    return clock


def test_deadlines_are_absolute(clock):
    rate = Rate(10.0)
    for tick in range(1, 6):
        clock.now += 30_000_000  # work
        assert rate.wait() == 0
        assert clock.now == 1_000 + tick * 100_000_000
    assert rate.missed == 0
    assert sum(clock.slept) == pytest.approx(0.35)


def test_a_late_tick_is_reported_and_the_grid_kept(clock):
    rate = Rate(10.0)
    clock.now += 130_000_000
    assert rate.wait() == 30_000_000
    assert rate.missed == 0
    assert rate.wait() == 0
    assert clock.now == 1_000 + 200_000_000
    assert rate.max_late_ns == 30_000_000


def test_missed_ticks_are_skipped_never_burst(clock):
    rate = Rate(10.0)
    clock.now += 350_000_000
    assert rate.wait() == 250_000_000
    assert rate.missed == 2
    rate.wait()
    assert clock.now == 1_000 + 400_000_000


def test_restart_starts_a_new_grid(clock):
    rate = Rate(10.0)
    clock.now += 5_000_000_000
    rate.restart()
    assert rate.wait() == 0
    assert rate.missed == 0
    assert clock.now == 1_000 + 5_100_000_000


def test_another_clock_is_anchored_by_its_fastest_arrivals_also_when_it_drifts():
    anchor, rng = ClockAnchor("arm"), np.random.default_rng(2)
    errors = []
    for k in range(20_000):
        true_s = 500.0 + 0.01 * k
        # 200 ppm slow: 40 ms within this record. Arrivals are late by 2 ms and up to 30 more.
        device_s = 7.0 + 0.9998 * (true_s - 500.0)
        received_s = true_s + 0.002 + 0.03 * rng.random() ** 2
        errors.append(1e-9 * anchor.monotonic_ns(device_s, round(1e9 * received_s)) - true_s)
    assert np.abs(np.array(errors[50:]) - 0.002).max() < 6e-3
    with pytest.raises(ClockError, match="arm: its clock went backwards"):
        anchor.monotonic_ns(7.0, round(1e9 * 701.0))
    with pytest.raises(ClockError, match="jumped"):
        anchor.monotonic_ns(1e4, round(1e9 * 701.0))
    anchor.restart()
    assert anchor.monotonic_ns(7.0, round(1e9 * 701.0)) == round(1e9 * 701.0)
