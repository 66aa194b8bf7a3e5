"""Pictures on a clock of the test's own: when they were taken, when they arrive, what is lost."""

from __future__ import annotations

import dataclasses

import numpy as np

from hardware.emulators.depth import DepthSensorConfig
from hardware.emulators.sensor import (
    Arrived,
    CameraEmulatorConfig,
    Exposure,
    PictureStream,
)

MS = 1_000_000
CONFIG = CameraEmulatorConfig(
    width=64, height=48, rate_hz=20.0, latency_s=0.03, latency_jitter_s=0.004, noise=2.0
)


def light(t_ns: int) -> Exposure:
    """Brighter by a grey level every 50 ms, 1 m away."""
    grey = np.full((48, 64, 3), 80 + t_ns // (50 * MS), np.uint8)
    return Exposure(t_ns, grey, np.ones((48, 64), np.float32), 60.0)


def seen(config: CameraEmulatorConfig, seed: int = 0, ms: int = 1000) -> list[tuple[int, Arrived]]:
    """What arrives, and when [ms]; the clock begins somewhere and ticks in steps of 2 ms."""
    stream = PictureStream(config, light, np.random.default_rng(seed))
    times = range(500, 500 + ms, 2)
    return [(t, arrived) for t in times for arrived in stream.tick(t * MS)]


def test_a_picture_is_late_noisy_and_of_when_it_was_taken() -> None:
    found = seen(CONFIG)
    assert len(found) == 20
    taken = np.array([a.t_ns // MS for _, a in found])
    assert np.all(np.diff(taken) == 50)
    late = np.array([t for t, _ in found]) - taken
    assert late.min() >= 30
    assert late.max() <= 36
    for _, arrived in found:
        assert abs(arrived.image.mean() - (80 + arrived.t_ns // (50 * MS))) < 0.5
        assert 0.5 < arrived.image.astype(float).std() < 3.0
        assert arrived.depth is None
    again = seen(CONFIG)
    assert all(
        np.array_equal(a.image, b.image) for (_, a), (_, b) in zip(found, again, strict=True)
    )
    assert not np.array_equal(found[0][1].image, seen(CONFIG, seed=1)[0][1].image)


def test_what_is_lost_is_not_repeated() -> None:
    some = seen(dataclasses.replace(CONFIG, dropout_rate=0.5), ms=4000)
    assert 20 < len(some) < 60
    assert np.all(np.diff([a.t_ns for _, a in some]) > 0)
    assert seen(dataclasses.replace(CONFIG, dropout_rate=1.0)) == []


def test_a_clock_that_jumps_skips_pictures() -> None:
    stream = PictureStream(CONFIG, light, np.random.default_rng(0))
    stream.tick(100 * MS)
    assert [a.t_ns // MS for a in stream.tick(1120 * MS)] == [100]
    # Due at 1100: taken late, and the next one when it is due.
    assert [a.t_ns // MS for a in stream.tick(1160 * MS)] == [1120]
    assert [a.t_ns // MS for a in stream.tick(1200 * MS)] == [1160]


def test_depth_comes_with_the_picture() -> None:
    config = dataclasses.replace(CONFIG, depth=DepthSensorConfig(holes=0.0))
    _, arrived = seen(config, ms=100)[0]
    assert arrived.depth is not None
    assert abs(float(np.median(arrived.depth[:, 20:])) - 1000.0) < 30.0
