"""Defines a suite: a named, hashed list of explicit conditions that every policy and world shares.

A suite's file lists its conditions in full. ``select(n)`` takes the first ``n``; beyond the listed
ones it goes on with the task's starts and the suite's seed, so that 500 conditions begin with
the same 100. The hash covers the file's content, not the selection: trials of 25 and of 500
conditions of one suite may be joined, trials of two suites never.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from robolearn.config import config_hash, load_config, to_dict
from robolearn.errors import ConfigError
from robolearn.geometry import quat_multiply
from robolearn.region import Region
from robolearn.seeding import child_seed
from robolearn.types import Condition

SAID = "~say="
MOVED_M = 0.3e-3
MOVED_RAD = float(np.radians(0.1))
# Six decimals in a file leave this much of a unit quaternion's norm.
QUATERNION_SLACK = 1e-4


@dataclass(frozen=True, slots=True)
class ConditionConfig:
    """One condition as written in the file: SI units, table frame."""

    id: str
    seed: int
    poses: dict[str, tuple[float, ...]]
    # Whether the runs of ``trained_on`` were trained on it; None: nobody asked.
    seen: bool | None = None


@dataclass(frozen=True, slots=True)
class PerturbationConfig:
    """Which perturbed variants of every world are evaluated beside the nominal one.

    ``one_at_a_time``: magnitudes by perturbation, each alone. ``grids``: each a mapping from
    perturbations to magnitudes, of which every combination is a variant. What the names mean is
    known to the worlds (``docs/perturbations.md``); magnitude 0 is the nominal world.
    """

    seed: int = 0
    one_at_a_time: dict[str, tuple[float, ...]] = field(
        default_factory=dict[str, tuple[float, ...]]
    )
    grids: tuple[dict[str, tuple[float, ...]], ...] = ()

    def variants(self) -> tuple[str, ...]:
        """What a world's name gains, without doubles: first nothing (nominal), then each variant
        as ``~name=magnitude~...``.
        """
        found = [""]
        for name, magnitudes in self.one_at_a_time.items():
            found += [self._suffix({name: m}) for m in magnitudes]
        for grid in self.grids:
            rows = itertools.product(*grid.values())
            found += [self._suffix(dict(zip(grid, row, strict=True))) for row in rows]
        return tuple(dict.fromkeys(found))

    def _suffix(self, magnitudes: Mapping[str, float]) -> str:
        parts = [f"~{n}={m!r}".removesuffix(".0") for n, m in magnitudes.items() if m]
        return "".join(parts) + (f"~seed={self.seed}" if parts and self.seed else "")


@dataclass(frozen=True, slots=True)
class SuiteConfig:
    """The file's content."""

    name: str
    task: str
    # Control ticks after which an episode is cut.
    max_steps: int
    # Continues the list beyond the conditions given here.
    seed: int
    # The world the task's data comes from; it is given all listed conditions.
    source_world: str
    # How many conditions the other worlds are given.
    subset: int
    # The rule by which the result is scored, in words, for people.
    protocol: str
    conditions: tuple[ConditionConfig, ...]
    # Perturbed variants of every world; they are given the subset's conditions.
    perturbations: PerturbationConfig = field(default_factory=PerturbationConfig)
    # What a policy that reads text is told.
    instruction: str = ""
    # Name -> the same said in other words; each is a variant of every world as it is.
    instructions: dict[str, str] = field(default_factory=dict[str, str])
    # Hashes of the starts that runs were trained on; which conditions are among them is ``seen``.
    trained_on: tuple[str, ...] = ()
    # Where a signal must not be: the share of an episode's ticks at which it was there becomes the
    # trial's figure ``forbidden``.
    forbidden: Region | None = None

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise ConfigError(f"max_steps must be at least 1, got {self.max_steps}")
        if not self.conditions:
            raise ConfigError("conditions must list at least one start")
        if not 0 < self.subset <= len(self.conditions):
            raise ConfigError(f"subset must be 1..{len(self.conditions)}, got {self.subset}")
        ids = [c.id for c in self.conditions]
        double = sorted({i for i in ids if ids.count(i) > 1})
        if double:
            raise ConfigError(f"conditions need ids of their own; given twice: {double}")
        odd = [n for n in self.instructions if not re.fullmatch(r"[a-z0-9_]+", n)]
        if odd or not all(text.strip() for text in self.instructions.values()):
            raise ConfigError(
                f"instructions have names of a-z, 0-9 and _, and a text each; got {odd or 'none'}"
            )
        marked = [c.id for c in self.conditions if c.seen is not None]
        if bool(marked) != bool(self.trained_on):
            raise ConfigError(
                "conditions are marked 'seen' together with what was trained on ('trained_on'); got"
                f" {len(marked)} marks and trained_on {list(self.trained_on)}"
            )
        if self.instructions and not self.instruction.strip():
            raise ConfigError("instructions in other words need the plain 'instruction', too")


Poses = Mapping[str, tuple[float, ...]]


@runtime_checkable
class Starts(Protocol):
    """What a suite asks its task about where episodes start."""

    def draw(self, seed: int, indices: Sequence[int]) -> Sequence[Condition]:
        """Those of the endless list that belongs to ``seed``; each depends on its index alone."""
        ...

    def problem(self, poses: Poses) -> str:
        """Why a start is not feasible; empty if it is."""
        ...


@dataclass(frozen=True, slots=True)
class ListedStarts:
    """The starts of a file, where nobody knows their task: no others can be drawn."""

    def draw(self, seed: int, indices: Sequence[int]) -> Sequence[Condition]:
        """Raises :class:`ConfigError`."""
        raise ConfigError(
            f"the suite has no start {indices[0]}, and there is nobody here to draw more; take"
            f" fewer conditions (the seed of the list is {seed})"
        )

    def problem(self, poses: Poses) -> str:
        """Nothing but what :func:`placed_problem` says."""
        del poses
        return ""


@dataclass(frozen=True, slots=True)
class Suite:
    """A checked suite. ``label`` names it with its hash, as trials record it; ``starts`` are those
    of its task.
    """

    config: SuiteConfig
    hash: str
    starts: Starts

    @property
    def label(self) -> str:
        """``name@hash``."""
        return f"{self.config.name}@{self.hash}"

    def spoken(self) -> tuple[tuple[str, str], ...]:
        """``(what a world's name gains, text)`` of every instruction in other words."""
        return tuple((f"{SAID}{name}", text) for name, text in self.config.instructions.items())

    @property
    def seen(self) -> dict[str, bool]:
        """Condition -> whether it was trained on, of those that are marked."""
        return {c.id: c.seen for c in self.config.conditions if c.seen is not None}

    def count_for(self, world: str) -> int:
        """How many conditions a world is given by default."""
        own = world == self.config.source_world
        return len(self.config.conditions) if own else self.config.subset

    def problem(self, poses: Poses) -> str:
        """Why a start is not feasible; empty if it is. The world says the rest when it is set."""
        return placed_problem(poses) or self.starts.problem(poses)

    def select(self, n: int) -> tuple[Condition, ...]:
        """The first ``n`` conditions, drawn on beyond the listed ones."""
        if n < 1:
            raise ConfigError(f"the number of conditions must be at least 1, got {n}")
        listed = [Condition(c.id, c.seed, dict(c.poses)) for c in self.config.conditions[:n]]
        if n > len(listed):
            listed += self.starts.draw(self.config.seed, range(len(listed), n))
        return tuple(listed)


def listed_starts(config: SuiteConfig) -> Starts:
    """The starts of a file whose task is not asked."""
    del config
    return ListedStarts()


def load_suite(path: Path, starts: Callable[[SuiteConfig], Starts] = listed_starts) -> Suite:
    """Read and check a suite; every condition must be feasible. ``starts``: asks its task."""
    return make_suite(load_config(SuiteConfig, path), str(path), starts)


def make_suite(
    config: SuiteConfig,
    where: str = "suite",
    starts: Callable[[SuiteConfig], Starts] = listed_starts,
) -> Suite:
    """Check every condition and compute the hash."""
    suite = Suite(config, config_hash(_hashed(config)), starts(config))
    for condition in config.conditions:
        problem = suite.problem(condition.poses)
        if problem:
            raise ConfigError(f"{where}: condition '{condition.id}' is not feasible: {problem}")
    return suite


def placed_problem(poses: Poses) -> str:
    """Why no start in space can be as named; empty if one can. The world's task says the rest."""
    for name, pose in poses.items():
        if not np.isfinite(pose).all():
            return f"{name} {pose} must be finite"
        if in_space(name, pose) and abs(float(np.linalg.norm(pose[3:])) - 1.0) > QUATERNION_SLACK:
            return f"{name}: the quaternion (qw, qx, qy, qz) = {pose[3:]} must have norm 1"
    return ""


def in_space(name: str, pose: tuple[float, ...]) -> bool:
    """Whether a signal is a pose in space; seven joint angles are none."""
    return len(pose) == 7 and name.partition("#")[0].endswith("/pose")


def _hashed(config: SuiteConfig) -> dict[str, Any]:
    """What a suite does not use does not count, so that it keeps its hash when more is invented."""
    values = to_dict(config)
    unused = {
        "perturbations": config.perturbations == PerturbationConfig(),
        "instruction": not config.instruction,
        "instructions": not config.instructions,
        "trained_on": not config.trained_on,
        "forbidden": config.forbidden is None,
    }
    values["conditions"] = [
        {k: v for k, v in c.items() if k != "seen" or v is not None} for c in values["conditions"]
    ]
    return {name: value for name, value in values.items() if not unused.get(name)}


def repeated(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """The same starts with another seed: how much the policy's own noise decides."""
    return tuple(
        dataclasses.replace(c, seed=repeat_seed(c.seed), variant="noise") for c in conditions
    )


def repeat_seed(seed: int) -> int:
    """The other seed of a condition that is run again."""
    return child_seed(seed, "repeat") % 2**31


def moved(suite: Suite, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    """The same seeds, every start moved a little: how repeatable the world itself is.

    Positions by a normal of 0.3 mm, angles of 0.1 degrees: how exactly a careful person puts
    things back.
    """
    return tuple(_moved(c, suite) for c in conditions)


def _moved(condition: Condition, suite: Suite) -> Condition:
    for attempt in range(100):
        rng = np.random.default_rng(child_seed(condition.seed, "moved", attempt))
        poses = {
            name: nudged(name, pose, rng, MOVED_M, MOVED_RAD)
            for name, pose in condition.poses.items()
        }
        if not suite.problem(poses):
            return dataclasses.replace(condition, poses=poses, variant="moved")
    raise ConfigError(f"condition '{condition.id}' cannot be moved by {MOVED_M} m and be feasible")


def nudged(
    name: str,
    pose: tuple[float, ...],
    rng: np.random.Generator,
    position_m: float,
    angle_rad: float,
) -> tuple[float, ...]:
    """A value of a start, moved by normals of these deviations: a place of the plane (2), a planar
    pose (3) or a pose in space (7), which stays at its height and turns about the vertical. Other
    values (openings, goals) are no places and stay.
    """
    if len(pose) in (2, 3):
        sizes = (position_m, position_m, angle_rad)[: len(pose)]
        return tuple(float(v) + float(rng.normal(0.0, s)) for v, s in zip(pose, sizes, strict=True))
    if not in_space(name, pose):
        return pose
    dx, dy, yaw = (float(rng.normal(0.0, s)) for s in (position_m, position_m, angle_rad))
    turn = np.array([np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)])
    quat = quat_multiply(turn, np.array(pose[3:]))
    return (pose[0] + dx, pose[1] + dy, pose[2], *(float(v) for v in quat))


def suite_yaml(config: SuiteConfig) -> str:
    """The file's text, one condition per line."""
    import yaml

    head: dict[str, Any] = {k: v for k, v in _hashed(config).items() if k != "conditions"}
    lines = [yaml.safe_dump(head, sort_keys=False, width=98).rstrip(), "conditions:"]
    for c in config.conditions:
        poses = ", ".join(f"{k}: [{', '.join(map(repr, v))}]" for k, v in c.poses.items())
        seen = "" if c.seen is None else f", seen: {str(c.seen).lower()}"
        lines.append(f"  - {{id: {c.id}, seed: {c.seed}, poses: {{{poses}}}{seen}}}")
    return "\n".join(lines) + "\n"
