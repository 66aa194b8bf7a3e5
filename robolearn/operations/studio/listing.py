"""Lists what was found, for the page and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from robolearn import __version__
from robolearn.operations.studio.asking import Ask
from robolearn.operations.studio.found import Thing, counts


@dataclass(frozen=True, slots=True)
class Listed:
    """A thing by what a person needs to know of it; ``changed_s``: Unix time [s]."""

    id: str
    kind: str
    name: str
    where: str
    root: str
    changed_s: float
    problem: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything found; ``version`` is what ``/api/changes`` counts from."""

    version: int
    robolearn: str
    roots: tuple[str, ...]
    counts: Mapping[str, int]
    left_out: int
    things: tuple[Listed, ...]


def things(ask: Ask) -> Listing:
    """Everything found."""
    version, found = ask.library.version, ask.library.things()
    return Listing(
        version=version,
        robolearn=__version__,
        roots=tuple(str(root) for root in ask.library.roots),
        counts=counts(found),
        left_out=ask.library.left_out,
        things=tuple(listed(t) for t in found),
    )


def thing(ask: Ask) -> Listed:
    """One thing."""
    return listed(ask.thing)


def listed(found: Thing) -> Listed:
    """A thing as it is told."""
    root = str(found.path)[: len(str(found.path)) - len(found.where)] if found.where != "." else ""
    return Listed(
        id=found.id,
        kind=found.kind,
        name=found.name,
        where=found.where,
        root=root.rstrip("/") or str(found.path),
        changed_s=found.changed_ns / 1e9,
        problem=found.problem,
    )
