"""Says what a network of average velocities is regressed on (Geng et al. 2025, arXiv 2505.13447).

    u(x_t, t, r) = 1 / (r - t)  integral of v from t to r,      x_r = x_t + (r - t) u(x_t, t, r)
    u = v + (r - t) (v . grad_x u + d u / d t)

(the paper's identity with time from 0, noise, to 1, data). The right side is held fixed; its
derivative is one forward-mode product.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch

from policies.nets.shapes import BatchNumbers, Rows

# Average velocity at ``x [b, ...]`` from time ``t [b]`` to an end that it knows.
Average = Callable[[BatchNumbers, Rows], BatchNumbers]


def mean_flow_target(
    average: Average, x_t: BatchNumbers, velocity: BatchNumbers, t: Rows, r: Rows
) -> BatchNumbers:
    """``v + (r - t) d u / d t`` along the path, without gradient."""
    with torch.no_grad(), warnings.catch_warnings():
        # Torch's own forward-mode rules are compiled by a deprecated part of torch.
        warnings.filterwarnings("ignore", message="`torch.jit.script` is deprecated")
        slope = torch.func.jvp(average, (x_t, t), (velocity, torch.ones_like(t)))[1]
    left = (r - t).view(-1, *[1] * (x_t.ndim - 1))
    return (velocity + left * slope).detach()
