"""Finds latencies from motion: the delay of one stream behind another, without bias.

The usual estimate, the peak of the plain cross-correlation of two finite records, is biased towards
zero: a longer shift leaves less overlap to sum over (a delay of 120 ms is read as 105 ms from ten
seconds of motion). Here every shift is judged on the same window of the response, by the share of
its variance that the shifted reference explains (normalised correlation), on velocities, which have
no slow drift to agree about. Both streams pass the same zero-phase filter, so that noise and
interpolation do not favour some shifts.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.shapes import FloatRows, Floats, Pictures

Array = NDArray[np.float64]
_GRID_S = 0.002
# Motions by hand and arm are slower than 2 Hz; what is faster is noise.
_SMOOTH_S = 0.08
_BLOCKS = 5
_LEAST = 0.3


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Samples at ``t_s [n]`` ascending [s], ``value [n, k]``. ``held``: the value stays until the
    next sample (a command at a low rate); otherwise it changes evenly in between.
    """

    t_s: Floats
    value: FloatRows
    held: bool = False

    def __post_init__(self) -> None:
        if self.value.ndim != 2 or len(self.t_s) != len(self.value) or len(self.t_s) < 4:
            raise DataError(
                "a series has at least 4 times and values [n, k], got"
                f" {self.t_s.shape} and {self.value.shape}"
            )
        if not (np.diff(self.t_s) > 0).all() or not np.isfinite(self.value).all():
            raise DataError("a series has ascending times and finite values")


@dataclass(frozen=True, slots=True)
class Latency:
    """``latency_s``: how far the response is behind [s], ``error_s`` its standard error (from
    parts of the record by themselves), ``correlation`` in [0, 1] at the best shift.
    """

    latency_s: float
    error_s: float
    correlation: float


def latency(
    reference: TimeSeries,
    response: TimeSeries,
    *,
    low_s: float = -0.1,
    high_s: float = 0.6,
    force_positive: bool = False,
    any_sign: bool = False,
) -> Latency:
    """The shift in ``[low_s, high_s]`` (``force_positive``: from 0) by which ``reference`` explains
    ``response`` best; columns are compared in pairs, those that do not move count little.

    ``any_sign``: the response may run against the reference (a picture's component). Raises
    DataError when the streams have too little motion in common or the best shift is at the end of
    the range.
    """
    low_s = max(0.0, low_s) if force_positive else low_s
    if reference.value.shape[1] != response.value.shape[1] or not low_s < high_s:
        raise DataError(
            f"expected as many columns in both streams and low_s < high_s, got"
            f" {reference.value.shape[1]}, {response.value.shape[1]}, {low_s}, {high_s}"
        )
    motion = _Velocities(reference, response, any_sign=any_sign)
    margin = 4 * motion.sigma_s
    start = max(response.t_s[0], reference.t_s[0] + high_s) + margin
    end = min(response.t_s[-1], reference.t_s[-1] + low_s) - margin
    if end - start < 2.0 * (high_s - low_s):
        raise DataError(
            f"the streams share {max(0.0, end - start):.2f} s after shifts of {low_s:g} to"
            f" {high_s:g} s; at least {2 * (high_s - low_s):.2f} s are needed: move for longer"
        )
    peak = motion.peak(start, end, low_s, high_s)
    if peak.height < _LEAST:
        raise DataError(
            f"the streams have too little motion in common (correlation {peak.height:.2f}, at least"
            f" {_LEAST:g}); move more and faster, and check that both show the same motion"
        )
    if peak.shift_s is None:
        raise DataError(
            f"the best shift is at the end of [{low_s:g}, {high_s:g}] s; give a wider range"
        )
    cover = reference.t_s[[0, -1]]
    return Latency(peak.shift_s, _error(motion, start, end, peak.shift_s, cover), peak.height)


def principal_motion(images: Pictures) -> FloatRows:
    """One number per picture ``[n, 1]`` that changes with what moves in ``images
    [n, height, width, 3]``: the first principal component of the small grey pictures.

    For a motion smaller than the thing that moves it follows the position (with either sign).
    """
    if len(images) < 4:
        raise DataError(f"expected at least 4 pictures, got {len(images)}")
    step = max(1, min(images.shape[1:3]) // 48)
    grey = images[:, ::step, ::step].astype(np.float64).mean(axis=3).reshape(len(images), -1)
    grey -= grey.mean(axis=0)
    # The small side: n x n instead of pixels x pixels.
    _, vectors = np.linalg.eigh(grey @ grey.T)
    return np.asarray(vectors[:, -1:], dtype=np.float64)


def _filter_s(reference: TimeSeries, response: TimeSeries) -> float:
    """Width of the filter for both: one and a half periods of the slower stream at least."""
    periods = [float(np.median(np.diff(s.t_s))) for s in (reference, response)]
    return max(_SMOOTH_S, 1.5 * max(periods))


class _Velocities:
    """Filtered velocities of both streams on one grid, and their agreement at every shift."""

    def __init__(self, reference: TimeSeries, response: TimeSeries, *, any_sign: bool) -> None:
        self.sigma_s = _filter_s(reference, response)
        self._any_sign = any_sign
        self.begin_s = float(min(reference.t_s[0], response.t_s[0]))
        end_s = float(max(reference.t_s[-1], response.t_s[-1]))
        count = round(float(end_s - self.begin_s) / _GRID_S) + 1
        grid: Array = self.begin_s + np.arange(count, dtype=np.float64) * _GRID_S
        self._reference = _velocity(reference, grid, self.sigma_s)
        self._response = _velocity(response, grid, self.sigma_s)

    def peak(self, start: float, end: float, low_s: float, high_s: float) -> _Peak:
        """The best shift of the reference for the response in ``[start, end]``."""
        first, last = round(low_s / _GRID_S), round(high_s / _GRID_S)
        a, b = (round((t - self.begin_s) / _GRID_S) for t in (start, end))
        n = b - a
        scores = np.zeros(last - first + 1)
        energy = 0.0
        for c, response in zip(self._reference.T, self._response[a:b].T, strict=True):
            part, r = c[a - last : b - first], response - response.mean()
            # Index k of the valid part is the shift (last - k).
            product = np.correlate(part, r, mode="valid")[::-1]
            sums, squares = (np.concatenate([[0.0], np.cumsum(v)]) for v in (part, part**2))
            own = squares[n:] - squares[:-n] - (sums[n:] - sums[:-n]) ** 2 / n
            own = np.maximum(own[::-1], 1e-12 * max(float(squares[-1]), 1e-300))
            explained = product**2 / own
            scores += explained if self._any_sign else np.where(product > 0, explained, 0.0)
            energy += float((r**2).sum())
        if energy <= 0.0:
            return _Peak(None, 0.0)
        scores = np.sqrt(scores / energy)
        i = int(np.argmax(scores))
        if i in (0, len(scores) - 1):
            return _Peak(None, float(scores[i]))
        left, middle, right = scores[i - 1 : i + 2]
        curve = left - 2 * middle + right
        offset = 0.0 if curve >= 0 else 0.5 * (left - right) / curve
        return _Peak(float((first + i + offset) * _GRID_S), float(middle))


@dataclass(frozen=True, slots=True)
class _Peak:
    """The best shift [s] (None: at the end of the range) and the correlation there."""

    shift_s: float | None
    height: float


def _velocity(series: TimeSeries, grid: Array, sigma_s: float) -> Array:
    """Filtered velocities on a grid ``[m, k]``."""
    value: Array
    if series.held:
        index = np.clip(np.searchsorted(series.t_s, grid, side="right") - 1, 0, None)
        value = series.value[index]
    else:
        columns: list[Array] = [np.interp(grid, series.t_s, v) for v in series.value.T]
        value = np.stack(columns, axis=1)
    half = int(np.ceil(4 * sigma_s / _GRID_S))
    at = np.arange(-half, half + 1) * _GRID_S
    # The derivative of a Gaussian: filter and difference in one, odd about each instant, so that
    # neither stream is delayed.
    kernel = -at * np.exp(-0.5 * (at / sigma_s) ** 2)
    n = len(value) + len(kernel) - 1
    spectrum = np.fft.rfft(value, n, axis=0) * np.fft.rfft(kernel, n)[:, None]
    smooth: Array = np.fft.irfft(spectrum, n, axis=0)
    return smooth[half : half + len(value)]


def _error(motion: _Velocities, start: float, end: float, best: float, cover: Array) -> float:
    """Standard error of the estimate from its scatter over blocks of the record."""
    edges = np.linspace(start, end, _BLOCKS + 1).tolist()
    found: list[float] = []
    for a, b in itertools.pairwise(edges):
        low_s, high_s = best - 0.1, best + 0.1
        if b - a < 0.3 or a - high_s < cover[0] or b - low_s > cover[1]:
            continue
        place = motion.peak(a, b, low_s, high_s).shift_s
        found += [] if place is None else [place]
    if len(found) < 2:
        return float("nan")
    return float(np.std(found, ddof=1) / np.sqrt(len(found)))
