"""Some deployments that are killed; all of them with ``-m slow`` (see ``kill_trials.py``)."""

import pytest

from tests.robolearn.operations.deploy.kill_trials import run, text


def judge(outcomes, least):
    assert [o.wrong for o in outcomes if o.wrong] == [], text(outcomes)
    assert sum(o.place != "ended by itself" for o in outcomes) > least, text(outcomes)


def test_a_killed_deployment_loses_no_trial_and_leaves_an_arm_at_rest():
    judge(run(1, seed=3), 0)


@pytest.mark.slow
def test_all_deployments_that_are_killed():
    outcomes = run(50)
    print(text(outcomes))
    judge(outcomes, 45)
