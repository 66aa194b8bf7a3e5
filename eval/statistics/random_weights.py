"""Computes the distribution of a mean whose weights are drawn evenly from the simplex.

With weights ``D ~ Dirichlet(1, ..., 1)`` the sum ``D_0 v_0 + ... + D_n v_n`` has a B-spline with
knots ``v`` as density. Its distribution function is the share of a simplex on one side of a plane;
the recursion below adds one vertex at a time as a convex combination, so nothing cancels and small
probabilities keep their relative accuracy (Varsi 1973, "The multidimensional content of the frustum
of the simplex", Pacific J. Math. 46:303; Cox and de Boor's recursion for B-splines).
"""

from __future__ import annotations

import math

import numpy as np
import scipy
from numpy.typing import NDArray

from robolearn.shapes import AnyFloats, Floats

Array = NDArray[np.float64]

# Beyond so many values the recursion (quadratic) gives way to the saddlepoint approximation, whose
# relative error there is about a thousandth.
EXACT = 500


def probability_below(values: Floats, point: float) -> float:
    """Probability that the randomly weighted mean of ``values [n]`` is at most ``point``."""
    v = np.sort(values - point)
    below, above = v[v <= 0], v[v > 0]
    if not above.size:
        return 1.0
    # The mean is below only on a null set, unless a value is.
    if not below.size or below[0] == 0:
        return 0.0
    return float(share_below(below, above)) if v.size <= EXACT else _saddlepoint(v)


def quantile(values: Floats, probability: float) -> float:
    """The point below which the randomly weighted mean of ``values [n]`` lies with
    ``probability``.
    """
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-15 * max(1.0, abs(low), abs(high)):
        return low
    found: float = scipy.optimize.brentq(  # pyright: ignore[reportAssignmentType]
        lambda t: probability_below(values, t) - probability, low, high, xtol=1e-13
    )
    return found


def share_below(below: AnyFloats, above: AnyFloats) -> AnyFloats:
    """Share of simplices ``[...]`` on which the weighted mean is at most 0.

    Their vertices are ``below [..., K]``, at most 0, and ``above [..., J]``, all positive.
    ``share[h, k]``, of the first ``h`` vertices above and ``k`` below, is ``(-y_k share[h-1, k] +
    x_h share[h, k-1]) / (x_h - y_k)``, with 1 where no vertex is above and 0 where none is below.
    Diagonal by diagonal, since ``h + k`` of both sources is one less.
    """
    up, down = above.shape[-1], below.shape[-1]
    # The last vertex first, so that a diagonal is a slice of either side and nothing is copied.
    drop = -below[..., ::-1]
    share = np.zeros((*above.shape[:-1], up + 1))
    share[..., 0] = 1.0
    for diagonal in range(2, up + down + 1):
        first, last = max(1, diagonal - down), min(up, diagonal - 1)
        gap = above[..., first - 1 : last]
        step = drop[..., down - diagonal + first : down - diagonal + last + 1]
        before, same = share[..., first - 1 : last], share[..., first : last + 1]
        share[..., first : last + 1] = (step * before + gap * same) / (gap + step)
    return np.asarray(share[..., -1])


def _saddlepoint(v: Array) -> float:
    """``P(sum of v_i times exponentials <= 0)``: Lugannani and Rice 1980, Adv. Appl. Prob. 12:475.

    The weights are exponentials over their sum, and the sum does not change the sign.
    """
    low, high = 1.0 / v[0], 1.0 / v[-1]
    margin = 1e-12

    def slope(s: float) -> float:
        return float((v / (1.0 - s * v)).sum())

    root: float = scipy.optimize.brentq(  # pyright: ignore[reportAssignmentType]
        slope, low * (1.0 - margin), high * (1.0 - margin)
    )
    log_moment = -float(np.log1p(-root * v).sum())
    curvature = float(((v / (1.0 - root * v)) ** 2).sum())
    if abs(root) * math.sqrt(curvature) < 1e-5:
        skewness = 2.0 * float((v**3).sum()) / curvature**1.5
        return 0.5 + skewness / (6.0 * math.sqrt(2.0 * math.pi))
    r = math.copysign(math.sqrt(max(0.0, -2.0 * log_moment)), root)
    u = root * math.sqrt(curvature)
    return float(scipy.stats.norm.cdf(r) - scipy.stats.norm.pdf(r) * (1.0 / u - 1.0 / r))
