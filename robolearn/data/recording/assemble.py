"""Makes an episode of ticks: streams at their own rates, and which row each tick showed.

Of a tick plain numbers and arrays are kept, not its objects: Python's collector goes through every
object that is alive, again and again, and many lanes that record keep very many.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeMeta, no_sent
from robolearn.data.store.drafts import EpisodeDraft, is_frames
from robolearn.data.store.layout import TICK_ARRAYS
from robolearn.errors import DataError
from robolearn.history import sample_index
from robolearn.shapes import AnyArray
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import Sample, SampleBlock, SentBlock, Tick

# Of a tick, in the order of the columns.
_Row = tuple[int, int, int, str, float, float, bool, bool, bool, int, int]
_COLUMNS: tuple[tuple[str, type[Any] | None], ...] = (
    ("t_ns", np.int64),
    ("seq", np.int64),
    ("due_ns", np.int64),
    ("source", None),
    ("reward", np.float64),
    ("progress", np.float64),
    ("terminal", np.bool_),
    ("truncated", np.bool_),
    ("success", np.bool_),
    ("inference_ns", np.int64),
    ("overrun_ns", np.int64),
)
_SOURCE = 3
# Of what was sent: numbers, times, and the values of every action.
_SentRow = tuple[NDArray[Any], ...]
# Samples of a tick, and a shown one: which tick, times, values, validity, files of pictures.
_Drained = tuple[int, NDArray[np.int64], AnyArray, NDArray[np.bool_], tuple[bytes, ...]]
_Shown = tuple[int, int, AnyArray, bytes]


class EpisodeAssembler:
    """Collects the ticks of one episode; frames go to the draft's files at once."""

    def __init__(self, spec: EmbodimentSpec, draft: EpisodeDraft) -> None:
        self._spec, self._draft = spec, draft
        self._streams = {s.name: _Stream(s, draft) for s in spec.signals}
        self._ticks: list[_Row] = []
        self._actions: dict[str, list[AnyArray]] = {a.name: [] for a in spec.actions}
        self._flushed_ticks = self._flushed_sent = 0
        self._sent: list[_SentRow] = []
        self._sent_names: tuple[str, ...] = ()

    def add(self, tick: Tick) -> None:
        """Take one tick in."""
        drained, shown = tick.drained.signals, tick.observation.samples
        for name in drained:
            if name not in self._streams:
                self._spec.signal(name)  # Says what there is.
        for name, stream in self._streams.items():
            stream.add(drained.get(name), shown.get(name), tick.observation.t_ns)
        sent, command, outcome = tick.drained.sent, tick.command, tick.outcome
        if sent.seq.size:
            self._sent_names = self._sent_names or tuple(sent.action)
            self._sent.append((sent.seq, sent.t_ns, *(sent.action[n] for n in self._sent_names)))
        for name, rows in self._actions.items():
            rows.append(command.action[name])
        self._ticks.append(
            (
                tick.observation.t_ns,
                command.seq,
                command.due_ns,
                command.source,
                outcome.reward,
                outcome.progress,
                outcome.terminal,
                outcome.truncated,
                outcome.success,
                tick.inference_ns,
                tick.overrun_ns,
            )
        )

    def segment(self) -> dict[str, AnyArray]:
        """Everything but frames since the last call; empty when there was no tick.

        Named as in the store, with ``signals/<name>/shown`` (the time that the tick showed) and
        ``success``; concatenated segments are the episode so far.
        """
        start = self._flushed_ticks
        if start == len(self._ticks):
            return {}
        found = self._ticks_since(start)
        for name, stream in self._streams.items():
            found |= {f"signals/{name}/{k}": v for k, v in stream.segment().items()}
        sent = self._sent[self._flushed_sent :]
        if sent:
            block = self._joined(sent)
            found |= {"sent/seq": block.seq, "sent/t_ns": block.t_ns}
            found |= {f"sent/action/{name}": v for name, v in block.action.items()}
        self._flushed_ticks, self._flushed_sent = len(self._ticks), len(self._sent)
        return found

    def _ticks_since(self, start: int) -> dict[str, NDArray[Any]]:
        columns = zip(*self._ticks[start:], strict=True)
        found: dict[str, NDArray[Any]] = {
            f"ticks/{name}": np.array(column, dtype=dtype)
            for (name, dtype), column in zip(_COLUMNS, columns, strict=True)
        }
        for name, rows in self._actions.items():
            found[f"action/{name}"] = np.array(rows[start:], dtype=np.float64)
        return found

    def _joined(self, sent: list[_SentRow]) -> SentBlock:
        seq, t_ns, *values = (np.concatenate(column) for column in zip(*sent, strict=True))
        named = zip(self._sent_names, values, strict=True)
        return SentBlock(seq, t_ns, {name: v.astype(np.float64) for name, v in named})

    def notes(self) -> dict[str, Any]:
        """What deserves mention in the provenance: samples that came late, signals never seen."""
        for stream in self._streams.values():
            stream.settle()
        late = {n: s.late for n, s in self._streams.items() if s.late}
        unseen = [n for n, s in self._streams.items() if not s.times]
        notes: dict[str, Any] = {"late_samples": late, "signals_without_samples": unseen}
        kept = self._draft.kept_files
        return notes | ({"frames_as_sent": kept} if kept else {})

    def finish(self, meta: EpisodeMeta) -> Episode:
        """The episode; values of frame signals are on disk and left empty here."""
        if not self._ticks:
            raise DataError("the episode ended before its first tick; nothing to save")
        for stream in self._streams.values():
            stream.settle()
        all_ticks = self._ticks_since(0)
        action = {a.name: all_ticks[f"action/{a.name}"] for a in self._spec.actions}
        seen = {name: stream for name, stream in self._streams.items() if stream.times}
        per_tick: dict[str, Any] = {name: all_ticks[f"ticks/{name}"] for name in TICK_ARRAYS}
        return Episode(
            meta=meta,
            tick_t_ns=all_ticks["ticks/t_ns"],
            streams={name: stream.block() for name, stream in seen.items()},
            view={name: stream.view() for name, stream in seen.items()},
            action=action,
            source=tuple(t[_SOURCE] for t in self._ticks),
            sent=self._joined(self._sent) if self._sent else no_sent(action),
            **per_tick,
        )


class _Stream:
    """All samples of one signal, ascending in time, and what each tick showed.

    Frames are taken in tick by tick and go to disk; of other signals ticks are kept until
    :meth:`settle` takes them in together.
    """

    def __init__(self, spec: SignalSpec, draft: EpisodeDraft) -> None:
        self.times: list[int] = []
        self.late = 0
        self._spec, self._draft, self._frames = spec, draft, is_frames(spec)
        self._drained: list[_Drained] = []
        self._seen: list[_Shown] = []
        self._values: list[NDArray[Any]] = []
        self._valid: list[NDArray[np.bool_]] = []
        self._shown: list[int] = []
        self._flushed = (0, 0, 0)
        self._flushed_sizes = 0

    def add(self, block: SampleBlock | None, shown: Sample | None, tick_t_ns: int) -> None:
        """What a tick drained and showed."""
        tick = len(self._shown)
        if block is not None and len(block.t_ns):
            self._drained.append((tick, block.t_ns, block.value, block.valid, block.files))
        if shown is None:
            self._shown.append(tick_t_ns)
        else:
            self._shown.append(shown.t_ns)
            self._seen.append((tick, shown.t_ns, shown.value, shown.file))
        if self._frames:
            self.settle()

    def settle(self) -> None:
        """Take in what waits: new samples in order of time, tick by tick; a shown sample that was
        not drained is put in by its time, one that is older than what is there already is late.
        """
        blocks, self._drained = self._drained, []
        shown, self._seen = self._seen, []
        if not blocks and not shown:
            return
        lengths = [len(block[1]) for block in blocks]
        drained = sum(lengths)
        times = np.concatenate(
            [
                *(block[1] for block in blocks),
                np.array([one[1] for one in shown], dtype=np.int64),
            ]
        )
        ticks = np.concatenate(
            [
                np.repeat(np.array([block[0] for block in blocks], dtype=np.int64), lengths),
                np.array([one[0] for one in shown], dtype=np.int64),
            ]
        )
        # Of a tick by time; a shown sample comes after the drained one of its time, which it is.
        order = np.lexsort((np.arange(len(times)), times, ticks))
        ordered = times[order]
        newest = self.times[-1] if self.times else np.iinfo(np.int64).min
        before = np.maximum.accumulate(np.concatenate([[newest], ordered[:-1]]))
        self.late += int(np.count_nonzero((ordered < before) & (order < drained)))
        rows = order[ordered > before]
        if len(rows):
            self._append(times[rows], rows, blocks, shown)

    def _append(
        self,
        times: NDArray[np.int64],
        rows: NDArray[np.int64],
        blocks: list[_Drained],
        shown: list[_Shown],
    ) -> None:
        """The samples ``rows`` of all that were drained, followed by those that were shown."""
        valid = [*(block[3] for block in blocks), np.ones(len(shown), dtype=np.bool_)]
        drained = sum(len(block[1]) for block in blocks)
        files = _files(blocks, shown, rows) if self._frames else ()
        put_in = rows[rows >= drained] - drained
        try:
            values: list[NDArray[Any]] = [block[2] for block in blocks]
            if len(put_in):
                # Only those that are needed, which are few.
                rows = rows.copy()
                rows[rows >= drained] = drained + np.arange(len(put_in))
                values.append(np.stack([np.asarray(shown[int(k)][2]) for k in put_in]))
                valid[-1] = valid[-1][: len(put_in)]
            stacked = values[0]
            # Pictures go to disk now, and most often they are all there: no copy is needed.
            as_they_are = len(values) == 1 and np.array_equal(rows, np.arange(len(stacked)))
            if not (self._frames and as_they_are):
                stacked = np.concatenate(values)[rows]
        except ValueError as error:
            raise DataError(f"{self._spec.name}: samples of different shapes: {error}") from error
        if stacked.dtype.kind == "f" and np.dtype(self._spec.dtype).kind == "f":
            stacked = stacked.astype(self._spec.dtype)
        self.times += times.tolist()
        self._valid.append(np.concatenate(valid)[rows])
        if self._frames:
            taken = SampleBlock(times, stacked, self._valid[-1], files)
            self._draft.add_frames(self._spec, taken)
        else:
            self._values.append(stacked)

    def segment(self) -> dict[str, NDArray[Any]]:
        """Samples and shown times since the last call; frames are on disk already."""
        self.settle()
        rows, blocks, shown = self._flushed
        self._flushed = len(self.times), len(self._valid), len(self._shown)
        found: dict[str, NDArray[Any]] = {
            "shown": np.array(self._shown[shown:], dtype=np.int64),
            "t_ns": np.array(self.times[rows:], dtype=np.int64),
        }
        if len(self._valid) > blocks:
            found["valid"] = np.concatenate(self._valid[blocks:])
            if not self._frames:
                found["value"] = np.concatenate(self._values[blocks:])
        sizes = self._draft.encoded_sizes(self._spec.name)
        if len(sizes) > self._flushed_sizes:
            found["encoded_size"] = np.array(sizes[self._flushed_sizes :], dtype=np.int64)
            self._flushed_sizes = len(sizes)
        return found

    def block(self) -> SampleBlock:
        empty = np.zeros((0, *self._spec.shape), dtype=self._spec.dtype)
        return SampleBlock(
            t_ns=np.array(self.times, dtype=np.int64),
            value=np.concatenate(self._values) if self._values else empty,
            valid=np.concatenate(self._valid),
        )

    def view(self) -> NDArray[np.int64]:
        """The row with exactly the shown capture time, else the newest before it."""
        times = np.array(self.times, dtype=np.int64)
        return sample_index(times, np.array(self._shown, dtype=np.int64), self._spec.name)


def _files(
    blocks: list[_Drained], shown: list[_Shown], rows: NDArray[np.int64]
) -> tuple[bytes, ...]:
    """Of the samples ``rows`` of all that were drained, followed by those that were shown."""
    found: list[bytes] = []
    for _, t_ns, _, _, files in blocks:
        found += files or (b"",) * len(t_ns)
    found += [one[3] for one in shown]
    chosen = [found[row] for row in map(int, rows)]
    return tuple(chosen) if any(chosen) else ()
