"""Draws the order of blinded trials: balanced over conditions, time and what came before.

Without pairs a block is one condition, tried by every policy. The order within blocks follows
Williams squares (every policy stands in every place, and after every other one, equally often over
a square; Williams 1949), whose rows and labels are drawn anew for each square. In pairs a block is
two policies under one condition; every pair comes equally often, each first equally often. A
repetition is of the same trials: on the same cell, in pairs by the same two in the other order.

All of it is equal over whole squares alone, on each cell by itself: :func:`unbalanced`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.errors import ConfigError

# Words that say nothing about what they stand for.
ALIASES = (
    *("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "ivory", "jade"),
    *("kelp", "lotus", "maple", "north", "ochre", "pearl", "quartz", "reef", "slate", "tulip"),
)


@dataclass(frozen=True, slots=True)
class Slot:
    """One planned trial."""

    # From 1, in the order in which slots are tried.
    number: int
    # Trials that follow each other from the same start.
    block: int
    condition: str
    # How often the policy was to try the condition before.
    repetition: int
    # What the policy is called while nobody may know which one it is.
    alias: str
    # The cell, by name.
    cell: str


def aliases(count: int) -> tuple[str, ...]:
    """So many names."""
    more = (f"alias{i}" for i in itertools.count(len(ALIASES) + 1))
    return tuple(itertools.islice(itertools.chain(ALIASES, more), count))


def schedule(
    conditions: Sequence[str],
    names: Sequence[str],
    cells: Sequence[str],
    *,
    repeats: int,
    seed: int,
    pairs: bool,
) -> tuple[Slot, ...]:
    """All slots in the order in which they are tried; the same ``seed`` gives the same ones.

    ``names``: aliases; ``repeats``: so many of the conditions, spread over them, come a second
    time; ``pairs``: blocks of two policies instead of all. :class:`ConfigError` for what cannot be.
    """
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(f"expected two or more policies, got {len(names)}")
    if not 0 <= repeats <= len(conditions):
        raise ConfigError(
            f"repeats must be 0 to {len(conditions)}, the number of conditions, got {repeats}"
        )
    rng = np.random.default_rng(seed)
    firsts = rng.permutation(conditions).tolist()
    chosen = rng.permutation(conditions)[:repeats].tolist()
    order = _with_repeats([(c, 0) for c in firsts], chosen, rng)
    rows = _Rows(names, pairs, rng)
    offset = int(rng.integers(len(cells)))
    cell_of = {c: cells[(i + offset) % len(cells)] for i, c in enumerate(firsts, 1)}
    found: list[Slot] = []
    for block, (condition, repetition) in enumerate(order, 1):
        cell = cell_of[condition]
        # On one cell repetitions go on with its squares, as plans always had it.
        stream = (cell, repetition if len(cells) > 1 else 0)
        for alias in rows.next(stream, condition, repetition):
            found.append(Slot(len(found) + 1, block, condition, repetition, alias, cell))
    return tuple(found)


class _Rows:
    """Who tries a condition, in which order: each stream of blocks is balanced by itself."""

    def __init__(self, names: Sequence[str], pairs: bool, rng: np.random.Generator) -> None:
        self._names, self._pairs, self._rng = names, pairs, rng
        self._streams: dict[tuple[str, int], Iterator[tuple[str, ...]]] = {}
        self._first: dict[str, tuple[str, ...]] = {}

    def next(self, stream: tuple[str, int], condition: str, repetition: int) -> tuple[str, ...]:
        """The next row of ``stream``; of a pair's repetition that pair, the second one first."""
        if self._pairs and repetition:
            return self._first[condition][::-1]
        if stream not in self._streams:
            rows = _pairs if self._pairs else _squares
            self._streams[stream] = rows(self._names, self._rng)
        self._first[condition] = next(self._streams[stream])
        return self._first[condition]


def starts_by_cell(slots: Sequence[Slot]) -> dict[str, int]:
    """How many conditions are tried on each cell; a repetition is no further one."""
    return dict(Counter(cell for cell, _ in {(s.cell, s.condition) for s in slots}))


def unbalanced(slots: Sequence[Slot], *, pairs: bool) -> str:
    """What the first tries among ``slots`` do not have equally often, and when they would, in
    words; "": they are balanced, on every cell.
    """
    blocks: dict[int, list[Slot]] = {}
    for slot in slots:
        if not slot.repetition:
            blocks.setdefault(slot.block, []).append(slot)
    names, cells = {s.alias for s in slots}, {s.cell for s in slots}
    seen = Counter[tuple[str, ...]]()
    for members in blocks.values():
        cell, row = members[0].cell, [s.alias for s in members]
        seen.update((cell, first, second) for first, second in itertools.pairwise(row))
        if not pairs:
            seen.update((cell, str(place), alias) for place, alias in enumerate(row))
    count = len(names)
    here = count * (count - 1) if pairs else count * (2 * count - 1)
    if all(
        len(times := [n for key, n in seen.items() if key[0] == cell]) == here
        and len(set(times)) == 1
        for cell in cells
    ):
        return ""
    size = count * (count - 1) if pairs else len(williams(count))
    what = (
        "not every pair comes, and each of it first, equally often"
        if pairs
        else "not every policy stands in every place, and after every other one, equally often"
    )
    apart = any(s.repetition for s in slots) and len(cells) == 1 and not pairs
    when = f"a multiple of {size}{' on each cell' if len(cells) > 1 else ''}"
    more = ", without repetitions" if apart else ""
    return f"{len(blocks)} conditions: {what}; {when} would be balanced{more}"


def _with_repeats(
    order: Sequence[tuple[str, int]], chosen: Sequence[str], rng: np.random.Generator
) -> list[tuple[str, int]]:
    """A second time comes anywhere after the first, but not next to it where that is possible."""
    found = list(order)
    for condition in chosen:
        first = found.index((condition, 0))
        low = min(first + 2, len(found))
        found.insert(int(rng.integers(low, len(found) + 1)), (condition, 1))
    return found


def williams(count: int) -> tuple[tuple[int, ...], ...]:
    """Rows of a Williams design of ``count`` treatments: ``count`` rows, twice as many if odd."""
    first, low, high = [0], 1, count - 1
    while len(first) < count:
        first.append(low)
        low += 1
        if len(first) < count:
            first.append(high)
            high -= 1
    rows = [tuple((v + i) % count for v in first) for i in range(count)]
    return tuple(rows) if count % 2 == 0 else (*rows, *(row[::-1] for row in rows))


def _squares(names: Sequence[str], rng: np.random.Generator) -> Iterator[tuple[str, ...]]:
    """Endless rows: one square after the other, each drawn anew."""
    square = williams(len(names))
    while True:
        labels = rng.permutation(names).tolist()
        for i in rng.permutation(len(square)):
            yield tuple(labels[v] for v in square[int(i)])


def _pairs(names: Sequence[str], rng: np.random.Generator) -> Iterator[tuple[str, ...]]:
    """Endless pairs: all of them in one order of the two, then all in the other, and so on."""
    every = list(itertools.combinations(names, 2))
    while True:
        flips = rng.integers(2, size=len(every))
        for turn in range(2):
            for i in rng.permutation(len(every)):
                a, b = every[int(i)]
                yield (a, b) if (int(flips[int(i)]) + turn) % 2 == 0 else (b, a)
