"""Says how many threads numerics libraries start; they read it when they are imported.

Nothing here multiplies matrices that are worth a second thread, training with torch apart
(``robolearn.learning.use_threads``). A small system that OpenBLAS solves with two threads takes 10
us on idle cores and 1 to 7 ms where another program needs one of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

# OpenMP (torch), OpenBLAS (numpy, scipy), MKL.
VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ONE_THREAD: dict[str, str] = dict.fromkeys(VARIABLES, "1")


def prepare_numerics() -> None:
    """What every command begins with, before torch and numpy are imported; what a person has set
    stays.

    Two torch threads beside a busy core are 7-22x slower with spinning barriers
    (docs/results.md).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def one_thread() -> None:
    """No thread pools in this process: they would spin beside an arm's loop. Before the imports."""
    for name, value in ONE_THREAD.items():
        os.environ.setdefault(name, value)


@contextlib.contextmanager
def one_thread_in_children() -> Generator[None]:
    """Processes that are started inside have no thread pools, whatever this one has."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
