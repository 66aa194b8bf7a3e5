"""Finds a planar scene's physics from recordings alone.

    recordings -> windows in which the block is pushed -> rollouts -> residuals -> parameters

Stage 1, bounded least squares on one-second windows (errors after 0.5 and 1 s), gets near the
optimum in a few dozen evaluations. Pushing is not smooth (corners are hit or missed), so stage 2
polishes by a direct search (Nelder-Mead) on three-second windows, where small errors have grown.
Parameters are searched as logarithms; the loss is soft-L1, because a window that goes another way
at a corner says nothing about the parameters.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, minimize

from robolearn.data.episode import Episode
from robolearn.errors import DataError
from robolearn.pusht import wrap_angle
from robolearn.shapes import AnyFloats, Floats
from sim.identification.planar_rollouts import Physics, PlanarRollouts, Track, pushes
from sim.identification.replay import ErrorSummary, ReplayError, summarize_after, summarize_final
from sim.scene.config import Scene

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class IdentifyConfig:
    """How the search is done. Bounds are physical ranges, wide around any table and block."""

    seed: int = 0
    train_episodes: int = 40
    heldout_episodes: int = 60
    windows: int = 60
    least_push_m: float = 0.01
    # Rotation counts as if at this distance from the centre [m/rad]: half the block's width.
    lever_m: float = 0.06
    first_s: tuple[float, float] = (0.5, 1.0)
    first_scale_mm: float = 3.0
    first_evaluations: int = 15
    polish_s: tuple[float, float] = (1.0, 3.0)
    polish_scale_mm: float = 0.3
    polish_evaluations: int = 120
    friction: tuple[float, float] = (1e-4, 1.5)
    gyration_m2: tuple[float, float] = (3e-4, 2e-2)
    com_m: tuple[float, float] = (0.01, 0.1)
    compliance: tuple[float, float] = (1e-3, 1.0)


@dataclass(frozen=True, slots=True)
class Identified:
    """The result. Errors are of held-out episodes, replayed whole and open loop."""

    before: Physics
    after: Physics
    heldout_before: tuple[ReplayError, ...]
    heldout_after: tuple[ReplayError, ...]
    residual_before_mm: float
    residual_after_mm: float
    windows: int
    evaluations: int
    duration_s: float
    train_ids: tuple[str, ...]
    heldout_ids: tuple[str, ...]


# Finite differences of the logarithms: large against the landscape's roughness.
FIRST_STEP = np.array([0.3, 0.03, 0.02, 0.3])
# Where the polish looks for a contact stiffness to start from.
COMPLIANCES = (0.01, 0.03, 0.1, 0.3)
# First simplex of the polish.
POLISH_STEP = np.array([-1.0, 0.03, 0.02, 0.7])


def identify(
    episodes: Sequence[Episode], template: Scene, config: IdentifyConfig, note: Note | None = None
) -> Identified:
    """Fit the template's physics to some of the episodes and check it on others.

    Raises :class:`DataError` when the episodes hold too little pushing.
    """
    started = time.monotonic()
    tell: Note = note or (lambda _text: None)
    rollouts = PlanarRollouts(template)
    train, heldout = split(episodes, config)
    train_tracks = [rollouts.track(e) for e in train]
    heldout_tracks = [rollouts.track(e) for e in heldout]
    before = rollouts.physics()
    heldout_before = replay_tracks(rollouts, heldout_tracks)
    fit = _Fit(rollouts, train_tracks, config)
    start = fit.clip(np.log(dataclasses.astuple(before)))
    tell(f"{fit.count} windows of {len(train)} episodes; checked on {len(heldout)} others")
    residual_before = fit.median_mm(start)
    found = fit.least_squares(start)
    tell(f"least squares: {fit.evaluations} evaluations, {describe(_physics(found))}")
    found = fit.polish(found)
    tell(f"direct search: {fit.evaluations} evaluations, {describe(_physics(found))}")
    after = rounded(_physics(found))
    residual_after = fit.median_mm(np.log(dataclasses.astuple(after)))
    rollouts.set_physics(after)
    return Identified(
        before=before,
        after=after,
        heldout_before=heldout_before,
        heldout_after=replay_tracks(rollouts, heldout_tracks),
        residual_before_mm=residual_before,
        residual_after_mm=residual_after,
        windows=fit.count,
        evaluations=fit.evaluations,
        duration_s=time.monotonic() - started,
        train_ids=tuple(e.id for e in train),
        heldout_ids=tuple(e.id for e in heldout),
    )


def split(
    episodes: Sequence[Episode], config: IdentifyConfig
) -> tuple[list[Episode], list[Episode]]:
    """Draw training and held-out episodes, disjoint; with few episodes, two fifths train."""
    count = len(episodes)
    if count < 2:
        raise DataError(
            f"identification needs at least 2 episodes (to check on others), got {count}"
        )
    train = max(1, min(config.train_episodes, round(0.4 * count)))
    order = np.random.default_rng(config.seed).permutation(count)
    chosen = order[:train]
    checked = order[train : train + config.heldout_episodes]
    return [episodes[i] for i in sorted(chosen)], [episodes[i] for i in sorted(checked)]


def replay_tracks(rollouts: PlanarRollouts, tracks: Sequence[Track]) -> tuple[ReplayError, ...]:
    """Whole episodes, open loop, with the physics that ``rollouts`` has now."""
    errors: list[ReplayError] = []
    for track in tracks:
        path = rollouts.roll(track, 0, len(track.block) - 1)
        errors.append(
            ReplayError(
                episode=track.episode,
                rate_hz=rollouts.rate_hz,
                position_m=np.linalg.norm(path[:, :2] - track.block[:, :2], axis=1),
                rotation_rad=np.abs(wrap_angle(path[:, 2] - track.block[:, 2])),
                path=path,
                recorded=track.block,
            )
        )
    return tuple(errors)


def heldout_summary(errors: Sequence[ReplayError], after_s: float) -> ErrorSummary:
    """Errors after ``after_s`` seconds, or at the end where no episode is that long."""
    summary = summarize_after(errors, after_s)
    return summary if summary.episodes else summarize_final(errors)


def describe(physics: Physics) -> str:
    """One line for people."""
    return (
        f"contact friction {physics.friction:.4f}, gyration^2 {physics.gyration_m2:.6f} m^2,"
        f" centre of mass {physics.com_m * 1e3:.2f} mm, compliance {physics.compliance:.4f}"
    )


def rounded(physics: Physics) -> Physics:
    """Six significant digits, as MJCF stores them: what is written is what was checked."""
    return Physics(*(float(f"{v:.6g}") for v in dataclasses.astuple(physics)))


def _physics(logs: Floats) -> Physics:
    return Physics(*(float(v) for v in np.exp(logs)))


class _Fit:
    """Residuals of the current windows, and the two searches."""

    def __init__(
        self, rollouts: PlanarRollouts, tracks: Sequence[Track], config: IdentifyConfig
    ) -> None:
        self._rollouts, self._tracks, self._config = rollouts, tracks, config
        bounds = (config.friction, config.gyration_m2, config.com_m, config.compliance)
        self._low = np.log([b[0] for b in bounds])
        self._high = np.log([b[1] for b in bounds])
        self._rng = np.random.default_rng(config.seed)
        self.evaluations = 0
        self._first = self._windows(config.first_s)
        self._polish = self._windows(config.polish_s)
        if not self._first:
            raise DataError(
                f"no one-second window of {len(tracks)} episodes moves the block by"
                f" {config.least_push_m * 1e3:g} mm; use more episodes"
            )

    @property
    def count(self) -> int:
        """Number of one-second windows."""
        return len(self._first)

    def clip(self, logs: Floats) -> Floats:
        """Strictly inside the bounds, as least squares needs its start."""
        return np.clip(logs, self._low + 1e-6, self._high - 1e-6)

    def median_mm(self, logs: Floats) -> float:
        """Median distance [mm] at the end of the one-second windows, rotation included."""
        rows = self._residuals(logs, self._first, self._config.first_s).reshape(-1, 2, 3)
        return float(np.median(np.linalg.norm(rows[:, 1], axis=1)))

    def least_squares(self, start: Floats) -> Floats:
        """Stage 1."""
        config = self._config

        def residuals(logs: Floats) -> AnyFloats:
            return self._residuals(logs, self._first, config.first_s)

        def jacobian(logs: Floats) -> AnyFloats:
            here = residuals(logs)
            steps = np.where(logs + FIRST_STEP < self._high, FIRST_STEP, -FIRST_STEP)
            columns = [(residuals(logs + d) - here) / d[k] for k, d in enumerate(np.diag(steps))]
            return np.stack(columns, axis=1)

        found = least_squares(
            residuals,
            start,
            jac=jacobian,  # pyright: ignore[reportArgumentType] (the stub knows only str)
            bounds=(self._low, self._high),
            loss="soft_l1",
            f_scale=config.first_scale_mm,
            x_scale="jac",
            max_nfev=config.first_evaluations,
            xtol=1e-3,
            ftol=1e-3,
        )
        return self.clip(found.x)

    def polish(self, start: Floats) -> Floats:
        """Stage 2; without long windows the start is the answer."""
        if not self._polish or self._config.polish_evaluations < 1:
            return start
        scale = self._config.polish_scale_mm

        def cost(logs: Floats) -> float:
            inside = np.clip(logs, self._low, self._high)
            z = self._residuals(inside, self._polish, self._config.polish_s) / scale
            return float(np.sum(np.sqrt(1.0 + z * z) - 1.0))

        # The cost hardly changes with a stiff contact's compliance, so least squares can end in
        # the wrong half of its range: look across it once.
        starts = [start, *(np.append(start[:3], v) for v in np.log(COMPLIANCES))]
        best = min(starts, key=cost)
        found = minimize(
            cost,
            best,
            method="Nelder-Mead",
            options={
                "initial_simplex": np.stack([best, *(best + np.diag(POLISH_STEP))]),
                "maxfev": self._config.polish_evaluations,
                "xatol": 1e-3,
                "fatol": 1e-3,
            },
        )
        return np.clip(found.x, self._low, self._high)

    def _windows(self, horizon_s: tuple[float, float]) -> list[tuple[int, int]]:
        found = pushes(self._tracks, self._rollouts.ticks(horizon_s[1]), self._config.least_push_m)
        order = self._rng.permutation(len(found))[: self._config.windows]
        return [found[i] for i in sorted(order)]

    def _residuals(
        self, logs: Floats, windows: Sequence[tuple[int, int]], at_s: tuple[float, float]
    ) -> AnyFloats:
        self.evaluations += 1
        rollouts, lever_m = self._rollouts, self._config.lever_m
        rollouts.set_physics(_physics(logs))
        ticks = [rollouts.ticks(t) for t in at_s]
        rows = np.empty((len(windows), 2, 3))
        for row, (i, start) in zip(rows, windows, strict=True):
            track = self._tracks[i]
            path = rollouts.roll(track, start, ticks[-1])
            row[:] = path[ticks] - track.block[[start + k for k in ticks]]
        rows[:, :, 2] = wrap_angle(rows[:, :, 2]) * lever_m
        return rows.ravel() * 1e3
