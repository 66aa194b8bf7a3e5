"""A deployment that goes on after stops hides none; all of them with ``-m slow``."""

from __future__ import annotations

import dataclasses

import pytest

from tests.robolearn.operations.deploy.stop_trials import STEPS, run, wrong_rows
from tests.trial_records import on_cell

DONE = on_cell(
    policy="walk",
    policy_hash="walk",
    env="lab",
    env_hash="",
    engine="virtual lab",
    kind="lab",
    condition="c00",
    steps=STEPS,
    duration_s=2.5,
    reason="time_limit",
    episode="ep_000000",
)
NOTE = "SafetyStopError: robot_fault (safety mode PROTECTIVE_STOP)"
CUT = dataclasses.replace(DONE, condition="c01", status="aborted", reason="safety_stop", note=NOTE)
ANEW = dataclasses.replace(CUT, status="voided")


def test_a_table_that_hides_a_stop_or_a_trial_is_found() -> None:
    assert wrong_rows([DONE, ANEW, CUT], 2, 2) == ""
    assert "tell of 2 protective stops" in wrong_rows([DONE, CUT], 2, 2)
    assert "conditions that count" in wrong_rows([DONE, ANEW], 2, 1)
    assert "without an explanation" in wrong_rows(
        [DONE, dataclasses.replace(CUT, reason="robot")], 2, 1
    )


@pytest.mark.slow
def test_stops_in_a_deployment_that_goes_on() -> None:
    outcome = run(8)
    assert outcome.wrong == "", outcome
    assert outcome.caused > 2, outcome
