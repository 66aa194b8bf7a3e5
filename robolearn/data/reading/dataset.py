"""Gathers windows and chunked transitions for training, vectorised, once per batch.

A window at tick ``t`` (n_obs 2, horizon 4) of an episode with ticks 0..5:

    t = 0   observations  o0 o0          actions  a0 a1 a2 a3   mask 1 1 1 1
            (the first observation is repeated before the start)
    t = 4   observations        o3 o4    actions  a4 a5 a5 a5   mask 1 1 0 0
            (the last action is repeated past the end, masked)

Where an observation is missing (not valid in the store), no window shows it. Index 0 of the actions
is the action at the time of the newest observation. What comes after a window, where an algorithm
asks for it, is added up in :mod:`robolearn.data.reading.transitions`.

The order of windows is a pure function of (seed, epoch), and batch ``k`` is a pure function of
``k``: training resumes anywhere, also in the middle of an epoch, without any stored state. With
weights, an epoch holds as many windows as without, each ``n * weight / sum`` times, rounded down or
up at random (systematic resampling), so that equal weights change nothing.

A data set that grows (:meth:`EpisodeDataset.extend`) has no epochs: batch ``k`` is drawn with
replacement, a pure function of (seed, ``k``, number of windows). Where decisions are what is
learned from (:attr:`EpisodeDataset.decided`), passes over these follow each other.

Batches are gathered whole; :meth:`EpisodeDataset.span` hands them to a torch ``DataLoader``, whose
workers give the same batches:

    DataLoader(dataset.span(step, steps), batch_size=None, num_workers=2,
               multiprocessing_context="spawn")
"""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false
from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int64
from numpy.typing import NDArray

from robolearn.data.decisions import Decided, DecidedRows
from robolearn.data.reading.cache import FlatEpisodes
from robolearn.data.reading.episode_arrays import Rows
from robolearn.data.reading.goals import DrawnGoals, FutureRows, hindsight
from robolearn.data.reading.proposed import Proposed
from robolearn.data.reading.transitions import step_values, td_batch
from robolearn.data.reading.window_index import (
    GrowingIndex,
    WindowIndex,
    require_windows,
    window_index,
)
from robolearn.data.store.stats import DatasetStats, RunningStats, SignalStats
from robolearn.errors import DataError
from robolearn.instructions import TEXT
from robolearn.learning import Batch, BatchSpec, Observed, with_goals
from robolearn.seeding import child_seed
from robolearn.shapes import Index

# Episodes; what is trained on and what is held out differ in number.
Chosen = Int64[NDArray[np.int64], "_"]
Used = Bool[NDArray[np.bool_], " b"]

STATS_ROWS = 1 << 16


def split_episodes(count: int, held_out: float, seed: int) -> tuple[Chosen, Chosen]:
    """Training and held-out episode numbers, both ascending, by seed."""
    if not 0.0 <= held_out < 1.0:
        raise DataError(f"held_out must be in [0, 1), got {held_out}")
    order = np.random.default_rng(child_seed(seed, "split")).permutation(count)
    out = round(held_out * count)
    if count - out < 1:
        raise DataError(f"nothing left to train on: {out} of {count} episodes are held out")
    return np.sort(order[out:]), np.sort(order[:out])


def store_of(episode: str) -> int:
    """The number of the store that an episode of a mixture is of; 0 where there is one store."""
    number, slash, _ = episode.partition("/")
    return int(number) if slash and number.isdecimal() else 0


class EpisodeDataset:
    """Batches over the chosen episodes of ``flat``.

    ``weights [N]``, one per row of ``flat``: how often the window whose newest observation is that
    row is drawn, relative to the others; 0 leaves it out (``flat.per_row`` repeats weights of
    episodes), e.g. ``np.where(flat.intervention, 5.0, 1.0)`` to see corrections more often.
    ``texts [episodes, size]``: what the instruction of every episode says; shown as the observation
    :data:`robolearn.instructions.TEXT`. ``growing``: episodes will be added.
    """

    def __init__(
        self,
        flat: FlatEpisodes,
        spec: BatchSpec,
        seed: int,
        episodes: Index | None = None,
        weights: NDArray[np.float64] | None = None,
        texts: NDArray[np.float32] | None = None,
        growing: bool = False,
    ) -> None:
        self.flat, self.spec, self.seed, self._texts = flat, spec, seed, texts
        self.episodes = np.arange(len(flat.ids)) if episodes is None else episodes
        if self.episodes.size == 0:
            raise DataError("the chosen split has no episodes")
        # What follows is looked up by row: once for all batches.
        self._index: WindowIndex = window_index(flat, spec, self.episodes)
        require_windows(self._index, flat, spec, self.episodes)
        self._growing = GrowingIndex(self._index) if growing else None
        self._future, self._pursued = self._futures()
        self._shares = None if weights is None else self._cumulative(weights)
        # Chunks that the algorithm proposes where transitions end, in its own representation.
        self.candidates: Proposed | None = None
        # Decisions that are learned from instead of all windows.
        self.decided: Decided | None = None
        self._epoch = -1
        self._order: Index = np.zeros(0, dtype=np.int64)

    @property
    def windows(self) -> Index:
        """Rows of ``flat`` that windows start from (their newest observation)."""
        return self._index.windows

    def __len__(self) -> int:
        """Number of windows."""
        return len(self._index.windows)

    def extend(self, flat: FlatEpisodes) -> None:
        """Further episodes: ``flat`` begins with those that are known. What is known of these is
        not looked at again; batches are drawn from all of them, with replacement.

        Errors: :class:`DataError` for a data set that was not made to grow (``growing``).
        """
        known = len(self.flat.ids)
        grows = self._growing is not None and self._shares is None and self._texts is None
        if self._growing is None or not grows or flat.ids[:known] != self.flat.ids:
            raise DataError(
                "expected the episodes of a growing data set and further ones, without weights and"
                " instructions; make another data set of these"
            )
        further = flat.after(known)
        every = np.arange(len(further.ids))
        self._growing.append(window_index(further, self.spec, every), known)
        self.flat, self._index = flat, self._growing.index
        self.episodes = np.concatenate([self.episodes, known + every])
        self._future, self._pursued = self._futures()

    def batch(self, step: int) -> Batch:
        """Batch ``step`` of the endless stream of shuffled epochs."""
        return self.drawn(self._rows(step), step)

    def drawn(self, t: Index, step: int) -> Batch:
        """The batch whose newest observations are the rows ``t [b]``, with what is drawn besides
        for batch ``step``.
        """
        batch = self.gather(t)
        if self._future is None or self.spec.future is None:
            return batch
        rng = np.random.default_rng(child_seed(self.seed, "future", step))
        if not self.spec.aims:
            return dataclasses.replace(batch, future=self._shown(self._future.draw(t, rng)))
        batch = self._aimed(batch, t, self._future.goals(t, rng))
        if self._pursued is None:
            return batch
        rng = np.random.default_rng(child_seed(self.seed, "actor_future", step))
        return self._pursuing(batch, t, self._pursued.goals(t, rng), self._pursued)

    def span(self, start: int, stop: int) -> BatchSpan:
        """Batches ``start`` to ``stop - 1`` as a sequence, for a torch ``DataLoader``."""
        return BatchSpan(self, start, stop)

    def gather(self, t: Index) -> Batch:
        """The batch whose newest observations are the rows ``t [b]``."""
        first, last = self._bounds(t)
        observations = self._observed(self.flat.observations, t, t, first)
        actions, mask, rows = self._chunks(t, last)
        intervention = torch.from_numpy(self.flat.intervention[rows])
        window = Batch(observations, actions, mask, intervention=intervention)
        ends, returns = self._index.done_at, self._index.returns
        ahead = {} if ends is None else self._ahead(t, first, last, ends[t])
        if returns is not None:
            ahead["returns"] = torch.from_numpy(returns.value[t])
            ahead["returns_whole"] = torch.from_numpy(returns.whole[t])
        if "origin" in self.spec.parts:
            episodes: list[int] = self._index.episode_of[t].tolist()
            ahead["origin"] = torch.tensor([store_of(self.flat.ids[e]) for e in episodes])
        if "candidates" in self.spec.parts:
            ahead["candidates"] = self._proposed(t, np.ones(len(t), dtype=np.bool_))
        if self.decided is not None:
            ahead |= {name: torch.from_numpy(v) for name, v in self.decided.at(t).items()}
        return dataclasses.replace(window, **ahead)

    def proposed_rows(self, since: int = 0) -> Chosen:
        """The rows that chunks are asked for at, by any of the windows from number ``since`` on;
        ascending.
        """
        windows, spec, ends = self.windows[since:], self.spec, self._index.done_at
        rows = [windows] if "candidates" in spec.parts else [windows[:0]]
        if ends is not None and "next_candidates" in spec.parts:
            # Where a value is taken from.
            rows.append(windows[ends[windows] - windows >= spec.stride] + spec.stride)
        return np.unique(np.concatenate(rows))

    def histories(self, rows: Index) -> Observed:
        """What is observed up to ``rows [b]``, as of rows that follow others
        ``[b, n_obs, *shape]``.
        """
        return self._observed(self.flat.following, rows, rows, self._bounds(rows)[0])

    def stats(self) -> DatasetStats:
        """Statistics over the rows of the chosen episodes."""
        space = self.flat.task_space
        signals = [s for s in space.observations if not s.is_image]
        observations = {s.name: RunningStats(int(np.prod(s.shape))) for s in signals}
        actions = {a.name: RunningStats(a.size) for a in space.actions}
        chosen = self._chosen_rows()
        chosen = chosen[self.flat.seen[chosen]]
        # In blocks: the data may be larger than memory.
        for begin in range(0, len(chosen), STATS_ROWS):
            rows = chosen[begin : begin + STATS_ROWS]
            for s in signals:
                observations[s.name].update(self.flat.observations[s.name][rows])
            split = space.split(np.asarray(self.flat.actions[rows], dtype=np.float64))
            for name, values in split.items():
                actions[name].update(values)
        found = {k: v.finish() for k, v in observations.items()}
        # What a goal looks like is learned from what is observed, where that becomes the goal.
        pairs = () if self.spec.future is None else self.spec.future.goals
        found |= {goal: found[source] for goal, source in pairs if source in found}
        return DatasetStats(
            found,
            {k: v.finish() for k, v in actions.items()},
            reward=self.reward_stats(),
        )

    def reward_stats(self) -> SignalStats | None:
        """Of every step of the chosen episodes; None where the algorithm asks for no rewards."""
        if not self.spec.learns_from_rewards:
            return None
        running, rows = RunningStats(1), self._chosen_rows()
        for begin in range(0, len(rows), STATS_ROWS):
            running.update(self.flat.reward[rows[begin : begin + STATS_ROWS], None])
        return running.finish()

    def _chunks(
        self, t: Index, last: Index
    ) -> tuple[torch.Tensor, torch.Tensor, NDArray[np.int64]]:
        """Actions from rows ``t``, which of them are meant, and their rows."""
        rows = t[:, None] + np.arange(self.spec.horizon)
        mask = torch.from_numpy(rows <= last[:, None])
        rows = np.minimum(rows, last[:, None])
        return torch.from_numpy(self.flat.actions[rows]), mask, rows

    def _ahead(self, t: Index, first: Index, last: Index, end: Index) -> dict[str, Any]:
        """The parts of a batch that lie after its windows."""
        flat, spec = self.flat, self.spec
        td = td_batch(flat.reward, t, last, end, spec.stride, spec.discount)
        found: dict[str, Any] = {}
        if "transition" in spec.parts:
            found["reward"] = torch.from_numpy(td.reward)
            found["next_observations"] = self._observed(flat.following, td.next_index, t, first)
            found["bootstrap"] = torch.from_numpy(td.bootstrap)
        if "step_rewards" in spec.parts:
            rewards = step_values(flat.reward, t, last, td.steps, spec.stride)
            found["step_rewards"] = torch.from_numpy(rewards)
        if "step_observations" in spec.parts:
            found |= self._steps(t, first, last, end)
        if "next_actions" in spec.parts:
            actions, mask, _ = self._chunks(td.next_index, last)
            found |= {"next_actions": actions, "next_action_mask": mask}
        if "next_candidates" in spec.parts:
            found["next_candidates"] = self._proposed(td.next_index, td.bootstrap > 0)
        if "cost" in spec.parts:
            cost = td_batch(flat.cost, t, last, end, spec.stride, spec.discount)
            found["cost"] = torch.from_numpy(cost.reward)
            # Costs are at least 0, so that steps which are not there do not count.
            each = step_values(flat.cost, t, last, td.steps, spec.stride)
            found["worst_cost"] = torch.from_numpy(each.max(axis=1))
        return found

    def _steps(self, t: Index, first: Index, last: Index, end: Index) -> dict[str, Any]:
        """What each step of the chunks leads to."""
        flat, spec = self.flat, self.spec
        steps = range(1, spec.stride + 1)
        after = [td_batch(flat.reward, t, last, end, n, spec.discount) for n in steps]
        rows = np.stack([td.next_index for td in after], axis=1).ravel()
        starts, firsts = (np.repeat(values, spec.stride) for values in (t, first))
        shown = self._observed(flat.following, rows, starts, firsts)
        return {
            "step_observations": {k: v.unflatten(0, (len(t), -1)) for k, v in shown.items()},
            "step_bootstrap": torch.from_numpy(np.stack([td.bootstrap for td in after], axis=1)),
        }

    def _proposed(self, rows: Index, used: Used) -> torch.Tensor:
        """Chunks at ``rows [b]``; zeros where they are not used."""
        if self.candidates is None:
            raise DataError("nothing was proposed for these rows before training")
        found = self.candidates.at(rows[used])
        chunks = np.zeros((len(used), *found.shape[1:]), dtype=np.float32)
        chunks[used] = found
        return torch.from_numpy(chunks)

    def _observed(
        self, seen: Mapping[str, Rows], newest: Index, t: Index, first: Index
    ) -> Mapping[str, torch.Tensor]:
        """The histories up to rows ``newest``, and what the instruction of the episode says."""
        rows = np.maximum(newest[:, None] + np.arange(1 - self.spec.n_obs, 1), first[:, None])
        observations = {name: torch.from_numpy(v[rows]) for name, v in seen.items()}
        if self._texts is not None:
            observations[TEXT] = torch.from_numpy(self._texts[self._index.episode_of[t]])
        return observations

    def _shown(self, rows: Index) -> Mapping[str, torch.Tensor]:
        return {name: torch.from_numpy(v[rows]) for name, v in self.flat.observations.items()}

    def _aimed(self, batch: Batch, t: Index, goals: DrawnGoals) -> Batch:
        """The batch from rows ``t`` for these goals, with the rewards of theirs."""
        spec = self.spec
        batch = with_goals(batch, _tensors(goals))
        worth = hindsight(t, goals.rows, spec.stride, spec.discount)
        found: dict[str, Any] = {}
        if "transition" in spec.parts:
            found["reward"] = torch.from_numpy(worth.reward)
            found["bootstrap"] = torch.from_numpy(worth.bootstrap)
        if "step_rewards" in spec.parts:
            found["step_rewards"] = torch.from_numpy(worth.step_rewards)
        return dataclasses.replace(batch, **found)

    def _pursuing(self, batch: Batch, t: Index, goals: DrawnGoals, future: FutureRows) -> Batch:
        """The batch with what the actor pursues from rows ``t``."""
        batch = dataclasses.replace(batch, actor_goals=_tensors(goals))
        if not self.spec.waypoint:
            return batch
        way = future.on_the_way(t, goals.rows, self.spec.waypoint, self.spec.n_obs)
        seen = self._observed(self.flat.observations, way, t, self._bounds(t)[0])
        return dataclasses.replace(batch, waypoints=seen)

    def _bounds(self, t: Index) -> tuple[Index, Index]:
        episode = self._index.episode_of[t]
        return self.flat.starts[episode], self.flat.starts[episode + 1] - 1

    def _futures(self) -> tuple[FutureRows | None, FutureRows | None]:
        rows, spec = self._chosen_rows(), self.spec
        future, actor = spec.future, spec.actor_future
        if future is not None and actor is not None:
            # Which goals there are, one says for both.
            actor = dataclasses.replace(actor, goals=future.goals, marks=future.marks)
        made = (f and FutureRows(self.flat, f, rows) for f in (future, actor))
        shown, pursued = made
        return shown, pursued

    def _chosen_rows(self) -> Index:
        mine = np.isin(self._index.episode_of, self.episodes)
        return np.flatnonzero(mine).astype(np.int64)

    def _rows(self, step: int) -> Index:
        size, n = self.spec.batch_size, len(self)
        if self.decided is not None:
            return self._decided_rows(self.decided.rows, step)
        if self._growing is not None:
            rng = np.random.default_rng(child_seed(self.seed, "drawn", step))
            return self.windows[rng.integers(0, n, size)]
        positions = np.arange(step * size, (step + 1) * size)
        rows = np.empty(size, dtype=np.int64)
        for epoch in range(int(positions[0]) // n, int(positions[-1]) // n + 1):
            inside = positions // n == epoch
            rows[inside] = self.windows[self._permutation(epoch)[positions[inside] % n]]
        return rows

    def passed(self, step: int) -> int:
        """How often all that is learned from was gone through before batch ``step``."""
        return step * self.spec.batch_size // max(1, self._drawn_from)

    @property
    def _drawn_from(self) -> int:
        return len(self) if self.decided is None else len(self.decided.rows)

    def _decided_rows(self, decided: DecidedRows, step: int) -> Index:
        """Passes over the decisions, each in an order of its own."""
        size, n = self.spec.batch_size, len(decided)
        positions = np.arange(step * size, (step + 1) * size)
        rows = np.empty(size, dtype=np.int64)
        for number in range(int(positions[0]) // n, int(positions[-1]) // n + 1):
            inside = positions // n == number
            seed = child_seed(self.seed, "decided", int(decided[0]), n, number)
            order = np.random.default_rng(seed).permutation(n)
            rows[inside] = decided[order[positions[inside] % n]]
        return rows

    def _permutation(self, epoch: int) -> Index:
        if epoch != self._epoch:
            rng = np.random.default_rng(child_seed(self.seed, "order", epoch))
            order = rng.permutation(len(self))
            if self._shares is not None:
                # Systematic resampling (Kitagawa 1996): counts are n * share, rounded down or up.
                points = (order + rng.random()) / len(order)
                last = int(np.argmax(self._shares == 1.0))
                order = np.minimum(np.searchsorted(self._shares, points, side="right"), last)
            self._order, self._epoch = order, epoch
        return self._order

    def _cumulative(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        rows = int(self.flat.starts[-1])
        if weights.shape != (rows,):
            raise DataError(f"expected one weight per row, ({rows},), got {weights.shape}")
        mine = np.asarray(weights[self.windows], dtype=np.float64)
        if not np.isfinite(mine).all() or bool((mine < 0).any()) or not mine.sum() > 0:
            raise DataError(
                "weights must be finite, at least 0, and above 0 for some window;"
                f" the smallest is {mine.min():g}, their sum {mine.sum():g}"
            )
        total = np.cumsum(mine)
        return total / total[-1]


def _tensors(goals: DrawnGoals) -> Mapping[str, torch.Tensor]:
    return {name: torch.from_numpy(values) for name, values in goals.shown.items()}


class BatchSpan:
    """Batches ``start`` to ``stop - 1`` of a data set: a sequence that worker processes share."""

    def __init__(self, dataset: EpisodeDataset, start: int, stop: int) -> None:
        if not 0 <= start <= stop:
            raise DataError(f"expected 0 <= start <= stop, got {start} and {stop}")
        self._dataset, self._start, self._stop = dataset, start, stop

    def __len__(self) -> int:
        return self._stop - self._start

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index} of {len(self)}")
        return self._dataset.batch(self._start + index)
