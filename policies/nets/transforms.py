"""Turns signals into features and back: angles as points on a circle, then an affine scaling.

    values [..., *shape] --flatten--> [..., n] --circle--> [linear | cos | sin] --scale, offset-->

Linear components come first in their own order, then the cosines, then the sines of the angular
ones. Angles need no statistics: cosine and sine are in [-1, 1] already.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped
from numpy.typing import NDArray

from robolearn.contracts import Normalization
from robolearn.data.store.stats import SignalStats
from robolearn.errors import DataError
from robolearn.shapes import AnyArray, AnyFloats

Array = NDArray[np.float64]
FeatureRows = Float64[NDArray[np.float64], "... f"]

# Below this range (SI units) a component counts as constant: it is centred, not blown up.
MIN_RANGE = 1e-4


@functools.lru_cache(maxsize=256)
def _linear(shape: tuple[int, ...], angular: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i in range(math.prod(shape)) if i not in angular)


@dataclass(frozen=True, slots=True)
class SignalTransform:
    """Both directions for one signal: ``features = circle(values) * scale + offset``.

    ``scale`` and ``offset`` have one entry per linear component.
    """

    shape: tuple[int, ...]
    angular: tuple[int, ...]
    scale: tuple[float, ...]
    offset: tuple[float, ...]

    @property
    def linear(self) -> tuple[int, ...]:
        """Flat indices of the components that are not angles."""
        return _linear(self.shape, self.angular)

    @property
    def size(self) -> int:
        """Number of features."""
        return len(self.scale) + 2 * len(self.angular)

    def forward(self, values: AnyArray) -> FeatureRows:
        """``[..., *shape]`` in SI units to features ``[..., size]``."""
        flat = self._flat(values)
        angles = flat[..., list(self.angular)]
        scaled = flat[..., list(self.linear)] * np.array(self.scale) + np.array(self.offset)
        return np.concatenate([scaled, np.cos(angles), np.sin(angles)], axis=-1)

    def inverse(self, features: Shaped[NDArray[Any], "... f"]) -> AnyFloats:
        """Inverse of :meth:`forward`; angles come back in (-pi, pi]."""
        data = np.asarray(features, dtype=np.float64)
        if data.shape[-1] != self.size:
            raise DataError(f"expected {self.size} features, got {data.shape[-1]}")
        n, a = len(self.scale), len(self.angular)
        flat = np.empty((*data.shape[:-1], n + a))
        flat[..., list(self.linear)] = (data[..., :n] - np.array(self.offset)) / np.array(
            self.scale
        )
        flat[..., list(self.angular)] = np.arctan2(data[..., n + a :], data[..., n : n + a])
        return flat.reshape(*data.shape[:-1], *self.shape)

    def _flat(self, values: NDArray[Any]) -> Array:
        data = np.asarray(values, dtype=np.float64)
        lead = data.ndim - len(self.shape)
        if lead < 0 or data.shape[lead:] != self.shape:
            raise DataError(f"expected values [..., {self.shape}], got shape {data.shape}")
        return data.reshape(*data.shape[:lead], -1)


def fit_transform(
    shape: tuple[int, ...],
    stats: SignalStats,
    mode: Normalization,
    angular: tuple[int, ...] = (),
) -> SignalTransform:
    """Choose scale and offset from statistics.

    ``minmax`` maps the observed range to [-1, 1]; ``quantile`` the range between the quantiles of
    1 and 99 %, so that outliers do not squeeze the rest; ``meanstd`` to zero mean and unit
    deviation; a constant component is centred and left unscaled in all of them.
    """
    count = math.prod(shape)
    if len(stats.mean) != count:
        raise DataError(f"statistics have {len(stats.mean)} components, the signal has {count}")
    linear = [i for i in range(count) if i not in angular]
    ends = (stats.minimum, stats.maximum)
    if mode == "quantile":
        if not stats.q01:
            raise DataError("the statistics have no quantiles (an earlier version); use minmax")
        ends = (stats.q01, stats.q99)
    low, high = (np.array(end)[linear] for end in ends)
    varies = (high - low) > MIN_RANGE
    if mode in ("minmax", "quantile"):
        span = np.where(varies, (high - low) / 2, 1.0)
        centre = (high + low) / 2
    elif mode == "meanstd":
        span = np.where(varies, np.array(stats.std)[linear], 1.0)
        centre = np.array(stats.mean)[linear]
    else:
        span, centre = np.ones(len(linear)), np.zeros(len(linear))
    return SignalTransform(
        shape=shape,
        angular=angular,
        scale=tuple((1.0 / span).tolist()),
        offset=tuple((-centre / span).tolist()),
    )
