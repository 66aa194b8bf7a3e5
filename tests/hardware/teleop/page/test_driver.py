import dataclasses

import numpy as np

from hardware.teleop.device import Rate, TablePoint
from hardware.teleop.page.driver import (
    IDLE_S,
    QUIET_S,
    WINDOW_S,
    Allowance,
    Driver,
    Lateness,
)
from hardware.teleop.page.messages import Hand

S = 1_000_000_000
MS = 1_000_000


def hand(seq, t_ns, *, held=True, x=0.0):
    return Hand(seq, 1e-6 * t_ns, held, Rate(np.array([x, 0.0, 0.0, 0.0, 0.0, 0.0])))


def test_the_first_page_drives_and_the_second_watches():
    driver = Driver()
    assert driver.claim(1, 0) == ""
    assert "Somebody drives" in driver.claim(2, S)
    driver.hear(2, hand(0, S, x=1.0), S)
    assert not driver.reading.present
    driver.hear(1, hand(0, S, x=0.5), S)
    assert driver.reading.clutch
    assert isinstance(driver.reading.motion, Rate)
    assert driver.reading.motion.twist[0] == 0.5
    assert driver.touched(1, S)
    assert not driver.touched(2, S)


def test_who_does_nothing_for_a_while_is_relieved_without_a_jump():
    driver = Driver()
    driver.claim(1, 0)
    now = round(IDLE_S * S)
    driver.hear(1, hand(0, now, x=0.5), now)
    # It moved just now.
    assert driver.claim(2, now + S)
    later = now + round(IDLE_S * S)
    driver.hear(1, hand(1, later), later)
    assert driver.claim(2, later) == ""
    assert not driver.reading.clutch
    # A hand that is on the pad already holds nothing until the hold was seen to be lost.
    driver.hear(2, hand(0, later, x=1.0), later + 10 * MS)
    assert not driver.reading.clutch
    after = later + round(QUIET_S * S)
    driver.hear(2, hand(1, after, x=1.0), after)
    assert driver.reading.clutch
    driver.hear(1, hand(2, after, x=-1.0), after)
    assert isinstance(driver.reading.motion, Rate)
    assert driver.reading.motion.twist[0] == 1.0


def test_a_point_that_is_held_still_is_held():
    driver = Driver()
    driver.claim(1, 0)
    later = round(2 * IDLE_S * S)
    driver.hear(1, Hand(0, 0.0, True, TablePoint(np.array([0.1, 0.2]))), later)
    assert driver.claim(2, later + S)


def test_a_page_that_closes_leaves_nobody():
    driver = Driver()
    driver.claim(1, 0)
    driver.hear(1, hand(0, 0), 0)
    driver.leave(2)
    assert driver.page == 1
    driver.leave(1)
    assert driver.page is None
    assert not driver.reading.present
    assert driver.claim(2, 1) == ""


def test_a_page_without_the_focus_is_away_and_has_not_let_go():
    driver = Driver()
    driver.claim(1, 0)
    driver.hear(1, hand(0, 0, x=0.5), 0)
    driver.hear(1, dataclasses.replace(hand(1, S, x=0.5), away=True), S)
    assert not driver.reading.present
    assert not driver.reading.clutch
    driver.hear(1, hand(2, 2 * S, held=False), 2 * S)
    assert driver.reading.present


def test_messages_count_once_and_in_order():
    driver = Driver()
    driver.claim(1, 0)
    driver.hear(1, hand(5, 0, x=0.5), 0)
    for seq in (5, 4):
        driver.hear(1, hand(seq, 0, x=1.0), 0)
    assert isinstance(driver.reading.motion, Rate)
    assert driver.reading.motion.twist[0] == 0.5


def test_a_page_without_sense_lets_go_for_a_while():
    driver = Driver()
    driver.claim(1, 0)
    driver.hear(1, hand(0, 0, x=0.5), 0)
    driver.nonsense(2, 0)
    assert driver.reading.clutch
    driver.nonsense(1, 0)
    assert driver.reading.present
    assert not driver.reading.clutch
    driver.hear(1, hand(1, 25 * MS, x=0.5), 25 * MS)
    assert not driver.reading.clutch


def test_a_bunch_that_waited_is_as_old_as_it_is():
    driver = Driver()
    driver.claim(1, 0)
    for i in range(10):
        driver.hear(1, hand(i, 25 * MS * i, x=1.0), 25 * MS * i + 3 * MS)
    assert driver.reading.t_ns == 25 * MS * 9 + 3 * MS
    # The network stalled for a second: forty messages come at once, the newest 30 ms old.
    came = 25 * MS * 49 + 33 * MS
    driver.hear(1, hand(10, 25 * MS * 10, x=1.0), came)
    assert came - driver.reading.t_ns == came - 25 * MS * 10 - 3 * MS
    driver.hear(1, hand(49, 25 * MS * 49, x=1.0), came)
    assert came - driver.reading.t_ns == 30 * MS


def test_lateness_follows_clocks_that_drift_apart():
    lateness, drift = Lateness(), 1e-4
    worst = 0
    for i in range(0, 40_000, 25):
        now = MS * i
        worst = max(worst, lateness(now, i * (1 - drift)))
    # Never more than two windows' worth, and a beat.
    assert worst <= (2 * WINDOW_S + 0.05) * drift * S


def test_a_page_whose_clock_stood_still_is_late_and_comes_back():
    lateness = Lateness()
    assert lateness(0, 0.0) == 0
    # The tablet slept for a minute.
    slept = 60 * S
    assert lateness(slept, 10.0) > 0.2 * S
    for i in range(2 * 40 * int(WINDOW_S) + 80):
        late = lateness(slept + 25 * MS * i, 10.0 + 25.0 * i)
    assert late == 0


def test_a_flood_is_told_from_a_page():
    allowance = Allowance(100.0, 20)
    assert all(allowance.take(25 * MS * i) for i in range(400))
    allowed = sum(allowance.take(10 * S + i) for i in range(200))
    assert allowed == 20
    assert allowance.take(11 * S)
