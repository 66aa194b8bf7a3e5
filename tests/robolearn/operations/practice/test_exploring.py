"""What an explorer proposes moves no arm beyond its limits (see ``exploring_trials.py``)."""

import numpy as np
import pytest

from hardware.emulators.ur.motion import JointMotion, MotionLimits
from tests.hardware.outside_trials import tool_path
from tests.hardware.workcell import FOLLOWER, TICK_NS, Cell
from tests.robolearn.operations.practice.exploring_trials import PROPOSALS, run, text


def shares(q: np.ndarray) -> tuple[float, float]:
    """Largest joint speed and acceleration of the tool in a path ``[n, 6]``, of their limits."""
    limits, period_s = FOLLOWER.limits, 1e-9 * TICK_NS
    speed = np.abs(np.diff(q, axis=0)).max() / period_s
    bend = np.linalg.norm(np.diff(tool_path(q), n=2, axis=0), axis=1).max() / period_s**2
    return float(speed / limits.max_joint_speed), float(bend / limits.max_tool_acceleration)


def at_the_servos(q: np.ndarray, late: frozenset[int] = frozenset()) -> np.ndarray:
    """The reference that an emulated UR's servos follow, of set-points ``[n, 6]``, one per period;
    those of the periods ``late`` come with the next one.
    """
    motion, out = JointMotion(q[0], MotionLimits()), []
    for k, row in enumerate(q):
        if k not in late:
            motion.servo(row, 0.002, 0.03, 500.0, 0.1)
        motion.step(0.002)
        out.append(motion.q.copy())
    return np.array(out)


@pytest.mark.parametrize("kind", ["corners", "random corners"])
def test_what_is_sent_for_an_explorer_stays_below_every_limit(kind: str) -> None:
    """Of proposals that ask for all that the limits allow: what the supervisor sends is strictly
    below them, and so is what servos make of it that get it in time.
    """
    rng, cell = np.random.default_rng(0), Cell(start=(0.25, 0.25))
    try:
        cell.follow()
        for k in range(12):
            cell.command(PROPOSALS[kind](k, rng))
            cell.run(0.1)
        q = np.array([row for _, row in cell.robot.sent])
    finally:
        cell.close()
    sent, served = shares(q), shares(at_the_servos(q))
    # They did ask for it, and got nearly all of it.
    assert 0.95 < sent[1] < 1.0
    assert max(sent) < 1.0
    assert max(served) < 1.0
    # What was seen above the limit at servos is a set-point that came a period late, no other path.
    # Many bend nearly as much; which one bends most is a matter of the last bits.
    bends = np.linalg.norm(np.diff(tool_path(q), n=2, axis=0), axis=1)
    late = [shares(at_the_servos(q, frozenset({int(k)})))[1] for k in np.argsort(bends)[-20:]]
    assert 1.0 < max(late) < 2.0


@pytest.mark.slow
def test_no_proposal_moves_an_arm_beyond_its_limits() -> None:
    outcomes = run(len(PROPOSALS))
    assert [o.wrong for o in outcomes if o.wrong] == [], text(outcomes)
    ended = {o.kind: o.ended for o in outcomes}
    # Whoever asks for nothing but places far outside is stopped, and the next episode flies.
    assert (ended["outside"], ended["huge"]) == ("safety_stop", "safety_stop"), text(outcomes)
    assert "non-finite" in ended["not a number"]
