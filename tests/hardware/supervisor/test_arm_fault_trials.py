"""Randomised faults of serial arms and of the xArm: no hang, typed errors, an explicit way back."""

import os

import pytest

from tests.hardware.arm_fault_trials import trials

ROOT_ONLY = pytest.mark.skipif(
    os.geteuid() != 0, reason="the xArm SDK's port 502 is open to root only"
)
KINDS = ["feetech", "dynamixel", pytest.param("xarm", marks=ROOT_ONLY)]


@pytest.mark.parametrize("count", [4, pytest.param(70, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_every_fault_is_told_and_the_arm_rests(kind, count):
    done = list(trials(kind, count, seed=count, slack_s=0.1))
    assert len(done) == count
