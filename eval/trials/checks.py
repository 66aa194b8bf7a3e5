"""Checks a trial against itself: success, why the episode ended, and how far it came."""

from __future__ import annotations

from robolearn.types import TrialRecord

SUCCESS = "success"


def contradiction(record: TrialRecord) -> str:
    """What a simulated trial says against itself, in words; empty: nothing.

    A digest only shows that a row is as somebody wrote it. Tables of earlier releases have none.
    """
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
