"""What came of randomised fault trials, one by one and per kind of fault."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

# A trial that the machine under the emulated controller spoiled; it is made again.
STALLED = "stalled"


def outcome_text(outcomes, kind, figures):
    """One line per ``kind(outcome)``, with how many were wrong and ``figures`` of them; then what
    was wrong.
    """
    lines = []
    for name in sorted({kind(o) for o in outcomes}):
        mine = [o for o in outcomes if kind(o) == name]
        wrong = sum(bool(o.wrong) for o in mine)
        lines.append(f"{name}: {len(mine)} trials, {wrong} wrong; {figures(mine)}")
    return "\n".join([*lines, *(f"WRONG {o}" for o in outcomes if o.wrong)])


def at_rest(outcomes) -> str:
    """When the arm came to rest behind what happened."""
    rest = 1e3 * np.array([o.rest_s for o in outcomes])
    return f"at rest after p50 {np.median(rest):.0f}, max {rest.max():.0f} ms"


@dataclass(frozen=True)
class Trial:
    """What happened, at the controller: from the fault to rest, how much was allowed, from which
    speed (of the tool [m/s], or of a joint [rad/s] in a link trial), until the set-points stood
    still, how long the controller had no ticks; and what was wrong ("" if nothing was).
    """

    fault: str
    rest_s: float
    wrong: str
    error_s: float = 0.0
    error: str = ""
    allowed_s: float = math.nan
    speed: float = math.nan
    still_s: float = 0.0
    lost_s: float = 0.0


@dataclass
class Tally:
    """All trials of a run."""

    trials: list[Trial] = field(default_factory=list)

    @property
    def real(self) -> list[Trial]:
        """Those that count: neither stalled nor without a link yet."""
        return [t for t in self.trials if t.fault != STALLED and not t.fault.startswith("no ")]

    def text(self) -> str:
        """One line per kind of fault."""
        lines = []
        for fault in sorted({t.fault for t in self.trials}):
            mine = [t for t in self.trials if t.fault == fault]
            rest = 1e3 * np.array([t.rest_s for t in mine])
            wrong = sum(bool(t.wrong) for t in mine)
            told = 1e3 * max(t.error_s for t in mine)
            line = f"{fault:<15} {len(mine):>4} trials, {wrong} wrong"
            if mine[0] in self.real:
                room = rest - 1e3 * np.array([t.allowed_s for t in mine])
                line += (
                    f"; rest after p50 {np.median(rest):.0f} ms, max {rest.max():.0f} ms, at most"
                    f" {room.max():+.0f} ms of what is allowed; error within {told:.0f} ms"
                )
            lines.append(line)
        lines += [f"{STALLED}: {t.error}" for t in self.trials if t.fault == STALLED]
        lines += [f"WRONG {t.fault}: {t.wrong}" for t in self.trials if t.wrong]
        return "\n".join([f"{len(self.real)} trials", *lines])
