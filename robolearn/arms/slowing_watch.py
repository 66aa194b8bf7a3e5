"""Tells what slows the arm, and when nothing does any more: not the flicker of single ticks."""

from __future__ import annotations

from robolearn.arms.differential import Limited
from robolearn.arms.slowing import Slowed

# Whatever lasts for less is not told, and what comes back within this is one [s].
_BRIEF_S, _LINGER_S = 0.04, 0.2


# What a step was limited by, and how that is told; of several things the first.
_SLOWED_BY = (
    (Limited.SINGULAR.value, Slowed.SINGULARITY),
    (Limited.MARGIN.value, Slowed.JOINT_LIMIT),
    (Limited.SPEED.value, Slowed.JOINT_SPEED),
)


class SlowingWatch:
    """Looks at every tick; allocates nothing."""

    def __init__(self, rate_hz: float) -> None:
        # Ticks with and without, so that every other tick counts, too.
        self._needed = max(1, round(2 * _BRIEF_S * rate_hz))
        self._linger = max(1, round(_LINGER_S * rate_hz))
        self._seen, self._left = [0] * len(_SLOWED_BY), [0] * len(_SLOWED_BY)
        self._told = Slowed.OVER
        # Nothing is remembered that a period without limits would change.
        self._calm = True

    def changed(self, limited: Limited) -> Slowed | None:
        """What is to be told after a tick in which that held the arm back; None: nothing new."""
        if limited is Limited.NONE and self._calm:
            return None
        bits, seen, left, now = limited.value, self._seen, self._left, Slowed.OVER
        for k, (bit, slowed) in enumerate(_SLOWED_BY):
            if bits & bit:
                seen[k] = min(seen[k] + 2, self._needed)
                if left[k] or seen[k] >= self._needed:
                    left[k] = self._linger
            else:
                seen[k] = max(seen[k] - 1, 0)
                left[k] = max(left[k] - 1, 0)
            if left[k] and now is Slowed.OVER:
                now = slowed
        self._calm = not (any(seen) or any(left))
        if now is self._told:
            return None
        self._told = now
        return now
