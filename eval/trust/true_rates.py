"""Draws the rates that policies may truly have, given the trials that were seen (posterior).

Trials done again with the rates that were seen have the noise of trials twice: among them every
measure of agreement is worse than it truly is, the more so the fewer trials there are. What is
asked for is the measure without noise, of the policies as they are.

Model: on the scale ``arcsin(sqrt(rate))``, where noise does not depend on the rate (Anscombe 1948,
Biometrika 35:246), what was seen of a policy is normal about what is true of it, and the policies'
true ones are normal. Coordinates are the difference of simulation and reality, and their mean:
simulators are made to be like reality, so that how far they are off is a scale of its own. Prior of
the scales and of the correlation: Huang and Wand 2013 (Bayesian Analysis 8:439), half t. Draws by
Gibbs sampling. Where all policies are tried from the same starts, a part of their noise is the same
for all; of that the trials say nothing, and it is drawn beside.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from eval.trust.outcomes import Outcomes, Side, Starts
from eval.trust.tables import PolicyPair, TaskTable
from robolearn.shapes import FloatRows, OwnFloats

# (sim, real) to (sim - real, mean).
_TURN = np.array([[1.0, 0.5], [-1.0, 0.5]])
_BACK = np.linalg.inv(_TURN)
# Half-t scales of both [rad], and their degrees of freedom.
_SCALES = np.array([0.3, 0.5])
_NU = 2.0
# Chains side by side, of many policies fewer; sweeps before the first that is kept.
_CHAINS, _FEW_CHAINS, _MANY = 40, 8, 200
_BURN = 100
# Noise of what is known without noise [rad^2]: the sampler needs some.
_NONE = 1e-9

Twos = Float64[NDArray[np.float64], "chains 2 2"]
Means = Float64[NDArray[np.float64], "chains policies 2"]
Seen = Float64[NDArray[np.float64], "policies 2"]
Noise = Float64[NDArray[np.float64], "policies 2 2"]
Two = Float64[NDArray[np.float64], "2"]
Square = Float64[NDArray[np.float64], "2 2"]
Squares = Float64[NDArray[np.float64], "*rows 2 2"]
Normal = Float64[NDArray[np.float64], "*rows 2"]


def true_rates(
    table: TaskTable, draws: int, rng: np.random.Generator
) -> tuple[FloatRows, FloatRows]:
    """(sim, real) ``[draws, policies]``. A rate whose trials are not known is what it is."""
    made = [_seen(pair) for pair in table.pairs]
    # The centre of all policies is free: what moves them all moves it, and no difference.
    common = np.mean([c for _, _, c in made], axis=0)
    own = np.array([_above_none(v - common) for _, v, _ in made])
    turned = _posterior(
        np.array([y for y, _, _ in made]) @ _TURN, _TURN.T @ own @ _TURN, draws, rng
    )
    moved = _normal(np.tile(_above_none(common), (draws, 1, 1)), rng)
    turned = turned + (moved @ _TURN)[:, None]
    rates = np.square(np.sin(np.clip(turned @ _BACK, 0.0, np.pi / 2)))
    for i, pair in enumerate(table.pairs):
        for side, parts in enumerate((pair.sim, pair.real)):
            if all(o.trials is None for o in parts):
                rates[:, i, side] = sum(o.rate for o in parts) / len(parts)
    return rates[..., 0], rates[..., 1]


def _posterior(seen: Seen, noise: Noise, draws: int, rng: np.random.Generator) -> Means:
    """True values ``[draws, policies, 2]``, of chains one after the other."""
    k = len(seen)
    chains = min(draws, _CHAINS if k <= _MANY else _FEW_CHAINS)
    known = _inverse(noise)
    pull = np.einsum("ki,kij->kj", seen, known)
    true = np.broadcast_to(seen, (chains, k, 2))
    spread = np.tile(np.eye(2) * 0.1, (chains, 1, 1))
    kept: list[Means] = []
    for sweep in range(_BURN + math.ceil(draws / chains)):
        centre = true.mean(axis=1) + _normal(spread / k, rng)
        precision = _precision(true - centre[:, None], _inverse(spread), rng)
        spread = _inverse(precision)
        narrow = _inverse(precision[:, None] + known)
        towards = np.einsum("cij,cj->ci", precision, centre)[:, None] + pull
        true = np.einsum("ckij,ckj->cki", narrow, towards) + _normal(narrow, rng)
        if sweep >= _BURN:
            kept.append(true)
    return np.concatenate(kept)[:draws]


def _precision(off: Means, precision: Twos, rng: np.random.Generator) -> Twos:
    """Of the policies' spread, drawn given how far each is ``off`` their centre."""
    chains, k, _ = off.shape
    rate = 1.0 / _SCALES**2 + _NU * np.diagonal(precision, axis1=1, axis2=2)
    scales = rng.gamma((_NU + 2) / 2, 1.0, (chains, 2)) / rate
    about = np.einsum("cki,ckj->cij", off, off)
    about[:, [0, 1], [0, 1]] += 2 * _NU * scales
    # Wishart, by Bartlett's decomposition.
    freedom = _NU + 1 + k
    lower = np.zeros((chains, 2, 2))
    lower[:, 0, 0] = np.sqrt(rng.chisquare(freedom, chains))
    lower[:, 1, 1] = np.sqrt(rng.chisquare(freedom - 1, chains))
    lower[:, 1, 0] = rng.standard_normal(chains)
    half = _root(_inverse(about)) @ lower
    return half @ half.transpose(0, 2, 1)


def _normal(covariance: Squares, rng: np.random.Generator) -> Normal:
    drawn = rng.standard_normal(covariance.shape[:-1])
    return np.einsum("...ij,...j->...i", _root(covariance), drawn)


def _inverse(matrix: Squares) -> Squares:
    """Of two rows and columns, many times faster than for any number of them."""
    a, b, c, d = (matrix[..., i, j] for i in (0, 1) for j in (0, 1))
    found = np.empty_like(matrix)
    found[..., 0, 0], found[..., 0, 1] = d, -b
    found[..., 1, 0], found[..., 1, 1] = -c, a
    return found / (a * d - b * c)[..., None, None]


def _root(matrix: Squares) -> Squares:
    """Its lower triangle whose square it is (Cholesky)."""
    root = np.zeros_like(matrix)
    root[..., 0, 0] = np.sqrt(matrix[..., 0, 0])
    root[..., 1, 0] = matrix[..., 1, 0] / root[..., 0, 0]
    root[..., 1, 1] = np.sqrt(matrix[..., 1, 1] - root[..., 1, 0] ** 2)
    return root


def _above_none(covariance: Square) -> Square:
    """With at least a little noise in every direction."""
    size, direction = np.linalg.eigh(covariance)
    return np.einsum("ij,j,kj->ik", direction, np.clip(size, _NONE, None), direction)


def _seen(pair: PolicyPair) -> tuple[Two, Square, Square]:
    """(sim, real) of a policy on the arcsine scale, the covariance of their noise, and the part of
    it that all policies share.
    """
    all_starts = pair.starts or (None,) * len(pair.real)
    rates, noise, common = np.zeros(2), np.zeros((2, 2)), np.zeros((2, 2))
    for sim, real, starts in zip(pair.sim, pair.real, all_starts, strict=True):
        (rates_0, var_0), (rates_1, var_1) = _part(sim, "sim", starts), _part(real, "real", starts)
        rates += rates_0, rates_1
        both = math.sqrt(var_0 * var_1)
        sizes = np.array([[var_0, both], [both, var_1]])
        alike, shared = _alike(starts)
        noise += sizes * alike
        common += sizes * shared
    n = len(pair.real)
    centre = np.clip(rates / n, 1e-12, 1 - 1e-12)
    stretch = n * 2.0 * np.sqrt(centre * (1.0 - centre))
    square = np.outer(stretch, stretch)
    return np.arcsin(np.sqrt(centre)), noise / square, common / square


def _part(outcomes: Outcomes, side: Side, starts: Starts | None) -> tuple[float, float]:
    """The rate in one task, a little off the ends of the scale, and the variance of its noise."""
    rate = outcomes.rate
    if outcomes.trials is None:
        return rate, 0.0
    tosses = float(outcomes.trials) if starts is None else starts.worth(side)
    if outcomes.scores is not None:
        tosses /= _quiet(outcomes, outcomes.scores, tosses)
    rate = (rate * tosses + 0.375) / (tosses + 0.75)
    return rate, rate * (1.0 - rate) / (tosses + 0.5)


def _quiet(outcomes: Outcomes, scores: OwnFloats, n: float) -> float:
    """Variance of a score as a share of that of a success of this rate: of ``n`` scores that are
    all equal a little, too.
    """
    rate = outcomes.rate
    most = rate * (1.0 - rate)
    if most <= 0.0:
        return 1.0
    variance = float(np.average((scores - rate) ** 2, weights=outcomes.weights))
    return min(1.0, (n * variance / most + 1.0) / (n + 1.0))


def _alike(starts: Starts | None) -> tuple[Square, Square]:
    """Correlation of the noise of both sides, and what of it all policies share."""
    if starts is None or not len(starts):
        return np.eye(2), np.zeros((2, 2))
    worth = np.sqrt([starts.worth("sim"), starts.worth("real")])
    told = starts.repeats
    shares = np.array([[told.sim, told.joint], [told.joint, told.real]])
    by_start = shares * np.outer(worth, worth) / len(starts)
    alike = by_start.copy()
    np.fill_diagonal(alike, 1.0)
    return alike, told.policies * by_start
