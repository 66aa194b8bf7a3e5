"""Reads for the report what ``robolearn identify`` and ``robolearn replay`` measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from eval.plain import read_mapping
from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReplayErrors:
    """Where the object ended in the scene against the recording: medians and 90th percentiles."""

    episodes: int
    position_p50_mm: float
    position_p90_mm: float
    rotation_p50_deg: float
    rotation_p90_deg: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Errors on episodes that the fit did not use: after 5 s, and at the end."""

    after_5_s: ReplayErrors
    final: ReplayErrors


@dataclass(frozen=True, slots=True)
class Fitted:
    """A parameter of the scene before and after the fit, in its own unit."""

    name: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Identification:
    """What identification found, and what it took."""

    parameters: tuple[Fitted, ...]
    before: HeldOut
    after: HeldOut
    train_episodes: int
    windows: int
    evaluations: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Median and 90th percentile; None where nothing was finite."""

    p50: float | None
    p90: float | None


@dataclass(frozen=True, slots=True)
class EpisodeError:
    """Final error of one replayed episode."""

    final_position_error_mm: float
    final_rotation_error_deg: float


@dataclass(frozen=True, slots=True)
class Replay:
    """Whole episodes played open loop into a scene. ``each`` is empty in short documents."""

    scene: str
    episodes: int
    position_mm: Percentiles
    rotation_deg: Percentiles
    diverged: int
    each: tuple[EpisodeError, ...] = ()


def identification(path: Path) -> Identification | None:
    """``identify.json``, if it is there."""
    if not path.is_file():
        return None
    document = read_mapping(path)
    held = part(document, "heldout", path)
    parameters = part(document, "parameters", path)
    return Identification(
        parameters=tuple(
            Fitted(name, *(float(part(parameters, name, path)[k]) for k in ("before", "after")))
            for name in parameters
        ),
        before=_held_out(part(held, "before", path), path),
        after=_held_out(part(held, "after", path), path),
        train_episodes=int(value(document, "train_episodes", path)),
        windows=int(value(document, "windows", path)),
        evaluations=int(value(document, "evaluations", path)),
        duration_s=float(value(document, "duration_s", path)),
    )


def replay(path: Path) -> Replay:
    """``replay_SCENE.json``."""
    document = read_mapping(path)
    return Replay(
        scene=path.stem.removeprefix("replay_"),
        episodes=int(value(document, "episodes", path)),
        position_mm=known(Percentiles, part(document, "final_position_error_mm", path), path),
        rotation_deg=known(Percentiles, part(document, "final_rotation_error_deg", path), path),
        diverged=int(document.get("diverged", 0)),
        each=tuple(known(EpisodeError, e, path) for e in document.get("per_episode", ())),
    )


def known(kind: type[T], document: Mapping[str, Any], path: Path) -> T:
    """A dataclass from those values of a document that it knows; raises :class:`DataError` for
    values that are missing or of another type.
    """
    names = {f.name for f in fields(kind)}  # pyright: ignore[reportArgumentType]
    try:
        return from_dict(kind, {k: v for k, v in document.items() if k in names}, str(path))
    except ConfigError as error:
        raise DataError(f"{error}; run its stage again") from error


def value(document: Mapping[str, Any], key: str, path: Path) -> Any:
    """A value that has to be there."""
    if key not in document:
        raise DataError(f"'{path}' lacks '{key}'; it has {sorted(document)}; run its stage again")
    return document[key]


def part(document: Mapping[str, Any], key: str, path: Path) -> Mapping[str, Any]:
    """A mapping that has to be there."""
    found = value(document, key, path)
    if not isinstance(found, Mapping):
        raise DataError(f"'{path}': '{key}' must be a mapping, got {found!r}; run its stage again")
    return found


def _held_out(document: Mapping[str, Any], path: Path) -> HeldOut:
    return HeldOut(
        known(ReplayErrors, part(document, "after_5_s", path), path),
        known(ReplayErrors, part(document, "final", path), path),
    )
