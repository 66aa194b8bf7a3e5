"""Keeps the samples of one signal between two drains, at their own rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from robolearn.errors import StaleSignalError
from robolearn.history import interpolate
from robolearn.shapes import AnyRows, Times
from robolearn.spec import SignalSpec
from robolearn.types import Sample, SampleBlock

# Dimensions of several samples that are no pictures.
_ROWS = 2


class SignalBuffer:
    """Collects samples; :meth:`newest` (or :meth:`at`) is what an observation shows, :meth:`drain`
    hands out.

    A sample newer than the one last shown waits for the next drain, so that every observation
    finds its sample in the drain of its own tick. Whole blocks go in and out: the work of a tick
    hardly grows when the loop was late.
    """

    def __init__(self, spec: SignalSpec) -> None:
        self._spec, self.name = spec, spec.name
        self.clear()

    def clear(self) -> None:
        """Forget everything (an episode starts)."""
        self._t_ns = np.zeros(0, dtype=np.int64)
        self._value = np.zeros((0, *self._spec.shape), dtype=self._spec.dtype)
        # Of every row the picture as its camera sent it.
        self._files: list[bytes] = []
        self._last: Sample | None = None
        self._shown: Sample | None = None
        self._aligned = False

    def add(self, t_ns: int, value: Any, file: bytes = b"") -> None:
        """One sample; one that is not newer than the last is ignored. ``file``: of a picture, as
        :attr:`Sample.file`.
        """
        if self._last is None or t_ns > self._last.t_ns:
            rows = np.asarray(value, dtype=self._spec.dtype)[None]
            self._append(np.array([t_ns], dtype=np.int64), rows, [file])

    def extend(self, t_ns: Times, value: AnyRows) -> None:
        """Samples ``t_ns [n]`` ascending, ``value [n, *shape]``; old ones are ignored."""
        if self._last is not None:
            new = t_ns > self._last.t_ns
            t_ns, value = t_ns[new], value[new]
        if len(t_ns):
            self._append(t_ns, value, [b""] * len(t_ns))

    def _append(self, t_ns: Times, value: AnyRows, files: list[bytes]) -> None:
        self._last = Sample(int(t_ns[-1]), value[-1], files[-1])
        self._t_ns = np.concatenate([self._t_ns, t_ns])
        # Most often nothing waits, and a picture of a megabyte is nobody's to change.
        alone = value.ndim > _ROWS and not len(self._value)
        self._value = value if alone else np.concatenate([self._value, value])
        self._files += files

    def forget(self) -> None:
        """Nothing waits for the next drain any more; the newest sample stays known."""
        self._t_ns, self._value, self._files = self._t_ns[:0], self._value[:0], []

    @property
    def last(self) -> Sample | None:
        """The newest sample, without counting it as shown."""
        return self._last

    def newest(self) -> Sample:
        """What an observation shows now; raises StaleSignalError when there never was a sample."""
        if self._last is None:
            raise StaleSignalError(f"{self.name}: no sample has arrived yet")
        self._shown = self._last
        return self._last

    def at(self, t_ns: int) -> Sample:
        """What an observation aligned to ``t_ns`` shows: the value then, interpolated between the
        samples around it. The made sample joins the stream; what is newer waits.

        Never older than what was shown before; the newest sample if ``t_ns`` is newer than that.
        """
        self._aligned = True
        last, shown = self._last, self._shown
        if last is None:
            raise StaleSignalError(f"{self.name}: no sample has arrived yet")
        if t_ns >= last.t_ns:
            return self.newest()
        if shown is not None and t_ns <= shown.t_ns:
            return shown
        i = int(np.searchsorted(self._t_ns, t_ns, side="left"))
        before = shown if i == 0 else self._row(i - 1)
        if before is None or self._t_ns[i] == t_ns:
            self._shown = self._row(i)
            return self._shown
        value = interpolate(
            np.array([before.t_ns, self._t_ns[i]], dtype=np.int64),
            np.stack([before.value, self._value[i]]),
            np.array([t_ns], dtype=np.int64),
            self._spec,
        )
        self._t_ns = np.insert(self._t_ns, i, t_ns)
        self._value = np.insert(self._value, i, value[0], axis=0)
        self._files.insert(i, b"")
        self._shown = Sample(t_ns, value[0])
        return self._shown

    def _row(self, i: int) -> Sample:
        return Sample(int(self._t_ns[i]), self._value[i], self._files[i])

    def drain(self) -> SampleBlock:
        """Everything up to the last sample but one, and at least what was shown; with alignment
        nothing newer than what was shown.
        """
        count = len(self._t_ns)
        shown_ns = -1 if self._shown is None else self._shown.t_ns
        if self._aligned:
            take = int(np.searchsorted(self._t_ns, shown_ns, side="right"))
        else:
            take = count - 1 if count and self._t_ns[-1] > shown_ns else count
        t_ns, value, files = self._t_ns[:take], self._value[:take], tuple(self._files[:take])
        self._t_ns, self._value = self._t_ns[take:], self._value[take:]
        self._files = self._files[take:]
        valid = np.ones(take, dtype=np.bool_)
        return SampleBlock(t_ns=t_ns, value=value, valid=valid, files=files if any(files) else ())
