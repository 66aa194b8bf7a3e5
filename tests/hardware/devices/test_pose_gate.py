"""What an object can do between two measurements, and what it cannot."""

import dataclasses

import numpy as np
import pytest

from hardware.devices.pose_gate import PlausibleMotion, PoseGate
from robolearn.errors import ConfigError

FRAME_NS = 16_666_667
MOTION = PlausibleMotion()


def gate(max_age_s=0.15, **changes):
    return PoseGate("block/pose", dataclasses.replace(MOTION, **changes), max_age_s)


def still(made, frames=10, at=(0.2, 0.2, 0.3)):
    """An object that rests; the time after."""
    for k in range(frames):
        assert made.accepts(k * FRAME_NS, np.array(at))
    return frames * FRAME_NS


@pytest.mark.parametrize("jump", [(0.3, 0.0, 0.0), (0.0, -0.15, 0.0), (0.0, 0.0, 1.5)])
def test_a_jump_between_two_frames_is_refused_and_told(jump, caplog):
    made = gate()
    t_ns = still(made)
    elsewhere = np.array((0.2, 0.2, 0.3)) + jump
    for k in range(5):
        assert not made.accepts(t_ns + k * FRAME_NS, elsewhere)
    assert made.refused == 5
    assert ("turn" if jump[2] else "m") in made.refusal
    assert len(caplog.records) == 1, "told once, not at every frame"
    assert made.accepts(t_ns + 5 * FRAME_NS, np.array((0.2, 0.2, 0.3)))
    assert made.refusal == ""


def test_the_time_spent_on_refused_measurements_makes_them_no_better():
    made = gate()
    t_ns = still(made)
    taken = [made.accepts(t_ns + k * FRAME_NS, np.array((0.5, 0.2, 0.3))) for k in range(59)]
    assert not any(taken)


def test_a_place_that_settles_is_believed_after_the_last_good_pose_was_stale():
    made = gate(max_age_s=0.8)
    t_ns = still(made)
    first = next(
        k for k in range(200) if made.accepts(t_ns + k * FRAME_NS, np.array((0.5, 0.2, 0.3)))
    )
    assert first * FRAME_NS >= 1.3e9
    # Noise without a place never settles.
    made = gate()
    t_ns = still(made)
    rng = np.random.default_rng(0)
    wild = [rng.uniform(0.4, 3.0, 3) for _ in range(200)]
    assert not any(made.accepts(t_ns + k * FRAME_NS, p) for k, p in enumerate(wild))


def test_a_headings_turn_over_pi_is_no_turn():
    made = gate()
    t_ns = still(made, at=(0.2, 0.2, np.pi - 0.01))
    assert made.accepts(t_ns, np.array((0.2, 0.2, -np.pi + 0.01)))


def test_without_a_motion_everything_is_believed():
    made = PoseGate("block/pose", None, 0.15)
    assert all(made.accepts(k, np.array((k, -k, k), float)) for k in range(5))


@pytest.mark.parametrize("name", ["max_speed", "max_acceleration", "max_turn_rate", "settle_s"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_motion_that_would_switch_the_gate_off_is_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        PlausibleMotion(**{name: value})


@pytest.mark.parametrize("noise", [0.0, 0.0005, 0.0015])
@pytest.mark.parametrize("seed", range(20))
def test_a_pushed_object_is_believed_at_every_frame(seed, noise):
    """Pushes of up to 0.5 m/s that begin at once, with noise and lost frames."""
    rng = np.random.default_rng(seed)
    made = gate()
    pose, velocity = np.array((0.25, 0.25, 0.0)), np.zeros(3)
    for k in range(120):
        if rng.random() < 0.05:
            angle = rng.uniform(-np.pi, np.pi)
            speed = rng.uniform(0.0, 0.5)
            velocity = np.array((speed * np.cos(angle), speed * np.sin(angle), rng.uniform(-4, 4)))
        pose = pose + velocity * FRAME_NS * 1e-9
        seen = pose + np.array((*rng.normal(0, noise, 2), rng.normal(0, 5 * noise)))
        if rng.random() < 0.2:
            continue
        assert made.accepts(k * FRAME_NS, seen), made.refusal


def in_space(at=(0.2, 0.2, 0.3), turn=0.0):
    return np.array([*at, np.cos(turn / 2), 0.0, np.sin(turn / 2), 0.0])


@pytest.mark.parametrize(
    ("jump", "told"), [(in_space((0.2, 0.2, 0.45)), "m in"), (in_space(turn=1.5), "turn")]
)
def test_in_space_height_and_tilt_count(jump, told):
    made = gate()
    for k in range(10):
        # A quaternion and its opposite are one rotation.
        assert made.accepts(k * FRAME_NS, in_space() * np.array([1, 1, 1, *[(-1) ** k] * 4]))
    assert not made.accepts(10 * FRAME_NS, jump)
    assert told in made.refusal
    assert made.accepts(11 * FRAME_NS, in_space())
    # Lifted at 0.5 m/s, after an impact.
    lifted = [in_space((0.2, 0.2, 0.3 + 0.5e-9 * k * FRAME_NS)) for k in range(30)]
    assert all(made.accepts((12 + k) * FRAME_NS, p) for k, p in enumerate(lifted))
