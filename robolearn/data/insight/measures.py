"""Measures what a store's episodes can teach: quality, coverage, ends, limits, delay, ambiguity.

Trajectory quality (TQ) and state-action coverage (SACo) follow A Dataset Perspective on Offline
Reinforcement Learning (Schweighofer et al. 2022, arXiv 2111.04714), where both refer to data of a
known best and worst policy. A store alone has no such reference: here TQ is the mean return between
the store's own worst and best episode, and SACo the share of rows whose quantised state and action
no other row has, on their first principal components. Counting is exact: the sample fits in memory.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray

from robolearn.data.insight.sample import Numbers, StoreSample
from robolearn.data.insight.saturation import Saturation, saturation
from robolearn.shapes import Flags

# One number per row, or per query.
PerRow = Float[NDArray[Any], " n"]
# Of at most so many principal components as are looked at.
Bins = Float[NDArray[Any], "rows parts"]

BINS = 10
"""Of every quantised number, between its 1 % and 99 % quantiles."""
COMPONENTS = 3
"""Of states and of actions; with more numbers nearly every row has a bin of its own."""
MOST_LAG = 15
"""Ticks that a motion is looked for behind its command."""
CLEAR = 0.4
"""Correlation from which on a motion is said to follow a command."""
QUERIES, REFERENCES, NEIGHBOURS = 400, 12_000, 12
"""How many states are asked, how many are searched, and how many near ones count."""
TWO_MODES = 0.87
"""Two groups explain so much of the neighbours' variance only where there are two: a uniform spread
gives .75, a Gaussian .64.
"""


@dataclass(frozen=True, slots=True)
class TaskCount:
    """Episodes of a task, and how many of them are a success as annotated."""

    task: str
    episodes: int
    successes: int


@dataclass(frozen=True, slots=True)
class Ends:
    """How the sampled episodes end, and what in it cannot be."""

    terminal: int
    truncated: int
    # Neither flag is set: the recording stops without a word; read as cut off.
    silent: int
    # Flags of the last tick and the outcome disagree.
    disagreeing: int
    # Recorded as a success, annotated as a failure.
    denied: int
    # All terminal in the last step that any episode has, none a success: likely a time limit.
    by_the_clock: int


@dataclass(frozen=True, slots=True)
class Delay:
    """The motion that follows a command most clearly, and how many ticks later; ``correlation`` of
    both, in [0, 1].
    """

    command: str
    motion: str
    ticks: int
    seconds: float
    correlation: float


@dataclass(frozen=True, slots=True)
class Ambiguity:
    """What actions are taken in states near to each other, in other episodes: the mean share of the
    variance of all actions that is left, and the share of states where they form two groups.
    """

    spread: float
    two_modes: float
    states: int


@dataclass(frozen=True, slots=True)
class StoreMeasures:
    """See the module; ``returns`` and ``trajectory_quality`` are of the sampled episodes, None
    where there are no rewards. Scores are the highest progress of all episodes.
    """

    episodes: int
    steps: int
    sampled_episodes: int
    sampled_steps: int
    left_out: int
    kinds: Mapping[str, int]
    tasks: tuple[TaskCount, ...]
    lengths: tuple[int, ...]
    scores: tuple[float, ...]
    rate_hz: float
    returns: tuple[float, ...] | None
    trajectory_quality: float | None
    coverage: float
    unique_states: float
    ends: Ends
    saturation: tuple[Saturation, ...]
    delay: Delay | None
    ambiguity: Ambiguity | None
    # Of every sampled episode: the share of the time in which nothing was commanded to move.
    idle: tuple[float, ...] = ()
    # Signals that say what is wanted, as tasks with goals show them: 'goal/...'.
    goals: tuple[str, ...] = ()

    @property
    def successes(self) -> int:
        """Episodes that succeeded, of all tasks."""
        return sum(t.successes for t in self.tasks)


def measure(sample: StoreSample, seed: int = 0) -> StoreMeasures:
    """Everything there is to measure, from one sample; random choices come from ``seed``."""
    rng = np.random.default_rng(seed)
    infos, ended = sample.infos, sample.episodes
    returns = tuple(e.return_ for e in ended) if any(e.rewarded for e in ended) else None
    states, actions = _bins(sample.states), _bins(sample.actions)
    return StoreMeasures(
        episodes=len(infos),
        steps=sum(i.steps for i in infos),
        sampled_episodes=len(ended),
        sampled_steps=len(sample.actions),
        left_out=sample.left_out,
        kinds=dict(Counter(i.kind for i in infos)),
        tasks=_tasks(sample),
        lengths=tuple(i.steps for i in infos),
        scores=tuple(i.score for i in infos),
        rate_hz=sample.rate_hz,
        returns=returns,
        trajectory_quality=None if returns is None else trajectory_quality(np.array(returns)),
        coverage=_unique(np.concatenate([states, actions], axis=1)),
        unique_states=_unique(states),
        ends=_ends(sample),
        saturation=saturation(sample.actions, sample.specs),
        delay=delay(sample),
        ambiguity=ambiguity(sample, rng),
        idle=tuple(e.idle for e in ended),
        goals=_goals(sample.state_names),
    )


def _goals(numbers: Sequence[str]) -> tuple[str, ...]:
    signals = dict.fromkeys(number.partition("[")[0] for number in numbers)
    return tuple(signal for signal in signals if signal.startswith("goal/"))


def trajectory_quality(returns: PerRow) -> float:
    """Mean of the returns between the lowest (0) and the highest (1); 1 where all are alike."""
    spread = float(returns.max() - returns.min())
    return 1.0 if spread == 0.0 else float((returns.mean() - returns.min()) / spread)


def delay(sample: StoreSample) -> Delay | None:
    """The lag at which any measured motion follows any command best, by correlation; None: nothing
    follows clearly. A lag of 0 is a motion that begins with the command, within its tick.

    This finds which signal answers and by how many ticks; ``robolearn calibrate latency`` measures
    a known pair in milliseconds.
    """
    best: Delay | None = None
    relative = np.concatenate([np.full(a.size, a.mode == "relative") for a in sample.specs])
    moved: list[Numbers] = []
    asked: list[Numbers] = []
    room: list[Flags] = []
    for begin, end in zip(sample.starts[:-1], sample.starts[1:], strict=True):
        if end - begin < MOST_LAG + 3:
            continue
        actions = sample.actions[begin:end]
        changes = np.diff(actions, axis=0, prepend=actions[:1])
        asked.append(np.where(relative, actions, changes)[:-1])
        moved.append(np.diff(sample.states[begin:end], axis=0))
        room.append(len(moved[-1]) - np.arange(len(moved[-1])) > MOST_LAG)
    if not moved:
        return None
    motion, command = np.concatenate(moved), np.concatenate(asked)
    rows = np.flatnonzero(np.concatenate(room))
    reference = _standard(command[rows])
    for lag in range(MOST_LAG + 1):
        match = np.abs(reference.T @ _standard(motion[rows + lag])) / len(rows)
        number, signal = (int(i) for i in np.unravel_index(match.argmax(), match.shape))
        height = float(match[number, signal])
        if best is None or height > best.correlation:
            names = sample.action_names[number], sample.state_names[signal]
            best = Delay(*names, lag, lag / sample.rate_hz, min(1.0, height))
    return best if best is not None and best.correlation >= CLEAR else None


def ambiguity(sample: StoreSample, rng: np.random.Generator) -> Ambiguity | None:
    """None where there are too few episodes, or no states, to compare."""
    rows = len(sample.actions)
    if len(sample.episodes) < 3 or rows < 4 * NEIGHBOURS or not sample.states.shape[1]:
        return None
    episode = np.repeat(np.arange(len(sample.episodes)), np.diff(sample.starts))
    reference = np.sort(rng.permutation(rows)[:REFERENCES])
    asked = rng.permutation(reference)[:QUERIES]
    states, actions = _standard(sample.states), _standard(sample.actions)
    spread: list[float] = []
    two: list[bool] = []
    for row in asked:
        apart = ((states[reference] - states[row]) ** 2).sum(axis=1)
        # Neighbours in time do alike because they are the same motion, not because states tell.
        apart[episode[reference] == episode[row]] = np.inf
        near = reference[np.argpartition(apart, NEIGHBOURS)[:NEIGHBOURS]]
        chosen = actions[near] - actions[near].mean(axis=0)
        variance = float((chosen**2).mean(axis=0).sum())
        spread.append(variance / max(1e-12, float((actions**2).mean(axis=0).sum())))
        two.append(spread[-1] > 0.05 and _two_groups(chosen) > TWO_MODES)
    return Ambiguity(float(np.mean(spread)), float(np.mean(two)), len(asked))


def _two_groups(values: Numbers) -> float:
    """Share of the variance along the main direction that a split into two groups explains."""
    _, _, directions = np.linalg.svd(values, full_matrices=False)
    line = np.sort(values @ directions[0])
    total = float(((line - line.mean()) ** 2).sum())
    if total <= 0.0:
        return 0.0
    best = 0.0
    # A group of one is an outlier, not a way to do it.
    for cut in range(2, len(line) - 1):
        parts = line[:cut], line[cut:]
        best = max(best, sum(len(p) * float((p.mean() - line.mean()) ** 2) for p in parts))
    return best / total


def _standard(values: Numbers) -> Numbers:
    """Zero mean, unit deviation; what does not move is 0."""
    deviation = values.std(axis=0)
    still = deviation <= 1e-9 * np.maximum(1.0, np.abs(values).max(axis=0, initial=0.0))
    return np.where(still, 0.0, (values - values.mean(axis=0)) / np.where(still, 1.0, deviation))


def _bins(values: Numbers) -> Bins:
    """Numbers of the bins of the first principal components ``[rows, at most COMPONENTS]``."""
    centred = _standard(values)
    if centred.shape[1] > COMPONENTS:
        _, vectors = np.linalg.eigh(centred.T @ centred)
        centred = centred @ vectors[:, -COMPONENTS:]
    low, high = np.quantile(centred, [0.01, 0.99], axis=0)
    width = np.where(high > low, high - low, 1.0) / BINS
    return np.clip(np.floor((centred - low) / width), 0, BINS - 1)


def _unique(bins: Bins) -> float:
    """Share of the rows that would be left if every bin kept one."""
    if not bins.shape[1]:
        return 0.0
    # One number per bin: BINS ** (2 * COMPONENTS) of them.
    codes = bins.astype(np.int64) @ BINS ** np.arange(bins.shape[1], dtype=np.int64)
    return len(np.unique(codes)) / len(bins)


def _tasks(sample: StoreSample) -> tuple[TaskCount, ...]:
    episodes = Counter(i.task for i in sample.infos)
    solved = Counter(i.task for i in sample.infos if i.success)
    return tuple(TaskCount(name, episodes[name], solved[name]) for name in sorted(episodes))


def _ends(sample: StoreSample) -> Ends:
    episodes = sample.episodes
    ended = [e for e in episodes if e.terminal]
    longest = max(e.info.steps for e in episodes)
    clock = len(ended) >= 5 and all(e.info.steps == longest for e in ended)
    solved = any(e.info.success for e in ended)
    return Ends(
        terminal=len(ended),
        truncated=sum(e.truncated for e in episodes),
        silent=sum(not (e.terminal or e.truncated) for e in episodes),
        disagreeing=sum(e.terminal != e.outcome_terminal for e in episodes),
        denied=sum(e.recorded_success and not e.info.success for e in episodes),
        by_the_clock=len(ended) if clock and not solved else 0,
    )
