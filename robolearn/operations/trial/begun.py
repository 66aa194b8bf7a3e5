"""Keeps from where simulated trials like real ones began, so that only the same ones go on.

Trials are known by their seeds, which say of a start how often it was drawn, and not about what:
without this a folder that was begun from other real trials, or with other noise, would pass for the
evaluation that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.plain import plain_values, read_mapping, write_mapping
from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError
from robolearn.types import TrialRecord

FILE_NAME = "like.json"

# Measured poses by signal, of every trial from one start, in the order of the trials.
Measured = tuple[dict[str, tuple[float, ...]], ...]


@dataclass(frozen=True, slots=True)
class Begun:
    """What the trials of a folder are like."""

    # Standard deviations of the starts: positions [m], angles [rad].
    position_m: float
    angle_rad: float
    # Control ticks after which an episode is cut.
    max_steps: int
    instruction: str
    # Policy's hash -> condition -> where its real trials began.
    starts: dict[str, dict[str, Measured]] = field(default_factory=dict[str, dict[str, Measured]])


def measured(real: Sequence[TrialRecord]) -> dict[str, dict[str, Measured]]:
    """Where real trials began, as :class:`Begun` has it."""
    found: dict[str, dict[str, Measured]] = {}
    for r in real:
        by_condition = found.setdefault(r.policy_hash, {})
        here = {name: tuple(map(float, pose)) for name, pose in r.achieved.items()}
        by_condition[r.condition] = (*by_condition.get(r.condition, ()), here)
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
        _require_same(folder, wanted.starts, begun.starts)
    write_mapping(path, _joined(wanted, begun))


def _require_same(
    folder: Path,
    wanted: Mapping[str, Mapping[str, Measured]],
    begun: Mapping[str, Mapping[str, Measured]],
) -> None:
    for policy in wanted.keys() & begun.keys():
        for condition in sorted(wanted[policy].keys() & begun[policy].keys()):
            pairs = zip(wanted[policy][condition], begun[policy][condition], strict=False)
            for number, (here, there) in enumerate(pairs, 1):
                if here != there:
                    raise _other(
                        folder, f"trial {number} of {condition} began at {there}, now at {here}"
                    )


def _joined(wanted: Begun, begun: Begun | None) -> dict[str, Any]:
    starts: dict[str, dict[str, Measured]] = {**({} if begun is None else begun.starts)}
    for policy, by_condition in wanted.starts.items():
        there = starts.get(policy, {})
        longest = {
            name: max(here, there.get(name, ()), key=len) for name, here in by_condition.items()
        }
        starts[policy] = {**there, **longest}
    return {**plain_values(wanted), "starts": plain_values(starts)}


def _read(path: Path) -> Begun:
    return from_dict(Begun, read_mapping(path), where=str(path), error=DataError)


def _other(folder: Path, difference: str) -> ConfigError:
    return ConfigError(
        f"the trials in '{folder}' are not like the real ones that are asked for: {difference};"
        " give another folder for these"
    )
