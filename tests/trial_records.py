"""Makes trials for tests: one finished failure in simulation, with what a test says otherwise."""

from __future__ import annotations

import dataclasses
from typing import Any

from robolearn.types import TrialRecord

_USUAL = TrialRecord(
    policy="a",
    policy_hash="hash-a",
    env="world",
    env_hash="w1",
    engine="engine 1",
    kind="sim",
    condition="c0",
    seed=0,
    success=False,
    score=0.0,
    final_progress=0.0,
    return_=0.0,
    steps=1,
    duration_s=0.1,
    reason="time_limit",
    commit="c",
    suite="s@1",
)
# A row of a cell before anything is known of it.
_ON_CELL = dataclasses.replace(
    _USUAL, engine="robot", kind="robot", reason="", commit="", suite="", steps=0, duration_s=0.0
)


def record(**changes: Any) -> TrialRecord:
    """A simulated trial with these fields."""
    return dataclasses.replace(_USUAL, **changes)


def on_cell(**changes: Any) -> TrialRecord:
    """A trial of a robot with these fields."""
    return dataclasses.replace(_ON_CELL, **changes)
