"""Keeps what happens between two ``drain`` calls: samples, and what was sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.shapes import AnyArray, OwnFloats
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Sample, SampleBlock, SentBlock

_VALID = np.ones(1, dtype=np.bool_)
_VALID.setflags(write=False)


class SampleLog:
    """The newest sample of every signal, and those that were not drained yet.

    A drain leaves out samples of the current tick: they come with the next one, so that a batch
    always holds what the observation of its tick showed.
    """

    def __init__(self, owner: str, signals: Iterable[SignalSpec]) -> None:
        self._owner, self._signals = owner, {s.name: s for s in signals}
        self._dtypes = {n: np.dtype(s.dtype) for n, s in self._signals.items()}
        self.newest: dict[str, Sample] = {}
        self._rows: dict[str, list[Sample]] = {}
        # Samples that arrived late, and when; the others arrive when they are captured.
        self._late: dict[str, int] = {}

    def clear(self) -> None:
        """Forget everything: a new episode begins."""
        self.newest, self._rows = {}, {name: [] for name in self._signals}
        self._late = {}

    def add(self, t_ns: int, values: Mapping[str, Any]) -> None:
        """Keep one sample of each named signal, read-only, that arrives as it is captured."""
        if self._late:
            self._late = {n: t for n, t in self._late.items() if n not in values}
        newest, rows, dtypes = self.newest, self._rows, self._dtypes
        for name, value in values.items():
            array = np.asarray(value, dtype=dtypes[name])
            if array.flags.writeable:
                array = array.copy()
                array.setflags(write=False)
            newest[name] = sample = Sample(t_ns, array)
            rows[name].append(sample)

    def arrive(self, now_ns: int, samples: Iterable[tuple[str, int, AnyArray]]) -> None:
        """Keep samples ``(name, capture time, value)`` that arrive now, some of them late."""
        for name, t_ns, value in samples:
            self.add(t_ns, {name: value})
            self._late[name] = now_ns

    def repeat(self, t_ns: int, names: Iterable[str]) -> None:
        """Keep the last values once more, at a new time."""
        self.add(t_ns, {name: self.newest[name].value for name in names})

    def require(self) -> None:
        """Raise :class:`DataError` before the first reset."""
        if not self.newest:
            raise DataError(f"{self._owner}: call reset() before the first tick")

    def values(self) -> dict[str, AnyArray]:
        """The newest value of every signal."""
        return {name: sample.value for name, sample in self.newest.items()}

    def drain(self, now_ns: int) -> dict[str, SampleBlock]:
        """Samples captured before ``now_ns`` that were not drained before."""
        blocks: dict[str, SampleBlock] = {}
        late, times = self._late, _Times()
        for name, rows in self._rows.items():
            arrived = 0
            if rows:
                arrived = late[name] if name in late else rows[-1].t_ns
            self._rows[name] = [rows.pop()] if rows and arrived >= now_ns else []
            blocks[name] = _block(rows, self._signals[name], times)
        return blocks


class SentLog:
    """The commands that were carried out since the last drain, by ``seq``.

    ``sizes``: number of values of every action.
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._sizes = dict(sizes)
        self._rows: list[tuple[int, int, Mapping[str, Any]]] = []

    def clear(self) -> None:
        """Forget everything."""
        self._rows = []

    def add(self, seq: int, t_ns: int, values: Mapping[str, Any]) -> None:
        """One command with its time and the values that are really followed."""
        # Rows already, as most ticks have one command.
        copies = {name: np.array(values[name], dtype=np.float64, ndmin=2) for name in self._sizes}
        self._rows.append((seq, t_ns, copies))

    def drain(self) -> SentBlock:
        """One row per command since the last call."""
        rows, self._rows = self._rows, []
        if len(rows) == 1:
            ((seq, t_ns, values),) = rows
            return SentBlock(np.array((seq,)), np.array((t_ns,)), values)
        return SentBlock(
            seq=np.array([r[0] for r in rows], dtype=np.int64),
            t_ns=np.array([r[1] for r in rows], dtype=np.int64),
            action={
                name: np.array([r[2][name] for r in rows], dtype=np.float64).reshape(-1, size)
                for name, size in self._sizes.items()
            },
        )


def check_poses(
    condition: Condition, settable: Iterable[str], spec: EmbodimentSpec
) -> dict[str, OwnFloats]:
    """The poses of a condition as arrays; :class:`DataError` for what cannot be set here."""
    allowed = list(settable)
    poses: dict[str, OwnFloats] = {}
    for name, value in condition.poses.items():
        if name not in allowed:
            raise DataError(
                f"condition '{condition.id}': '{name}' cannot be set in {spec.name};"
                f" settable: {allowed}"
            )
        pose = np.array(value, dtype=np.float64)
        if pose.shape != spec.signal(name).shape or not np.isfinite(pose).all():
            raise DataError(
                f"condition '{condition.id}': {name} needs {spec.signal(name).shape} finite values,"
                f" got {value}"
            )
        poses[name] = pose
    return poses


class _Times(dict[int, NDArray[np.int64]]):
    """One array for all signals that were sampled once, at the same time."""

    def __missing__(self, t_ns: int) -> NDArray[np.int64]:
        self[t_ns] = times = np.array((t_ns,))
        return times


def _block(rows: list[Sample], signal: SignalSpec, times: _Times) -> SampleBlock:
    if len(rows) == 1:
        # The usual case of a signal at the control rate, without a copy (samples are read-only).
        (row,) = rows
        return SampleBlock(times[row.t_ns], row.value[None], _VALID)
    return SampleBlock(
        t_ns=np.array([s.t_ns for s in rows], dtype=np.int64),
        value=np.array([s.value for s in rows], dtype=signal.dtype).reshape(-1, *signal.shape),
        valid=np.ones(len(rows), dtype=np.bool_),
    )
