"""Shares rows between processes by a seqlock ring: one writer that never blocks, many readers.

    header: count | slot 0: seq, t_ns, width x float64 | slot 1 | ...

The writer makes a slot's ``seq`` odd, writes, makes it even, then raises ``count``; a reader copies
and checks that ``seq`` was the expected even number before and after. Readers never wait: retries
are bounded, and a writer killed in the middle of a slot leaves that slot uncounted.

Relies on the store order of x86-64. Times are ``time.monotonic_ns`` and comparable across the
processes of one machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing.shared_memory import SharedMemory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.shapes import RowsValues, RowValues
from robolearn.errors import DataError
from robolearn.shapes import Index, Times

_RETRIES = 64


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a ring, oldest first: ``index [n]``, ``t_ns [n]``, ``value [n, width]``.

    ``next_index`` continues the reading; ``dropped`` rows were overwritten before they were read.
    """

    index: Index
    t_ns: Times
    value: RowsValues
    next_index: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its running number, its time [ns], its values ``[width]``."""

    index: int
    t_ns: int
    value: RowValues


@dataclass(frozen=True, slots=True)
class RingHandle:
    """Names a ring so that another process can attach to it."""

    name: str
    slots: int
    width: int

    def attach(self) -> Ring:
        """Open the ring in this process; raises FileNotFoundError once it was unlinked."""
        return Ring(SharedMemory(name=self.name), self.slots, self.width)


class Ring:
    """Fixed number of slots of ``width`` float64 values with a time stamp each."""

    def __init__(self, memory: SharedMemory, slots: int, width: int) -> None:
        self._memory = memory
        self.slots, self.width = slots, width
        words = 1 + slots * (width + 2)
        table: NDArray[np.int64] = np.ndarray(words, np.int64, memory.buf)
        # The same memory twice: single numbers are read and written at half of numpy's time so.
        self._words, self._stride = table.data, width + 2
        self._int = table[1:].reshape(slots, width + 2)
        self._float = self._int[:, 2:].view(np.float64)

    @classmethod
    def create(cls, slots: int, width: int) -> Ring:
        """Allocate a zeroed ring; the creator calls :meth:`unlink` once the others attached."""
        if slots < 2 or width < 1:
            raise DataError(f"a ring needs at least 2 slots of 1 value, got {slots} of {width}")
        memory = SharedMemory(create=True, size=8 * (1 + slots * (width + 2)))
        ring = cls(memory, slots, width)
        ring._int[:] = 0
        ring._words[0] = 0
        return ring

    @property
    def handle(self) -> RingHandle:
        """What another process needs to attach."""
        return RingHandle(self._memory.name, self.slots, self.width)

    @property
    def count(self) -> int:
        """Number of rows written so far."""
        return self._words[0]

    def touch(self) -> None:
        """Read from every slot, so that no first use has to wait for its page."""
        self._int[:, 0].sum()

    def put(self, t_ns: int, value: Any) -> None:
        """Append one row (single writer; about 2 us; never blocks)."""
        words, n = self._words, self._words[0]
        slot = n % self.slots
        at = 1 + slot * self._stride
        words[at] = 2 * n + 1
        words[at + 1] = t_ns
        self._float[slot] = value
        words[at] = 2 * n + 2
        words[0] = n + 1

    def latest(self) -> Row | None:
        """The newest row; None while there is none (or the writer overtook every attempt)."""
        words = self._words
        for _ in range(_RETRIES):
            n = words[0]
            if n == 0:
                return None
            slot, expected = (n - 1) % self.slots, 2 * n
            at = 1 + slot * self._stride
            if words[at] != expected:
                continue
            row = Row(n - 1, words[at + 1], self._float[slot].copy())
            if words[at] == expected:
                return row
        return None

    def since(self, index: int) -> Rows:
        """All rows from running number ``index`` on that still exist."""
        n = self._words[0]
        first = max(index, n - self.slots, 0)
        wanted = np.arange(first, n, dtype=np.int64)
        slot = wanted % self.slots
        expected = 2 * wanted + 2
        before = self._int[slot, 0]
        t_ns, value = self._int[slot, 1], self._float[slot]
        good = (before == expected) & (self._int[slot, 0] == expected)
        kept = wanted[good]
        return Rows(kept, t_ns[good], value[good], n, max(0, n - index) - len(kept))

    def unlink(self) -> None:
        """Remove the name: attached processes keep the memory, nothing is left behind on a kill."""
        self._memory.unlink()

    def close(self) -> None:
        """Detach this process; safe to call twice. The ring must not be used afterwards."""
        empty = np.zeros((1, self.width + 2), np.int64)
        self._words, self._int = np.zeros(1, np.int64).data, empty
        self._float = empty[:, 2:].view(np.float64)
        self._memory.close()
