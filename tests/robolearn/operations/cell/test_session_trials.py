"""Faults of a person's sessions on an arm, with ``-m slow`` (see ``session_trials.py``)."""

import pytest

from tests.robolearn.operations.cell.session_trials import FAULTS, run, text


@pytest.mark.slow
def test_sessions_that_meet_faults_lose_no_kept_episode_and_leave_an_arm_at_rest():
    outcomes, trials = run(6 * len(FAULTS))
    print(text(outcomes))
    assert [o.wrong for o in outcomes if o.wrong] == [], text(outcomes)
    assert len(trials.kept) > len(FAULTS)
