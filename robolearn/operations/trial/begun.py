"""Keeps from where simulated trials like real ones began, so that only the same ones go on.

Trials are known by their seeds, which say of a start how often it was drawn, and not about what:
without this a folder that was begun from other real trials, or with other noise, would pass for the
evaluation that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from eval.plain import plain_values, read_mapping, write_mapping
from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError
from robolearn.operations.trial.start_noise import StartNoise
from robolearn.types import TrialRecord

FILE_NAME = "like.json"
T = TypeVar("T")

# Measured poses by signal, of every trial from one start, in the order of the trials.
Measured = tuple[dict[str, tuple[float, ...]], ...]
# What their cells said of how far off that may be, likewise: position [m], angle [rad].
Errors = tuple[dict[str, tuple[float, float]], ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """What the trials of a folder are like."""

    # Standard deviations of the starts of which no cell said any: positions [m], angles [rad].
    position_m: float
    angle_rad: float
    # Control ticks after which an episode is cut.
    max_steps: int
    instruction: str
    # Policy's hash -> condition -> where its real trials began.
    starts: dict[str, dict[str, Measured]] = field(default_factory=dict[str, dict[str, Measured]])
    # What their cells said of these.
    errors: dict[str, dict[str, Errors]] = field(default_factory=dict[str, dict[str, Errors]])


def measured(real: Sequence[TrialRecord]) -> dict[str, dict[str, Measured]]:
    """Where real trials began, as :class:`Begun` has it."""
    return _listed(
        real, lambda r: {name: tuple(map(float, pose)) for name, pose in r.achieved.items()}
    )


def errors_said(real: Sequence[TrialRecord], noise: StartNoise) -> dict[str, dict[str, Errors]]:
    """What their cells said of that, as :class:`Begun` has it."""
    return _listed(real, noise.said)


def _listed(
    real: Sequence[TrialRecord], value: Callable[[TrialRecord], T]
) -> dict[str, dict[str, tuple[T, ...]]]:
    found: dict[str, dict[str, tuple[T, ...]]] = {}
    for r in real:
        by_condition = found.setdefault(r.policy_hash, {})
        by_condition[r.condition] = (*by_condition.get(r.condition, ()), value(r))
    return found


def go_on(folder: Path, wanted: Begun) -> None:
    """Write down what the trials of ``folder`` are like; further starts and policies are added.

    :class:`ConfigError` where its trials are of other starts, noise or length.
    """
    path = folder / FILE_NAME
    begun = _read(path) if path.is_file() else None
    if begun is not None:
        for what, here, there in (
            ("noise of positions [m]", wanted.position_m, begun.position_m),
            ("noise of angles [rad]", wanted.angle_rad, begun.angle_rad),
            ("control steps", wanted.max_steps, begun.max_steps),
            ("instruction", wanted.instruction, begun.instruction),
        ):
            if here != there:
                raise _other(folder, f"{what} {there!r}, now {here!r}")
        _require_same(folder, "began at", wanted.starts, begun.starts)
        _require_same(folder, "was measured with errors of", wanted.errors, _errors_of(begun))
    write_mapping(path, _joined(wanted, begun))


def _errors_of(begun: Begun) -> dict[str, dict[str, Errors]]:
    """Of a folder that was begun before cells said any: none."""
    return {
        policy: {
            condition: begun.errors.get(policy, {}).get(condition) or ({},) * len(trials)
            for condition, trials in by_condition.items()
        }
        for policy, by_condition in begun.starts.items()
    }


def _require_same(
    folder: Path,
    verb: str,
    wanted: Mapping[str, Mapping[str, tuple[Any, ...]]],
    begun: Mapping[str, Mapping[str, tuple[Any, ...]]],
) -> None:
    for policy in wanted.keys() & begun.keys():
        for condition in sorted(wanted[policy].keys() & begun[policy].keys()):
            pairs = zip(wanted[policy][condition], begun[policy][condition], strict=False)
            for number, (here, there) in enumerate(pairs, 1):
                if here != there:
                    raise _other(
                        folder, f"trial {number} of {condition} {verb} {there}, now {here}"
                    )


def _joined(wanted: Begun, begun: Begun | None) -> dict[str, Any]:
    starts = _longest(wanted.starts, {} if begun is None else begun.starts)
    errors = _longest(wanted.errors, {} if begun is None else _errors_of(begun))
    return {
        **plain_values(wanted),
        "starts": plain_values(starts),
        "errors": plain_values(errors),
    }


def _longest(
    wanted: Mapping[str, Mapping[str, tuple[T, ...]]],
    begun: Mapping[str, Mapping[str, tuple[T, ...]]],
) -> dict[str, dict[str, tuple[T, ...]]]:
    found = {policy: dict(by_condition) for policy, by_condition in begun.items()}
    for policy, by_condition in wanted.items():
        there = found.setdefault(policy, {})
        for name, here in by_condition.items():
            there[name] = max(here, there.get(name, ()), key=len)
    return found


def _read(path: Path) -> Begun:
    return from_dict(Begun, read_mapping(path), where=str(path), error=DataError)


def _other(folder: Path, difference: str) -> ConfigError:
    return ConfigError(
        f"the trials in '{folder}' are not like the real ones that are asked for: {difference};"
        " give another folder for these"
    )
