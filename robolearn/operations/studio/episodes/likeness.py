"""Measures how alike episodes are by what was commanded: near-duplicates, and what is unlike all.

    an episode -> its commands at 8 moments, evenly spaced, and how long it took    (a vector)
    novelty    =  distance to the 5th nearest other episode, 1: as is usual in this store
    twins      =  pairs that are far nearer to each other than is usual

Numbers of a vector are divided by their spread over the store, so that metres and radians count
alike. Vectors are kept in the cache; the distances of ten thousand episodes take a few seconds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from robolearn.data.store.chunks import read_array
from robolearn.data.store.layout import array_names
from robolearn.errors import RobolearnError
from robolearn.operations.studio.asking import Ask
from robolearn.operations.studio.episodes.shelf import OpenStore, Row, open_store
from robolearn.shapes import FloatRows, OwnFloats, OwnIndex

MOMENTS, NUMBERS, NEIGHBOUR = 8, 16, 5
ENOUGH_S = 0.5
TWINS, CLOSE = 200, 0.02
"""Pairs that are told, and how near they are: this share of the usual distance."""
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Likeness:
    """``novelty`` of the episodes by ``number``; ``twins``: pairs of numbers, nearest first;
    ``missing``: episodes that are not measured yet, ask again.
    """

    number: OwnIndex
    novelty: OwnFloats
    twins: tuple[tuple[int, int], ...]
    missing: int


def likeness(ask: Ask) -> Likeness:
    """How alike the episodes of a store are, as far as they were read."""
    opened = open_store(ask)
    shown = opened.shown()
    rows = [r for r in shown.rows if r.info is not None]
    total = shown.total - (len(shown.rows) - len(rows))
    found = _vectors(opened, rows)
    measured = [r for r in rows if r.hash in found]
    key = ("likeness", ask.thing.id)
    missing = total - len(measured)
    if missing:
        numbers = np.array([int(r.id[3:]) for r in measured], dtype=np.int64)
        return Likeness(numbers, np.ones(len(measured)), (), missing)
    stamp = tuple(r.hash for r in measured)
    return ask.library.keep(key, lambda: _compared(measured, found), hash(stamp))


def commanded(opened: OpenStore, episode_id: str) -> FloatRows:
    """Everything that was commanded ``[T, k]``; no columns where nothing was."""
    files = opened.store.manifest(episode_id).by_path()
    root = opened.store.folder(episode_id)
    parts: list[FloatRows] = []
    for name in array_names(files, "action/"):
        values = read_array(root, f"action/{name}", files)[0]
        width = int(np.prod(values.shape[1:], dtype=np.int64))
        parts.append(values.reshape(len(values), width).astype(np.float64))
    return np.nan_to_num(np.concatenate(parts, axis=1)) if parts else np.zeros((0, 0))


def distances(vectors: FloatRows) -> tuple[OwnFloats, list[tuple[float, int, int]]]:
    """Of each row the distance to its :data:`NEIGHBOUR`-th nearest other, and the pairs of rows
    that are nearer than :data:`CLOSE` times the usual, nearest first.
    """
    spread = vectors.std(axis=0)
    scaled = ((vectors - vectors.mean(axis=0)) / np.where(spread > 0, spread, 1.0)).astype("f4")
    count, squares = len(scaled), (scaled**2).sum(axis=1)
    nth, nearest = np.zeros(count), np.zeros(count)
    best = np.zeros(count, dtype=np.int64)
    kth = min(NEIGHBOUR, count - 1)
    for begin in range(0, count, _BLOCK):
        part = scaled[begin : begin + _BLOCK]
        squared = squares[begin : begin + _BLOCK, None] + squares[None] - 2.0 * part @ scaled.T
        squared[np.arange(len(part)), np.arange(begin, begin + len(part))] = np.inf
        end = begin + len(part)
        best[begin:end] = squared.argmin(axis=1)
        nearest[begin:end] = np.sqrt(np.maximum(squared.min(axis=1), 0.0))
        nth[begin:end] = np.sqrt(np.maximum(np.partition(squared, kth - 1, axis=1)[:, kth - 1], 0))
    usual = float(np.median(nth)) or 1.0
    # What single precision cannot tell from nothing is nothing.
    close = np.flatnonzero(nearest <= max(CLOSE * usual, 2e-3))
    pairs = {
        (min(k, int(best[k])), max(k, int(best[k]))): float(nearest[k]) for k in close.tolist()
    }
    return nth / usual, sorted((d, a, b) for (a, b), d in pairs.items())


def _vectors(opened: OpenStore, rows: list[Row]) -> dict[str, FloatRows]:
    """By hash; those that are not kept are measured, as many as fit into :data:`ENOUGH_S`."""
    width = MOMENTS * NUMBERS + 1
    kept = opened.cache.get("vector", [r.hash for r in rows])
    found = {h: np.frombuffer(d, "<f4") for h, d in kept.items() if len(d) == 4 * width}
    fresh: list[tuple[str, bytes]] = []
    until = time.monotonic() + ENOUGH_S
    for row in rows:
        if row.hash in found:
            continue
        if time.monotonic() > until:
            break
        try:
            vector = _vector(commanded(opened, row.id))
        except (RobolearnError, OSError, ValueError):
            # It cannot be read: its own view says why. Alike to nothing that moved.
            vector = _vector(np.zeros((0, 0)))
        found[row.hash] = vector
        fresh.append((row.hash, vector.tobytes()))
    opened.cache.put("vector", fresh)
    return {h: v.astype(np.float64)[None] for h, v in found.items()}


def _vector(values: FloatRows) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    out = np.zeros((MOMENTS, NUMBERS), dtype=np.float32)
    if values.size:
        moments = np.linspace(0, len(values) - 1, MOMENTS).round().astype(np.int64)
        some = values[moments, :NUMBERS]
        out[:, : some.shape[1]] = some
    return np.append(out.ravel(), np.float32(np.log1p(len(values)))).astype("<f4")


def _compared(rows: list[Row], found: dict[str, FloatRows]) -> Likeness:
    numbers = np.array([int(r.id[3:]) for r in rows], dtype=np.int64)
    if len(rows) < 2:
        return Likeness(numbers, np.ones(len(rows)), (), 0)
    novelty, pairs = distances(np.concatenate([found[r.hash] for r in rows]))
    twins = tuple((int(numbers[a]), int(numbers[b])) for _, a, b in pairs[:TWINS])
    return Likeness(numbers, novelty, twins, 0)
