"""From ticks to an episode: streams at their own rates, and which row each tick showed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode, EpisodeMeta, no_sent
from robolearn.data.writer import EpisodeDraft, is_frames
from robolearn.errors import DataError
from robolearn.history import sample_index
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import Command, Sample, SampleBlock, SentBlock, Tick


class EpisodeAssembler:
    """Collects the ticks of one episode; frames go to the draft's files at once."""

    def __init__(self, spec: EmbodimentSpec, draft: EpisodeDraft) -> None:
        self._spec = spec
        self._streams = {s.name: _Stream(s, draft) for s in spec.signals}
        self._tick_t_ns: list[int] = []
        self._ticks: list[tuple[Command, float, float, bool, bool, int, int]] = []
        self._sent: list[SentBlock] = []

    def add(self, tick: Tick) -> None:
        """Take one tick in."""
        for name in tick.drained.signals:
            self._spec.signal(name)
        for name, stream in self._streams.items():
            block = tick.drained.signals.get(name)
            stream.add(block, tick.observation.samples.get(name), tick.observation.t_ns)
        if tick.drained.sent.seq.size:
            self._sent.append(tick.drained.sent)
        outcome = tick.outcome
        self._tick_t_ns.append(tick.observation.t_ns)
        self._ticks.append(
            (
                tick.command,
                outcome.reward,
                outcome.progress,
                outcome.terminal,
                outcome.truncated,
                tick.inference_ns,
                tick.overrun_ns,
            )
        )

    def notes(self) -> dict[str, Any]:
        """What deserves mention in the provenance: samples that came late, signals never seen."""
        late = {n: s.late for n, s in self._streams.items() if s.late}
        unseen = [n for n, s in self._streams.items() if not s.times]
        return {"late_samples": late, "signals_without_samples": unseen}

    def finish(self, meta: EpisodeMeta) -> Episode:
        """The episode; values of frame signals are on disk and left empty here."""
        if not self._ticks:
            raise DataError("the episode ended before its first tick; nothing to save")
        commands = [t[0] for t in self._ticks]
        action = {
            a.name: np.stack([np.asarray(c.action[a.name], dtype=np.float64) for c in commands])
            for a in self._spec.actions
        }
        seen = {name: stream for name, stream in self._streams.items() if stream.times}
        return Episode(
            meta=meta,
            tick_t_ns=np.array(self._tick_t_ns, dtype=np.int64),
            streams={name: stream.block() for name, stream in seen.items()},
            view={name: stream.view() for name, stream in seen.items()},
            action=action,
            seq=np.array([c.seq for c in commands], dtype=np.int64),
            due_ns=np.array([c.due_ns for c in commands], dtype=np.int64),
            source=tuple(c.source for c in commands),
            sent=_join(self._sent) if self._sent else no_sent(action),
            reward=np.array([t[1] for t in self._ticks], dtype=np.float64),
            progress=np.array([t[2] for t in self._ticks], dtype=np.float64),
            terminal=np.array([t[3] for t in self._ticks], dtype=np.bool_),
            truncated=np.array([t[4] for t in self._ticks], dtype=np.bool_),
            inference_ns=np.array([t[5] for t in self._ticks], dtype=np.int64),
            overrun_ns=np.array([t[6] for t in self._ticks], dtype=np.int64),
        )


class _Stream:
    """All samples of one signal, ascending in time, and what each tick showed."""

    def __init__(self, spec: SignalSpec, draft: EpisodeDraft) -> None:
        self.times: list[int] = []
        self.late = 0
        self._spec, self._draft, self._frames = spec, draft, is_frames(spec)
        self._values: list[NDArray[Any]] = []
        self._valid: list[NDArray[np.bool_]] = []
        self._shown: list[int] = []

    def add(self, block: SampleBlock | None, shown: Sample | None, tick_t_ns: int) -> None:
        """New samples in order; a shown sample that was not drained is put in by its time."""
        self._shown.append(tick_t_ns if shown is None else shown.t_ns)
        rows = [] if block is None else [(int(t), row) for row, t in enumerate(block.t_ns)]
        if shown is not None and all(t != shown.t_ns for t, _ in rows):
            rows.append((shown.t_ns, -1))
        rows.sort()
        last = self.times[-1] if self.times else None
        fresh: list[tuple[int, int]] = []
        for t, row in rows:
            if last is None or t > last:
                fresh.append((t, row))
                last = t
            elif row >= 0 and t != last:
                self.late += 1
        if fresh:
            self._append(fresh, block, shown)

    def _append(
        self, fresh: list[tuple[int, int]], block: SampleBlock | None, shown: Sample | None
    ) -> None:
        values: list[NDArray[Any]] = []
        valid: list[bool] = []
        for _, row in fresh:
            if row < 0 and shown is not None:
                values.append(np.asarray(shown.value))
                valid.append(True)
            elif block is not None:
                values.append(block.value[row])
                valid.append(bool(block.valid[row]))
        times = np.array([t for t, _ in fresh], dtype=np.int64)
        stacked = np.stack(values)
        if stacked.dtype.kind == "f" and np.dtype(self._spec.dtype).kind == "f":
            stacked = stacked.astype(self._spec.dtype)
        self.times += times.tolist()
        self._valid.append(np.array(valid, dtype=np.bool_))
        if self._frames:
            self._draft.add_frames(self._spec, SampleBlock(times, stacked, self._valid[-1]))
        else:
            self._values.append(stacked)

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


def _join(blocks: list[SentBlock]) -> SentBlock:
    names = blocks[0].action
    return SentBlock(
        seq=np.concatenate([b.seq for b in blocks]),
        t_ns=np.concatenate([b.t_ns for b in blocks]),
        action={
            name: np.concatenate([np.asarray(b.action[name], dtype=np.float64) for b in blocks])
            for name in names
        },
    )
