"""Numbers what slows an arm that is asked for more than it can do, and adds up how long it did."""

from __future__ import annotations

import enum
from collections.abc import Sequence


class Slowed(enum.IntEnum):
    """What slowed the arm, the most telling first; also the number of its cause in the signal
    ``supervisor/event``, where each holds until the next of them.
    """

    SINGULARITY = 54
    JOINT_LIMIT = 55
    JOINT_SPEED = 56
    OVER = 57  # nothing slows it any more

    @property
    def words(self) -> str:
        """For a person."""
        return _WORDS[self]


_WORDS = {
    Slowed.SINGULARITY: "near a singularity",
    Slowed.JOINT_LIMIT: "before a joint's limit",
    Slowed.JOINT_SPEED: "a joint has its full speed",
    Slowed.OVER: "by nothing",
}


def slowed_spans(
    causes: Sequence[int], t_ns: Sequence[int], until_ns: int
) -> list[tuple[Slowed, int, int]]:
    """What slowed the arm, from when and until when [ns], of all causes that were told and their
    times, until ``until_ns``.
    """
    known = {int(v) for v in Slowed}
    told = [(Slowed(c), t) for c, t in zip(causes, t_ns, strict=True) if c in known]
    ends = [*(t for _, t in told[1:]), until_ns]
    return [
        (slowed, begin, max(begin, end))
        for (slowed, begin), end in zip(told, ends, strict=False)
        if slowed is not Slowed.OVER
    ]
