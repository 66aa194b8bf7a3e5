"""Moves two fingers that an emulated gripper's controller pulls to a distance."""

from __future__ import annotations

from hardware.emulators.plant import FingerPlant

# Fingers that are this far from where they are pulled and move less than that in 0.1 s are held.
_AWAY_M, _STILL_M, _STILL_NS = 0.0015, 0.0002, 100_000_000


class FingerServo:
    """A plant's fingers, or none but a number; open at the start.

    :attr:`object_m`: width of what lies between fingers that are no plant's [m]; 0 for nothing.
    :attr:`held`: they stopped on something; :attr:`opening`: and that was while they opened.
    """

    def __init__(self, fingers: FingerPlant | None, stroke_m: float) -> None:
        self._fingers = fingers
        self.stroke_m = stroke_m if fingers is None else fingers.stroke_m
        self.width_m = self._pulled_m = self._still_m = self.stroke_m
        self.object_m = 0.0
        self.held = self.opening = False
        self._still_ns = self._last_ns = 0

    def step(self, now_ns: int, goal_m: float, speed_m_s: float, force_share: float) -> None:
        """Pull on towards ``goal_m``, with a share of the plant's force."""
        step_m = speed_m_s * self._passed_s(now_ns)
        goal_m = max(0.0, min(self.stroke_m, goal_m))
        if self._fingers is not None:
            self._pull(self._fingers, goal_m, step_m, force_share, now_ns)
            return
        away = goal_m - self.width_m
        target = self.width_m + max(-step_m, min(step_m, away))
        self.held = away < 0 and target <= self.object_m
        self.width_m = max(target, self.object_m) if away < 0 else target

    def rest(self, now_ns: int) -> None:
        """Time passes without a pull."""
        self._passed_s(now_ns)

    def _passed_s(self, now_ns: int) -> float:
        passed_s = 0.0 if self._last_ns == 0 else max(0, now_ns - self._last_ns) * 1e-9
        self._last_ns = now_ns
        return passed_s

    def _pull(
        self, fingers: FingerPlant, goal_m: float, step_m: float, force_share: float, now_ns: int
    ) -> None:
        """Pull the plant's fingers on, and see whether something is between them."""
        self._pulled_m += max(-step_m, min(step_m, goal_m - self._pulled_m))
        fingers.set_target(self._pulled_m, force_share)
        self.width_m = fingers.width()
        if abs(self.width_m - self._still_m) > _STILL_M:
            self._still_m, self._still_ns = self.width_m, now_ns
        lag = self._pulled_m - self.width_m
        self.held = now_ns - self._still_ns > _STILL_NS and abs(lag) > _AWAY_M
        self.opening = lag > 0
