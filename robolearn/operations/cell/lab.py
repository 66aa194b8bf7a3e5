"""Starts the virtual lab of a cell for as long as an operation needs it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from hardware.cell.config import CellConfig
from hardware.emulators.lab.launch import LabProcess


@contextmanager
def cell_lab(config: Path, cell: CellConfig, *, start: bool) -> Generator[LabProcess | None]:
    """The lab of the file ``config`` that describes ``cell``; None unless it is to ``start``."""
    if not start:
        yield None
        return
    with LabProcess(config, address=cell.address or "127.0.0.1") as lab:
        yield lab
