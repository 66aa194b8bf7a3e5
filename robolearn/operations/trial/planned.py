"""Plans blinded trials, or opens what was planned and refuses what has changed since.

kept/suite.yaml, kept/CELL.json   what the plan's hashes stand for
key.sealed                        which alias is which policy
plan.yaml                         written last: from then on the plan is locked
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.blinded.key import (
    SealedKey,
    SealedPolicy,
    key_digest,
    new_nonce,
    open_key,
    seal,
    shuffled,
)
from eval.blinded.plan import (
    BLIND,
    FILE_NAME,
    LockedPlan,
    PlannedCell,
    TrialPlan,
    as_locked,
    lock_plan,
    read_locked,
)
from eval.blinded.schedule import aliases, schedule, starts_by_cell
from eval.blinded.unblinded import require_still_blinded
from eval.blinded.votes import FILE_NAME as VOTES
from eval.plain import read_mapping, write_mapping, write_text
from eval.preregistration import Preregistration, plan_text
from eval.rule import Rule
from eval.trials.rollouts import utc_now
from eval.trials.suites import Suite
from eval.trials.table import has_trials, read_trials
from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from robolearn.agents.execution import Execution
from robolearn.config import config_hash, differences, find_config, to_dict
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.operations.builders import is_server
from robolearn.operations.cell.placing import require_starts
from robolearn.operations.goals import goal_run, params_for
from robolearn.operations.suites import open_suite
from robolearn.operations.trial.episodes import STORE
from robolearn.operations.trial.options import DesignOptions, TrialOptions
from robolearn.operations.trial.sources import GivenPolicy, given_policies, located_sources
from robolearn.types import Condition

KEPT = "kept"
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class OpenedTrials:
    """Planned trials that are as they were planned. ``cell``: of this session, ``robot``: its file;
    ``sources``: where each alias's policy is now; ``began``: whether the plan was locked just now.
    """

    folder: Path
    locked: LockedPlan
    key: SealedKey
    suite: Suite
    conditions: Mapping[str, Condition]
    cell: CellConfig
    robot: Path
    sources: Mapping[str, str]
    began: bool

    @property
    def lab_seed(self) -> int | None:
        """Seed of the lab that is started for a session; None: none is."""
        return self.locked.plan.cells[self.cell.name].lab_seed

    def redact(self, text: str) -> str:
        """``text`` without names and aliases of policies, and without where they are or were."""
        return self.key.redact(text, tuple(self.sources.values()))


@contextmanager
def trials_lock(folder: Path) -> Generator[None]:
    """Nobody else runs, voids or unblinds trials of ``folder`` meanwhile; StoreLockedError at once
    where somebody does.
    """
    # The folder's own lock is that of the table that unblinding writes there.
    (folder / KEPT).mkdir(parents=True, exist_ok=True)
    lock = StoreLock(folder / KEPT, f"the trials in '{folder}'")
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True, slots=True)
class Draft:
    """Trials as they will be once their plan is locked. ``suite``: the text of its file."""

    trials: OpenedTrials
    suite: str
    cells: Mapping[str, CellConfig]


def open_trials(options: TrialOptions) -> OpenedTrials:
    """Plan the trials of ``options.out``, or go on with those that were planned there.

    :class:`ConfigError` for what cannot be planned, of which nothing is written; for a plan, key,
    suite, cell or policy that is not as it was, with the difference; and for trials that were
    unblinded.
    """
    draft = draft_trials(options)
    if draft is None:
        return _opened(options)
    lock_trials(draft)
    return draft.trials


def draft_trials(options: TrialOptions) -> Draft | None:
    """What would be locked; nothing is written. None: ``options.out`` has a plan. Errors as
    :func:`open_trials`.
    """
    if (options.out / FILE_NAME).is_file():
        return None
    design = options.design
    if options.robot is None or design.suite is None or len(design.policies) < 2:
        raise ConfigError(
            f"'{options.out}' has no plan yet: give a cell (robot), a suite and two or more"
            " policies"
        )
    require_still_blinded(options.out, (), "plan blinded trials")
    _require_untried(options.out)
    return _draft(options, design, options.robot, design.suite)


def lock_trials(draft: Draft) -> None:
    """Write what was drafted; whoever calls it while others may holds the lock of the trials.

    :class:`ConfigError` where somebody planned trials there meanwhile.
    """
    trials = draft.trials
    folder = trials.folder
    if (folder / FILE_NAME).exists():
        # Its key must not be written over.
        raise ConfigError(f"'{folder}': somebody planned trials there meanwhile; call it again")
    write_text(folder / KEPT / "suite.yaml", draft.suite)
    for name, cell in draft.cells.items():
        write_mapping(_kept_cell(folder, name), to_dict(cell))
    seal(folder, trials.key)
    lock_plan(folder, trials.locked.plan)


def _require_untried(folder: Path) -> None:
    """:class:`ConfigError` where trials are of a plan that is gone: another one would not explain
    them, and its key would take the place of theirs.
    """
    store = folder / STORE
    tried = has_trials(folder / BLIND) or (store.is_dir() and EpisodeStore.open(store).ids())
    if tried or (folder / VOTES).is_file():
        raise ConfigError(
            f"'{folder}' has trials, but not the plan ({FILE_NAME}) under which they were tried:"
            " restore it from a copy, or plan trials in another folder"
        )


def cell_hash(cell: CellConfig, lab_seed: int | None) -> str:
    """As trials name the world of a cell."""
    return config_hash(to_dict(cell), lab_seed or 0)


def _draft(options: TrialOptions, design: DesignOptions, robot: Path, where: Path) -> Draft:
    suite = open_suite(where)
    cells = _cells(options, robot)
    names = [cell.name for cell in cells.values()]
    count = design.trials or suite.config.subset
    conditions = suite.select(count)
    if count < len(cells):
        raise ConfigError(
            f"trials: each condition belongs to one cell, got {count} for {len(cells)} cells; plan"
            " at least one for each, or leave a cell out"
        )
    for cell in cells.values():
        require_starts(conditions, cell, where)
    lab_seed = design.lab_seed if design.start_lab else None
    policies = given_policies(design, suite.config)
    # What all trials are judged by must not hang on the policy that comes first by its alias.
    run = goal_run([Path(p.source) for p in policies if not is_server(p.source)], suite.config.task)
    for file, cell in cells.items():
        params_for(cell.task_params, suite.config.task, run, f"'{file}'")
    words = aliases(len(policies))
    slots = schedule(
        [c.id for c in conditions],
        words,
        names,
        repeats=design.repeats,
        seed=design.seed,
        pairs=design.pairs,
    )
    written = utc_now()
    starts = starts_by_cell(slots)
    rule = design.rule.limited(max(starts.values()))
    registered = Preregistration(
        suite=suite.label,
        worlds=tuple(names),
        rule=rule,
        written=written,
        policies=tuple(p.name for p in policies),
        note="blinded trials",
        starts=starts,
    )
    key = _sealed(policies, words, registered)
    plan = TrialPlan(
        suite=suite.label,
        cells={
            cell.name: PlannedCell(
                cell_hash(cell, lab_seed), str(find_config(file).resolve()), lab_seed
            )
            for file, cell in cells.items()
        },
        aliases=words,
        key=key_digest(key),
        written=written,
        slots=slots,
        seed=design.seed,
        rule=rule,
        max_steps=design.max_steps or suite.config.max_steps,
        score=design.score,
        rubric=design.rubric,
        pairs=design.pairs,
        execution=design.execution,
        runtime=design.runtime,
        guidance=design.guidance,
        instruction=design.instruction or suite.config.instruction,
    )
    trials = OpenedTrials(
        folder=options.out,
        locked=as_locked(plan),
        key=key,
        suite=suite,
        conditions={c.id: c for c in conditions},
        cell=cells[robot],
        robot=robot,
        sources={p.alias: p.source for p in key.policies},
        began=True,
    )
    text = find_config(where).read_text(encoding="utf-8")
    return Draft(trials, text, {cell.name: cell for cell in cells.values()})


def _sealed(
    policies: Sequence[GivenPolicy], words: tuple[str, ...], registered: Preregistration
) -> SealedKey:
    """Policies under aliases that a nonce deals out."""
    nonce = new_nonce()
    by_hash = shuffled(words, tuple(p.hash for p in policies), nonce)
    sealed = (
        SealedPolicy(by_hash[p.hash], p.name, p.hash, p.source, dict(p.files)) for p in policies
    )
    return SealedKey(nonce, tuple(sorted(sealed, key=lambda p: p.alias)), plan_text(registered))


def _cells(options: TrialOptions, robot: Path) -> Mapping[Path, CellConfig]:
    """By their files, the session's first."""
    cells = {file: load_cell(file) for file in (robot, *options.cells)}
    names = [cell.name for cell in cells.values()]
    # Each keeps a file of its name, on any file system.
    if len({_kept_cell(options.out, name).name.casefold() for name in names}) < len(names):
        raise ConfigError(f"cells need names of their own, got {names}")
    return cells


def _opened(options: TrialOptions) -> OpenedTrials:
    folder = options.out
    locked = read_locked(folder)
    blind = folder / BLIND
    rows = read_trials(blind) if has_trials(blind) else ()
    require_still_blinded(folder, rows, "go on blinded; plan further trials in another folder")
    key = open_key(folder, locked.plan.key)
    suite = _suite(folder, locked.plan, options.design.suite)
    cell, robot = _cell(folder, locked.plan, options.robot)
    _require_design(locked.plan, options, suite)
    sources = located_sources(key, options.design.policies)
    conditions = {c.id: c for c in suite.select(len({s.condition for s in locked.plan.slots}))}
    return OpenedTrials(folder, locked, key, suite, conditions, cell, robot, sources, began=False)


def _suite(folder: Path, plan: TrialPlan, given: Path | None) -> Suite:
    kept = open_suite(folder / KEPT / "suite.yaml")
    if kept.label != plan.suite:
        raise ConfigError(
            f"'{folder / KEPT / 'suite.yaml'}' is {kept.label}, planned was {plan.suite}: it was"
            " changed; restore it from a copy"
        )
    if given is not None and (other := open_suite(given)).label != plan.suite:
        raise ConfigError(
            f"the plan is about {plan.suite}, '{given}' is {other.label}:"
            f" {_listed(differences(to_dict(other.config), to_dict(kept.config), ''))}"
        )
    return kept


def _cell(folder: Path, plan: TrialPlan, robot: Path | None) -> tuple[CellConfig, Path]:
    if robot is None:
        if len(plan.cells) > 1:
            raise ConfigError(f"robot: the plan has the cells {_places(plan)}; say which one")
        robot = Path(next(iter(plan.cells.values())).file)
        if not robot.is_file():
            raise ConfigError(
                f"robot: the cell of the plan was described by '{robot}', which is not there; say"
                " where it is"
            )
    cell = load_cell(robot)
    planned = plan.cells.get(cell.name)
    if planned is None:
        raise ConfigError(f"'{robot}' is the cell '{cell.name}'; the plan has {_places(plan)}")
    if cell_hash(cell, planned.lab_seed) != planned.hash:
        raise ConfigError(
            f"the cell '{cell.name}' ('{robot}') is not as it was planned:"
            f" {_difference(cell, _kept_cell(folder, cell.name))}; restore it, or plan further"
            " trials in another folder"
        )
    return cell, robot


def _places(plan: TrialPlan) -> str:
    return ", ".join(f"{name} ('{cell.file}')" for name, cell in plan.cells.items())


def _difference(cell: CellConfig, kept: Path) -> str:
    """In words, as far as what was kept can be read."""
    try:
        return _listed(differences(to_dict(cell), dict(read_mapping(kept)), ""))
    except (OSError, DataError) as error:
        return f"in what, '{kept.name}' would say, which cannot be read ({error})"


def _require_design(plan: TrialPlan, options: TrialOptions, suite: Suite) -> None:
    """What is asked for again has to be what was planned; what is left out counts as planned."""
    design = options.design
    asked, usual, planned = _asked(design, suite), _asked(DesignOptions(), suite), _planned(plan)
    lines = [
        f"{name}: now {value!r}, planned {planned[name]!r}"
        for name, value in asked.items()
        # None: what nobody said is as it was planned.
        if value is not None
        and (value != usual[name] or name in design.given)
        and value != planned[name]
    ]
    cells = sorted(load_cell(file).name for file in options.cells)
    if not set(cells) <= set(plan.cells):
        lines.append(f"cells: now also {', '.join(cells)}, planned {', '.join(plan.cells)}")
    if lines:
        raise ConfigError(
            f"'{options.out}' has a plan, which is locked: {_listed(lines)}; leave these out, or"
            " plan further trials in another folder"
        )


def _asked(design: DesignOptions, suite: Suite) -> dict[str, Any]:
    """What is asked for, by the names that ``given`` has."""
    return {
        "trials": design.trials,
        "repeats": design.repeats,
        "pairs": design.pairs,
        "seed": design.seed,
        "max_steps": design.max_steps,
        "score": design.score,
        "rubric": design.rubric,
        "runtime": design.runtime,
        "guidance": design.guidance,
        "instruction": design.instruction or suite.config.instruction,
        "start_lab": design.start_lab,
        "lab_seed": design.lab_seed,
        **_members("rule", design.rule.limited(None)),
        **_members("execution", design.execution),
    }


def _planned(plan: TrialPlan) -> dict[str, Any]:
    """What was planned, likewise."""
    seeds = {cell.lab_seed for cell in plan.cells.values()}
    return {
        "trials": len({s.condition for s in plan.slots}),
        "repeats": len({s.block for s in plan.slots if s.repetition}),
        "pairs": plan.pairs,
        "seed": plan.seed,
        "max_steps": plan.max_steps,
        "score": plan.score,
        "rubric": plan.rubric,
        "runtime": plan.runtime,
        "guidance": plan.guidance,
        "instruction": plan.instruction,
        "start_lab": seeds != {None},
        # All of a plan have the same one.
        "lab_seed": next(iter(seeds), None),
        **_members("rule", plan.rule.limited(None)),
        **_members("execution", plan.execution),
    }


def _members(name: str, value: Rule | Execution) -> dict[str, Any]:
    return {f"{name}.{f.name}": getattr(value, f.name) for f in dataclasses.fields(value)}


def _kept_cell(folder: Path, name: str) -> Path:
    return folder / KEPT / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}.json"


def _listed(lines: Sequence[str]) -> str:
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return ("; ".join(lines[:_SHOWN]) or "values were added or taken away") + more
