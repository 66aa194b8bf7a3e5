"""Keeps what was planned before the first trial: a document whose hash its trials carry.

The file holds its own hash, so that one that was edited is refused; the trials that run under it
carry the hash in their rows, so that one that was written later is none of theirs. A results folder
keeps a copy of every plan that its trials name (``plans/<hash>.yaml``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from eval.hashed_file import DocumentKind, hashed_text, read_hashed, write_hashed
from eval.plain import write_text
from eval.rule import Rule
from robolearn.config import from_dict, to_dict
from robolearn.errors import ConfigError

KIND = DocumentKind("robolearn plan", 1, "robolearn suite plan")
FOLDER = "plans"


@dataclass(frozen=True, slots=True)
class Preregistration:
    """What is going to be compared, by which rule, over how many starts."""

    # The suite, as its trials will name it: name@hash.
    suite: str
    # Worlds as they are called in results; claims about others are exploratory.
    worlds: tuple[str, ...]
    # ``n_max``: starts per policy and world, by the fixed rule exactly so many (each counts once,
    # however often it is repeated).
    rule: Rule
    # When it was written: UTC, ISO 8601.
    written: str
    # Names of the policies; empty: whichever are tried under it.
    policies: tuple[str, ...] = ()
    # Method -> names of its training runs.
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    # Why, and what else should be known, in words.
    note: str = ""
    # World -> starts of each policy there, where worlds have different ones (``n_max`` is the
    # largest number then); empty: ``n_max`` in each.
    starts: dict[str, int] = field(default_factory=dict[str, int])

    def __post_init__(self) -> None:
        if not self.worlds:
            raise ConfigError("a plan names at least one world")
        if self.rule.kind == "fixed" and self.rule.n_max is None:
            raise ConfigError("a plan by the fixed rule says over how many starts (n_max)")
        if len(self.policies) == 1 or len(set(self.policies)) < len(self.policies):
            raise ConfigError(
                f"expected two or more different policies, or none, got {self.policies}"
            )
        if self.groups and self.rule.kind == "sequential":
            raise ConfigError("the sequential rule compares single policies, not groups of runs")
        if self.starts and (
            set(self.starts) != set(self.worlds) or max(self.starts.values()) != self.rule.n_max
        ):
            raise ConfigError(
                "starts: expected a number for each world of the plan, of which the largest is the"
                f" rule's ({self.rule.n_max}), got {self.starts} for {', '.join(self.worlds)}"
            )
        members = [name for group in self.groups.values() for name in group]
        odd = [name for name in members if name not in self.policies]
        if odd or len(set(members)) < len(members):
            raise ConfigError(
                f"runs of a group are policies of the plan, each in one group; got {odd or members}"
            )
        _moment(self.written)

    @property
    def begun(self) -> datetime:
        """When it was written."""
        return _moment(self.written)

    @property
    def methods(self) -> frozenset[str]:
        """What is compared: groups, and policies that are in none; empty: not named."""
        members = {name for group in self.groups.values() for name in group}
        return frozenset((set(self.policies) - members) | set(self.groups))

    def starts_in(self, world: str) -> int | None:
        """How many starts were planned in a world; None: any number."""
        return self.starts.get(world, self.rule.n_max)

    def words(self) -> str:
        """The plan as a sentence."""
        names = ", ".join(sorted(self.methods)) or "whichever policies are tried"
        many = ", ".join(str(n) for n in dict.fromkeys(map(self.starts_in, self.worlds)))
        starts = "" if self.rule.kind == "sequential" else f" over {many} starts"
        return f"{names} in {', '.join(self.worlds)}{starts}: {self.rule.words()}"


@dataclass(frozen=True, slots=True)
class Registered:
    """A plan and its hash."""

    hash: str
    plan: Preregistration


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether what is said of a pair in a world was planned before its first trial; ``words``:
    under which plan, or why not.
    """

    world: str
    a: str
    b: str
    planned: bool
    words: str


def write_plan(path: Path, plan: Preregistration) -> Registered:
    """Write a plan's file. Raises :class:`ConfigError` for one that exists: trials refer to it."""
    return Registered(write_hashed(path, KIND, to_dict(plan)), plan)


def plan_text(plan: Preregistration) -> str:
    """The text of the plan's file."""
    return hashed_text(KIND, to_dict(plan))


def read_plan(path: Path) -> Registered:
    """Read a plan's file; :class:`ConfigError` for one that was edited since it was written."""
    digest, values = read_hashed(path, KIND)
    return Registered(digest, from_dict(Preregistration, values, where=str(path)))


def keep_plan(folder: Path, path: Path) -> None:
    """Keep a copy of the plan in a results folder, once."""
    copy = folder / FOLDER / f"{read_plan(path).hash}.yaml"
    if not copy.exists():
        write_text(copy, path.read_text(encoding="utf-8"))


def kept_plans(folders: Sequence[Path]) -> dict[str, Preregistration | str]:
    """The plans of results folders by hash; of one that cannot be believed, why not, in words."""
    found: dict[str, Preregistration | str] = {}
    for folder in folders:
        for path in sorted((folder / FOLDER).glob("*.yaml")):
            found[path.stem] = _believed(path)
    return found


def _believed(path: Path) -> Preregistration | str:
    try:
        read = read_plan(path)
    except ConfigError as error:
        return str(error)
    if read.hash != path.stem:
        return f"'{path}' holds another plan than its name says ({read.hash})"
    return read.plan


def declared(plans: Mapping[str, Preregistration | str], names: frozenset[str], most: int) -> Rule:
    """The rule under which trials that name the plans ``names`` are compared: that of their one
    plan, else the usual one. ``most``: starts that were tried; if there are more than planned, the
    rule has no maximum (what it says is exploratory then, not an error).
    """
    plan = plans.get(next(iter(names))) if len(names) == 1 else None
    if not isinstance(plan, Preregistration):
        return Rule()
    rule = plan.rule
    return rule.limited(None) if rule.n_max is not None and most > rule.n_max else rule


def _moment(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"expected a time like 2026-01-31T12:00:00+00:00, got {text!r}"
        ) from error
    if found.tzinfo is None:
        raise ConfigError(f"a time of a plan says its zone (+00:00), got {text!r}")
    return found
