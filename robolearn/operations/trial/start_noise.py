"""Says how far about a measured start simulated ones are drawn: as whoever measured it said, unless
something else is asked for; where nobody said anything it is assumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eval.trials.suites import in_space
from robolearn.errors import ConfigError
from robolearn.types import TrialRecord

# What a careful person and a good tracker leave: position [m], rotation [rad].
ASSUMED = (0.3e-3, 1.7e-3)
# After a value that nobody asked for.
_BY_CELL, _BY_NOBODY = " (said by the cell)", " (assumed)"


@dataclass(frozen=True, slots=True)
class StartNoise:
    """Standard deviations of starts about what was measured; None: as the trial says."""

    # Of positions [m].
    position_m: float | None = None
    # Of angles [rad].
    angle_rad: float | None = None

    def __post_init__(self) -> None:
        if not (0.0 <= (self.position_m or 0.0) < 0.1 and 0.0 <= (self.angle_rad or 0.0) < 1.0):
            raise ConfigError(
                "start noise: expected 0 to 0.1 m and 0 to 1 rad, got"
                f" {self.position_m} m, {self.angle_rad} rad"
            )

    @property
    def unsaid(self) -> tuple[float, float]:
        """Where a trial says nothing: position [m], angle [rad]."""
        position_m, angle_rad = ASSUMED
        return (
            position_m if self.position_m is None else self.position_m,
            angle_rad if self.angle_rad is None else self.angle_rad,
        )

    def said(self, record: TrialRecord) -> dict[str, tuple[float, float]]:
        """What the cell of a trial says by signal, as far as nothing else is asked for."""
        if None not in (self.position_m, self.angle_rad):
            return {}
        position_m, angle_rad = self.position_m, self.angle_rad
        return {
            signal: (
                error[0] if position_m is None else position_m,
                error[1] if angle_rad is None else angle_rad,
            )
            for signal, error in record.standard_errors.items()
            if signal in record.achieved
        }

    def words(self, records: Sequence[TrialRecord]) -> str:
        """How far starts of these real trials are drawn, and who said so."""
        by_words: dict[str, dict[str, None]] = {}
        for record in records:
            said = self.said(record)
            for signal, pose in record.achieved.items():
                if len(pose) in (2, 3) or in_space(signal, pose):
                    by_words.setdefault(self._words(said, signal), {})[signal] = None
        if not by_words:
            by_words = {self._words({}, ""): {}}
        start = "starts are drawn about the measured ones"
        if len(by_words) == 1:
            return f"{start} with {next(iter(by_words))}"
        parts = (f"{', '.join(sorted(names))} with {text}" for text, names in by_words.items())
        return f"{start}: {'; '.join(parts)}"

    def _words(self, said: Mapping[str, tuple[float, float]], signal: str) -> str:
        position_m, angle_rad = said.get(signal, self.unsaid)
        source = _BY_CELL if signal in said else _BY_NOBODY
        first = source if self.position_m is None else ""
        second = source if self.angle_rad is None else ""
        return f"{1e3 * position_m:g} mm{first} and {1e3 * angle_rad:g} mrad{second}"


AS_SAID = StartNoise()
