"""What benchmarks share: two contestants in turns, and a row whose ratio has a lower bound."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray


def interleaved(
    ours: Callable[[], object], reference: Callable[[], object], repeats: int, warm: int = 5
) -> tuple[float, float]:
    """Median CPU seconds of both in turns: one thread, so their time on a core of its own."""
    median = np.median(in_turns((ours, reference), repeats, warm), axis=0)
    return float(median[0]), float(median[1])


def in_turns(
    contestants: Sequence[Callable[[], object]], repeats: int, warm: int = 5, own: int = 0
) -> NDArray[np.float64]:
    """CPU seconds of all, one after the other, ``[repeats, contestants]``.

    With ``own`` calls of its own before each measured one, a contestant finds its data in the
    caches; without, what the others left there.
    """
    times = np.zeros((repeats, len(contestants)))
    for function in tuple(contestants) * warm:
        function()
    for i in range(repeats):
        for j, function in enumerate(contestants):
            for _ in range(own):
                function()
            begin = time.thread_time()
            function()
            times[i, j] = time.thread_time() - begin
    return times


def at_least(
    name: str,
    unit: str,
    ours: float | None,
    reference: float | None,
    ratio: float | None,
    floor: float | None,
    why: str = "",
) -> dict[str, object]:
    """A row of ``tests/benchmarks/run.py`` that holds where the ratio reaches its floor."""
    return {
        "name": name,
        "unit": unit,
        "ours": ours,
        "reference": reference,
        "ratio": ratio,
        "floor": floor,
        "holds": None if ratio is None or floor is None else bool(ratio >= floor),
        "why": why,
    }
