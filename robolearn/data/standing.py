"""Finds stretches of an episode in which nothing is commanded to move."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robolearn.data.episode import Episode
from robolearn.shapes import Flags, FloatRows
from robolearn.spec import ActionSpec


def commanded_change(actions: FloatRows, specs: Sequence[ActionSpec]) -> FloatRows:
    """How much every number of ``actions [N, a]`` (flat in the order of ``specs``) asks to change
    at each step, in its own unit: an absolute one against the step before, a relative one by
    itself. The first row of an absolute one follows nothing and is 0.
    """
    change = np.diff(actions, axis=0, prepend=actions[:1])
    first = 0
    for spec in specs:
        part = slice(first, first + spec.size)
        if spec.mode == "relative":
            change[:, part] = actions[:, part]
        first += spec.size
    return change


def stretches(flags: Flags, least: int = 1) -> list[tuple[int, int]]:
    """Where ``flags`` are true for at least ``least`` rows in a row: ``[begin, end)`` of each."""
    edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0))
    pairs = zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
    return [(begin, end) for begin, end in pairs if end - begin >= least]


def flat_actions(episode: Episode) -> FloatRows:
    """All commands of an episode ``[T, a]``, flat in the order of the embodiment's actions."""
    steps, specs = episode.steps, episode.meta.embodiment.actions
    rows = [episode.action[a.name].reshape(steps, a.size).astype(np.float64) for a in specs]
    return np.concatenate([np.zeros((steps, 0)), *rows], axis=1)


def standing(episode: Episode, speed: float) -> Flags:
    """``[T]``: ticks at which no number was commanded to change faster than ``speed``, in its own
    unit per second.
    """
    specs, rate_hz = episode.meta.embodiment.actions, episode.meta.embodiment.rate_hz
    change = np.abs(commanded_change(flat_actions(episode), specs)) * rate_hz
    return (change <= speed).all(axis=1)
