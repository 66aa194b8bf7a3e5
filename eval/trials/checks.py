"""Checks a trial against itself: success, why the episode ended, how far it came, and whether its
names can be shown.
"""

from __future__ import annotations

import math

from robolearn.data.names import steering
from robolearn.types import TrialRecord

SUCCESS = "success"
# What reports print of a trial.
_NAMES = ("policy", "env", "engine", "suite", "condition", "reason", "operator", "alias")


def unshowable(record: TrialRecord) -> str:
    """What is wrong with its names, in words that can be printed; empty: nothing."""
    for name in _NAMES:
        found = steering(getattr(record, name))
        if found:
            return (
                f"its {name} has the control character {found} in it; expected a name of letters"
                " that can be seen"
            )
    return ""


def contradiction(record: TrialRecord) -> str:
    """What a trial says against itself, in words; empty: nothing.

    A digest only shows that a row is as somebody wrote it. Tables of earlier releases have none.
    """
    for signal, error in record.standard_errors.items():
        if len(error) != 2 or not all(0.0 <= v < math.inf for v in error):
            return (
                f"the standard error of '{signal}' is {list(error)}; expected that of the position"
                " [m] and of the rotation [rad], two numbers of at least 0"
            )
    if record.kind != "sim" or record.status != "finished":
        return ""
    if record.reason == SUCCESS and not record.success:
        return "it ended because it succeeded, and is not marked as a success"
    # A success that is not the reason why it ended was at least reached: progress was 1.
    if record.success and record.reason != SUCCESS and not record.judge and record.score < 1:
        return (
            f"it is marked as a success, but ended for the reason '{record.reason}' with the score"
            f" {record.score:.3f}"
        )
    if record.final_progress > record.score + 1e-9:
        return (
            f"its progress at the end ({record.final_progress:.3f}) is above its score, the highest"
            f" progress of the episode ({record.score:.3f})"
        )
    return ""
