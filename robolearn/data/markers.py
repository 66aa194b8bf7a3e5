"""Finds the moments that a person marked in a long recording.

A session records them as the stream ``operator/marker`` (one sample per marker, at its time; the
first sample of an episode, number 0, is none). Later they may be said in an annotation, which
stands for those that were recorded.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import numpy as np

from robolearn.data.episode import Episode
from robolearn.data.store.annotations import Annotated
from robolearn.shapes import Floats
from robolearn.spec import SignalSpec

MARKER = SignalSpec("operator/marker", (1,), components=("number",))
"""What an env that a person marks adds to its signals."""


def marked_s(episode: Episode, annotated: Annotated) -> Floats:
    """Ascending times [s] since the first tick; empty where nothing is marked."""
    if annotated.markers:
        return np.array(annotated.markers, dtype=np.float64)
    block = episode.streams.get(MARKER.name)
    if block is None or not episode.steps:
        return np.zeros(0)
    marked = block.valid & (block.value[:, 0] > 0)
    return (block.t_ns[marked] - episode.tick_t_ns[0]) * 1e-9
