"""Computes statistics in LeRobot's form: of an episode, and of many together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.shapes import AnyArray, AnyRows, Pictures

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
Stats = Mapping[str, AnyArray]
EpisodeStats = Mapping[str, Stats]


def array_stats(values: AnyRows) -> Stats:
    """Of ``[T, ...]`` over the rows; quantiles are exact."""
    rows = values.reshape(len(values), -1).astype(np.float64)
    found: dict[str, NDArray[Any]] = {
        "min": rows.min(axis=0),
        "max": rows.max(axis=0),
        "mean": rows.mean(axis=0),
        "std": rows.std(axis=0),
        "count": np.array([len(rows)]),
    }
    return found | {name: np.quantile(rows, q, axis=0) for name, q in QUANTILES.items()}


def picture_stats(frames: Pictures) -> Stats:
    """Of ``[T, height, width, 3]`` per channel, in [0, 1], shaped ``[3, 1, 1]``."""
    per_channel = np.stack(
        [np.bincount(frames[..., c].reshape(-1), minlength=256) for c in range(frames.shape[-1])]
    )
    levels = np.arange(256) / 255.0
    share = per_channel / per_channel.sum(axis=1, keepdims=True)
    mean = share @ levels
    found: dict[str, NDArray[Any]] = {
        "min": levels[(per_channel > 0).argmax(axis=1)],
        "max": levels[255 - (per_channel[:, ::-1] > 0).argmax(axis=1)],
        "mean": mean,
        "std": np.sqrt(np.maximum(share @ levels**2 - mean**2, 0)),
    }
    below = share.cumsum(axis=1)
    found |= {n: levels[(below >= q - 1e-12).argmax(axis=1)] for n, q in QUANTILES.items()}
    shaped = {name: values.reshape(-1, 1, 1) for name, values in found.items()}
    return shaped | {"count": np.array([len(frames)])}


def together(parts: Sequence[Stats]) -> Stats:
    """Exact, but for quantiles: means weighted by the rows, as LeRobot does."""
    weight = np.array([int(p["count"][0]) for p in parts], dtype=np.float64)
    weight /= weight.sum()

    def average(name: str, power: int = 1) -> NDArray[Any]:
        weighted = [w * p[name] ** power for w, p in zip(weight, parts, strict=True)]
        return np.sum(weighted, axis=0)

    mean = average("mean")
    variance = average("std", 2) + average("mean", 2) - mean**2
    merged: dict[str, NDArray[Any]] = {
        "min": np.min([p["min"] for p in parts], axis=0),
        "max": np.max([p["max"] for p in parts], axis=0),
        "mean": mean,
        "std": np.sqrt(np.maximum(variance, 0)),
        "count": np.sum([p["count"] for p in parts], axis=0),
    }
    return merged | {name: average(name) for name in QUANTILES}
