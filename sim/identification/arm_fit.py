"""Fits the unknowns of an arm's model to recorded motions: bounded Levenberg-Marquardt.

The weighted squares of all joints' errors are minimised together with those of the distance from
what is believed before any data (the scene's own values, believed only roughly), so that what the
data do not tell stays as it was. One Jacobian costs as many rollouts as there are *kinds* of
parameters: a joint's own parameters hardly move the other joints of a servoed arm, so those of one
kind are varied at once (Curtis, Powell and Reid, 1974). Those of the last steps are complete, and
that of the solution, from which intervals come, is from both sides, too. Several starts are tried
on a part of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.arms.shapes import Joints
from robolearn.calibration.latency import TimeSeries, latency
from robolearn.errors import DataError
from robolearn.shapes import FloatRows, OwnFlags, OwnIndex
from sim.identification.arm_model import ArmModel, UnknownRows, Unknowns
from sim.identification.arm_rollouts import COMPARE_HZ, Answers, ArmRollouts, Track

# One row per compared joint angle, one column per unknown that is searched.
Jacobian = Float64[NDArray[np.float64], "rows f"]
Costs = Float64[NDArray[np.float64], " v"]
Residuals = Float64[NDArray[np.float64], " rows"]
ResidualRows = Float64[NDArray[np.float64], "v rows"]
# Of those that are searched alone.
Searched = Float64[NDArray[np.float64], " f"]
Square = Float64[NDArray[np.float64], "f f"]
Covariance = Float64[NDArray[np.float64], "p p"]

# Errors below this are the measurement's, not the model's [rad].
FINEST_RAD = 2e-5
_START_RAD = 1e-3
# Noise that is alike over this long counts once [s].
_BLOCK_S = 0.5
_DAMPINGS = (0.03, 1.0, 30.0)
_LAST_DAMPINGS = (1e-3, 1.0, 100.0, 1e4)
_FIRST_SMOOTHING_S = 0.015
# How much of the delay is a filter's, in the other starts.
_SHARES = (0.5, 0.8)
# While so little is known, no step is longer than this many beliefs: a servo that has grown thirty
# times as stiff moves nothing any more, so nothing leads back.
_FIRST_STEP = 0.5
# Half a squared standard deviation more would be within the noise.
_ENOUGH = 0.05
# Parameters that meet a border in one step are found in so many rounds.
_BORDERS = 6
# Steps to one side only are this much of those to both sides, whose error is of second order.
_ONE_SIDED = 0.1


@dataclass(frozen=True, slots=True)
class FitConfig:
    """How hard to search."""

    # Starting points drawn around the scene's own, besides those with its values that share the
    # delay between filter and wait in three ways.
    starts: int = 0
    # Iterations from every start, on the first seconds [s] of the data.
    first_iterations: int = 2
    first_s: float = 10.0
    # Iterations on all of the data, at most.
    iterations: int = 5
    # ... and with complete Jacobians, each at one rollout per unknown.
    last_iterations: int = 3
    seed: int = 0
    threads: int = 2


@dataclass(frozen=True, slots=True)
class Evidence:
    """The problem near its solution: which unknowns ``free [f]`` were searched, errors over noise
    ``residuals [rows]`` (all joints of a time, then the next time) with their ``jacobian [rows,
    f]``, what was believed before ``belief [f]`` and how it pulls at the solution ``pull [f]``,
    ``noise [j]`` [rad], and how many rows count as one measurement.
    """

    free: OwnIndex
    jacobian: Jacobian
    residuals: Residuals
    pull: Searched
    belief: Searched
    noise: Joints
    block: int


@dataclass(frozen=True, slots=True)
class Fitted:
    """Where the search ended: the unknowns ``x [p]``, which of them were searched, the covariance
    ``[p, p]`` of these (zero elsewhere), the standard deviation of each were all others known
    ``[p]``, how far it still is to the optimum ``left [p]`` (to first order; intervals are as much
    wider), and the standard error of the joints' errors ``noise [j]`` [rad].
    """

    x: Unknowns
    searched: OwnFlags
    covariance: Covariance
    alone: Unknowns
    left: Unknowns
    noise: Joints
    rollouts: int
    evidence: Evidence


class ArmFit:
    """One problem: a model, tracks, and which unknowns are searched."""

    def __init__(
        self,
        rollouts: ArmRollouts,
        tracks: Sequence[Track],
        searched: OwnFlags,
        config: FitConfig,
        note: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self._rollouts, self.model = rollouts, rollouts.model
        self._tracks, self._searched, self._config = list(tracks), searched, config
        self._free = np.flatnonzero(searched)
        self._noise = np.full(self.model.arm.dof, _START_RAD)
        self._note = note

    def solve(self) -> Unknowns:
        """Several starts, then all of the data. DataError when nothing could be simulated."""
        config, model = self._config, self.model
        everything = self._tracks
        delayed = self._delayed(first_delay_s(everything[0], model))
        first = [_first(self._rollouts, t, config.first_s) for t in everything[:1]]
        rng = np.random.default_rng(config.seed)
        starts = [*delayed, *(self._drawn(delayed[0], rng) for _ in range(config.starts))]
        tried = [self._search(first, x, config.first_iterations, _FIRST_STEP) for x in starts]
        best, cost = min(tried, key=lambda found: found[1])
        self._note(f"{len(starts)} starts, {self._rollouts.count} rollouts")
        if not np.isfinite(cost):
            raise DataError("the model of the arm is unstable under the recorded set-points")
        x, _ = self._search(everything, best, 2)
        # Joints that fit better say more.
        self._noise = np.maximum(self.errors(everything, x), FINEST_RAD)
        x, _ = self._search(everything, x, config.iterations)
        # The last steps see what every parameter does to every joint.
        for _ in range(config.last_iterations):
            self._noise = np.maximum(self.errors(everything, x), FINEST_RAD)
            x, gained = self._polished(x)
            if gained < _ENOUGH:
                break
        self._note(f"least squares: {self._rollouts.count} rollouts")
        return x

    def judged(self, x: Unknowns) -> Fitted:
        """How sure a solution is; two rollouts more per unknown."""
        evidence = self.evidence(x)
        step, found = interval_of(evidence)
        square = evidence.jacobian.T @ evidence.jacobian + np.diag(evidence.belief**-2.0)
        inverse = np.diag(np.linalg.inv(square))
        covariance, alone = np.zeros((len(x), len(x))), np.zeros(len(x))
        covariance[np.ix_(self._free, self._free)] = found
        left = np.zeros(len(x))
        left[self._free] = step
        # As much wider as the covariance is than were all noise independent.
        alone[self._free] = np.sqrt(np.diag(found) / inverse / np.diag(square))
        return Fitted(
            *(x, self._searched, covariance, alone, left, self._noise, self._rollouts.count),
            evidence,
        )

    def evidence(self, x: Unknowns) -> Evidence:
        """What the data say near ``x``."""
        J, r = self._full_jacobian(self._tracks, x, both=True)
        belief = self.model.belief[self._free]
        block = self.model.arm.dof * max(1, round(_BLOCK_S * COMPARE_HZ))
        pull = (x - self.model.start)[self._free] / belief**2
        return Evidence(self._free, J, r, pull, belief, self._noise, block)

    def errors(self, tracks: Sequence[Track], x: Unknowns) -> Joints:
        """Root mean square of every joint's error ``[j]`` [rad]."""
        rows = [a[0] - t.measured for a, t in zip(self._roll(tracks, x[None]), tracks, strict=True)]
        return np.sqrt(np.mean(np.concatenate(rows) ** 2, axis=0))

    # -- the search ------------------------------------------------------------------------------

    def _delayed(self, delay_s: float) -> list[Unknowns]:
        """Starts with such a delay, of which smoothing is little, half and most. A filter is a
        delay to first order: without any, nothing would tell it from one; with far too little,
        servos that grow stiff make up for the rest, and no step leads back from there.
        """
        start, out = self.model.start, list[Unknowns]()
        for smoothing in (min(_FIRST_SMOOTHING_S, 0.5 * delay_s), *(delay_s * s for s in _SHARES)):
            x = start.copy()
            x[-2] = max(x[-2], smoothing)
            x[-1] = delay_s - x[-2]
            x = np.clip(x, self.model.low, self.model.high)
            if not any(np.array_equal(x, other) for other in out):
                out.append(x)
        return out

    def _search(
        self, tracks: Sequence[Track], x: Unknowns, iterations: int, longest: float = np.inf
    ) -> tuple[Unknowns, float]:
        """Where so many iterations lead, none farther than ``longest`` beliefs, and the cost."""
        model, free, belief = self.model, self._free, self.model.belief[self._free]
        answers = self._roll(tracks, x[None])
        cost, damping = self._cost(answers, tracks, x[None])[0], 1.0
        for _ in range(iterations):
            if not np.isfinite(cost):
                break
            r = self._residuals(answers, tracks)[0]
            J = self._jacobian(tracks, x, answers)
            gradient = J.T @ r + (x - model.start)[free] / belief**2
            square = J.T @ J + np.diag(belief**-2.0)
            trials = [self._stepped(x, square, gradient, damping * d, longest) for d in _DAMPINGS]
            answered = self._roll(tracks, np.array(trials))
            costs = self._cost(answered, tracks, np.array(trials))
            k = int(np.argmin(np.nan_to_num(costs, nan=np.inf)))
            if not costs[k] < cost:
                damping *= 100.0
                if damping > 1e6:
                    break
                continue
            gained = cost - costs[k]
            x, cost = trials[k], costs[k]
            answers = [a[k : k + 1] for a in answered]
            damping = max(1e-6, 0.3 * damping * _DAMPINGS[k])
            if gained < _ENOUGH:
                break
        return x, float(cost)

    def _polished(self, x: Unknowns) -> tuple[Unknowns, float]:
        """One step with a complete Jacobian, and by how much the cost fell."""
        model, free, belief, tracks = (
            *(self.model, self._free, self.model.belief[self._free], self._tracks),
        )
        J, r = self._full_jacobian(tracks, x, both=False)
        cost = 0.5 * float(r @ r + (((x - model.start)[free] / belief) ** 2).sum())
        gradient = J.T @ r + (x - model.start)[free] / belief**2
        square = J.T @ J + np.diag(belief**-2.0)
        trials = np.array([self._stepped(x, square, gradient, d) for d in _LAST_DAMPINGS])
        costs = self._cost(self._roll(tracks, trials), tracks, trials)
        k = int(np.argmin(np.nan_to_num(costs, nan=np.inf)))
        return (trials[k], cost - float(costs[k])) if costs[k] < cost else (x, 0.0)

    def _stepped(
        self,
        x: Unknowns,
        square: Square,
        gradient: Searched,
        damping: float,
        longest: float = np.inf,
    ) -> Unknowns:
        """A damped step inside the bounds, of at most ``longest`` beliefs: what would leave them
        goes to the border, and the others make up for it.
        """
        free, out = self._free, x.copy()
        most = longest * self.model.belief[free]
        low = np.maximum(self.model.low[free] - x[free], -most)
        high = np.minimum(self.model.high[free] - x[free], most)
        A = square + damping * np.diag(np.diag(square)) * 1e-3
        inside, step = np.ones(len(free), dtype=bool), np.zeros(len(free))
        for _ in range(_BORDERS):
            pull = gradient[inside] + A[np.ix_(inside, ~inside)] @ step[~inside]
            step[inside] = -np.linalg.solve(A[np.ix_(inside, inside)], pull)
            beyond = inside & ((step < low) | (step > high))
            if not beyond.any():
                break
            step = np.clip(step, low, high)
            inside &= ~beyond
        out[free] = np.clip(self._along(x, step), self.model.low[free], self.model.high[free])
        return out

    def _along(self, x: Unknowns, step: Searched) -> Searched:
        """Where a step ``[f]`` leads. What a joint's motion tells least is the scale of stiffness,
        armature, friction and damping together: friction and damping follow the stiffness, so that
        this valley, straight in the others' logarithms, is straight for them, too.
        """
        wish, scale = x[self._free] + step, np.zeros(self.model.arm.dof)
        of = [self.model.parameters[i] for i in self._free]
        for p, moved in zip(of, step.tolist(), strict=True):
            if p.kind == "stiffness":
                scale[p.joint] = moved
        for k, p in enumerate(of):
            if p.kind in ("friction", "damping"):
                by = float(np.clip(scale[p.joint], -1.0, 1.0))
                wish[k] = np.exp(by) * (wish[k] - by * x[self._free[k]])
        return wish

    def _jacobian(
        self, tracks: Sequence[Track], x: Unknowns, answers: Sequence[Answers]
    ) -> Jacobian:
        """Every kind of parameter at once (see the module's text)."""
        kinds = sorted({self.model.parameters[i].kind for i in self._free})
        groups = [[i for i in self._free if self.model.parameters[i].kind == k] for k in kinds]
        steps = _ONE_SIDED * self._steps(x)
        vectors = np.tile(x, (len(groups), 1))
        for row, group in zip(vectors, groups, strict=True):
            row[group] += steps[group]
        moved = self._roll(tracks, vectors)
        columns = {int(i): c for c, i in enumerate(self._free)}
        blocks: list[FloatRows] = []
        for there, here in zip(moved, answers, strict=True):
            change = (there - here) / self._noise
            J = np.zeros((*change.shape[1:], len(self._free)))
            for group, of in zip(groups, change, strict=True):
                for i in group:
                    joint = self.model.parameters[i].joint
                    at = slice(None) if joint < 0 else slice(joint, joint + 1)
                    J[:, at, columns[int(i)]] = of[:, at] / steps[i]
            blocks.append(J.reshape(-1, len(self._free)))
        return np.concatenate(blocks)

    def quick_jacobian(self, tracks: Sequence[Track], x: Unknowns, noise_rad: float) -> Jacobian:
        """Of joint angles with such an error ``[rows, p]``, for plans."""
        self._noise = np.full(self.model.arm.dof, noise_rad)
        return self._jacobian(tracks, x, self._roll(tracks, x[None]))

    def _full_jacobian(
        self, tracks: Sequence[Track], x: Unknowns, *, both: bool
    ) -> tuple[Jacobian, Residuals]:
        """One parameter after the other ``[rows, p]``, of those that are searched, to ``both``
        sides or by shorter steps to one; and the residuals ``[rows]`` at ``x``.
        """
        steps, free = self._steps(x), self._free
        # At a border, too, a shorter step to one side only.
        alone = (x - steps < self.model.low) | (x - steps > self.model.high) | (not both)
        steps = np.where(alone, _ONE_SIDED * steps, steps)
        behind = np.where(alone, 0.0, steps)
        back = (x - np.diag(behind))[free] if both else x[None][:0]
        vectors = np.concatenate([x[None], x + np.diag(steps)[free], back])
        answers, span = self._roll(tracks, vectors), (steps + behind)[free]
        blocks: list[FloatRows] = []
        for a in answers:
            ahead, here = a[1 : 1 + len(free)], a[1 + len(free) :] if both else a[:1]
            change = (ahead - here) / self._noise / span[:, None, None]
            blocks.append(change.reshape(len(free), -1).T)
        return np.concatenate(blocks), self._residuals([a[:1] for a in answers], tracks)[0]

    def _steps(self, x: Unknowns) -> Unknowns:
        """Of finite differences: away from the nearer border."""
        steps = np.array([p.step for p in self.model.parameters])
        return np.where(x + steps > self.model.high, -steps, steps)

    def _roll(self, tracks: Sequence[Track], vectors: UnknownRows) -> list[Answers]:
        return self._rollouts.roll(tracks, vectors)

    def _residuals(self, answers: Sequence[Answers], tracks: Sequence[Track]) -> ResidualRows:
        parts = [
            ((a - t.measured) / self._noise).reshape(len(a), -1)
            for a, t in zip(answers, tracks, strict=True)
        ]
        return np.concatenate(parts, axis=1)

    def _cost(
        self, answers: Sequence[Answers], tracks: Sequence[Track], vectors: UnknownRows
    ) -> Costs:
        r = self._residuals(answers, tracks)
        prior = ((vectors - self.model.start) / self.model.belief)[:, self._free]
        total = 0.5 * ((r**2).sum(axis=1) + (prior**2).sum(axis=1))
        return np.where(np.isfinite(total), total, np.inf)

    def _drawn(self, x: Unknowns, rng: np.random.Generator) -> Unknowns:
        out = x.copy()
        free = self._free[self._free < len(x) - 2]
        out[free] += 0.5 * self.model.belief[free] * rng.standard_normal(len(free))
        return np.clip(out, self.model.low, self.model.high)


def interval_of(evidence: Evidence) -> tuple[Searched, Square]:
    """The step to the optimum ``[f]`` and the covariance ``[f, f]`` there, to first order.

    Errors of a model are alike from one sample to the next, so that a thousand samples are not a
    thousand measurements: they are counted by blocks (the "sandwich" of robust statistics).
    """
    J, r = evidence.jacobian, evidence.residuals
    believed = np.diag(evidence.belief**-2.0)
    inverse = np.linalg.inv(J.T @ J + believed)
    edges = np.arange(0, len(r), evidence.block)
    scores = np.add.reduceat(J * r[:, None], edges, axis=0)
    robust = inverse @ (scores.T @ scores + believed) @ inverse
    wider = np.sqrt(np.maximum(1.0, np.diag(robust) / np.diag(inverse)))
    return -inverse @ (J.T @ r + evidence.pull), wider[:, None] * inverse * wider


def first_delay_s(track: Track, model: ArmModel) -> float:
    """Where the search for the delay begins [s]: where velocities agree best."""
    motion = track.motion
    try:
        found = latency(
            TimeSeries(motion.sent_t_s, motion.sent),
            TimeSeries(motion.measured_t_s, motion.measured),
            low_s=-0.02,
            high_s=float(model.high[-1]),
        )
    except DataError:
        return float(model.start[-1])
    return max(0.0, found.latency_s)


def _first(rollouts: ArmRollouts, track: Track, seconds: float) -> Track:
    """The part of a track that starts are compared on."""
    if track.seconds <= 1.5 * seconds:
        return track
    begin_s = track.t_s[0]
    return rollouts.track(track.motion.part(begin_s, begin_s + seconds))
