"""Decides which trials may be pooled; ``evaluate``, ``report`` and ``compare`` all ask here.

Trials count together, or against each other, if the same suite, judge, code, libraries and batch
size made them, on one kind of world; and if one name of a world or policy means one version of it.
What was made otherwise is kept apart and named, or refused, and never counted silently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from eval.words import count_of
from robolearn.errors import DataError
from robolearn.types import TrialRecord

# Fields of trials that have to be equal, and what people call several of them.
_NAMES: Mapping[str, str] = {
    "kind": "kinds (simulated, lab, robot)",
    "suite": "suites",
    "judge": "judges of success",
    "code": "versions of robolearn's code",
    "libraries": "versions of libraries",
    "batch": "batch sizes of inference",
}
# Of these, what may differ where people say so: it changes trials in the last bits or not at all.
SLIGHT = frozenset(("code", "libraries", "batch"))


@dataclass(frozen=True, slots=True)
class Made:
    """How a trial was made, whatever its world and policy."""

    kind: str
    suite: str
    judge: str
    code: str
    libraries: str
    batch: int


# The fields of :class:`Made` of a trial, without a look at the class for each of thousands.
_way: Callable[[TrialRecord], tuple[Any, ...]] = attrgetter(*(f.name for f in fields(Made)))


@dataclass(frozen=True, slots=True)
class Pool:
    """Trials that may be pooled. ``worlds``: name -> (hash, engine); ``policies``: name -> hash."""

    made: Made
    worlds: Mapping[str, tuple[str, str]]
    policies: Mapping[str, str]

    def holds(self, record: TrialRecord) -> bool:
        """Whether a trial is one of them."""
        return (
            made(record) == self.made
            and self.worlds.get(record.env) == (record.env_hash, record.engine)
            and self.policies.get(record.policy) == record.policy_hash
        )

    def kept_apart(self, records: Sequence[TrialRecord], *, every: bool = False) -> tuple[str, ...]:
        """Which trials of these worlds and policies are not among them, and why, in words;
        ``every``: also those of worlds and policies of which it has none.
        """
        why = Counter(
            self._difference(r)
            for r in records
            if (every or (r.env in self.worlds and r.policy in self.policies)) and not self.holds(r)
        )
        return tuple(f"{apart_words(n)}: {reason}" for reason, n in sorted(why.items()))

    def _difference(self, record: TrialRecord) -> str:
        other = made(record)
        for name, words in _NAMES.items():
            mine, theirs = getattr(self.made, name), getattr(other, name)
            if mine != theirs:
                a, b = _shown(name, theirs, mine), _shown(name, mine, theirs)
                return f"different {words} ({a}; here {b})"
        if self.policies.get(record.policy) != record.policy_hash:
            return f"a different policy with the name '{record.policy}'"
        return f"a different version of the world '{record.env}'"


def apart_words(count: int, of: str = "") -> str:
    """``2 trials are kept apart``; ``of``: which ones, in words."""
    verb = "is" if count == 1 else "are"
    return " ".join(filter(None, (count_of(count, "trial"), of, verb, "kept apart")))


def made(record: TrialRecord) -> Made:
    """How a trial was made."""
    return Made(*_way(record))


def newest(records: Sequence[TrialRecord], how: Made | None = None) -> Pool:
    """The trials that may stand beside the last one (or that were made as ``how`` says), with the
    last version of every world and policy among them.
    """
    if not records:
        raise DataError("no trials; run 'robolearn evaluate' first")
    how = how or made(records[-1])
    same = [r for r in records if made(r) == how]
    return Pool(
        how,
        {r.env: (r.env_hash, r.engine) for r in same},
        {r.policy: r.policy_hash for r in same},
    )


def require_poolable(
    records: Sequence[TrialRecord], *, accept: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Refuse trials that may not be pooled, with the reason (:class:`DataError`).

    ``accept``: differences (of :data:`SLIGHT`) that are only named; they are returned in words.
    """
    ways = {_way(r) for r in records}
    accepted: list[str] = []
    for i, (name, words) in enumerate(_NAMES.items()):
        values = sorted({way[i] for way in ways}, key=str)
        if len(values) < 2:
            continue
        shown = sorted({_shown(name, v, w) for v in values for w in values if v != w})
        if name not in accept:
            hint = "; --mixed compares them all the same" if name in SLIGHT else ""
            raise DataError(
                f"trials come from different {words}: {shown}; their results cannot be pooled."
                f" Evaluate again what should be compared{hint}"
            )
        accepted.append(f"the trials were made by different {words}")
    _require_one_version(records)
    return tuple(accepted)


def _require_one_version(records: Sequence[TrialRecord]) -> None:
    for world in dict.fromkeys(r.env for r in records):
        mine = [r for r in records if r.env == world]
        for what, values in (
            ("versions of the world", {r.env_hash for r in mine}),
            ("physics engines", {r.engine for r in mine}),
        ):
            if len(values) > 1:
                raise DataError(
                    f"trials in '{world}' come from different {what}: {sorted(values)}; their"
                    " results cannot be pooled"
                )
    for policy in dict.fromkeys(r.policy for r in records):
        hashes = sorted({r.policy_hash for r in records if r.policy == policy})
        if len(hashes) > 1:
            raise DataError(
                f"two different policies are called '{policy}' ({hashes}); rename one run"
            )


def _shown(name: str, value: object, other: object) -> str:
    """A value for people; of libraries only those that the other has not."""
    if name == "libraries":
        more = set(str(value).split(", ")) - set(str(other).split(", "))
        value = ", ".join(sorted(more))
    return str(value) or "not recorded"
