"""What an explorer proposes moves no arm beyond its limits (see ``exploring_trials.py``)."""

import pytest

from tests.robolearn.operations.practice.exploring_trials import PROPOSALS, run, text


@pytest.mark.slow
def test_no_proposal_moves_an_arm_beyond_its_limits() -> None:
    outcomes = run(len(PROPOSALS))
    assert [o.wrong for o in outcomes if o.wrong] == [], text(outcomes)
    ended = {o.kind: o.ended for o in outcomes}
    # Whoever asks for nothing but places far outside is stopped, and the next episode flies.
    assert (ended["outside"], ended["huge"]) == ("safety_stop", "safety_stop"), text(outcomes)
    assert "non-finite" in ended["not a number"]
