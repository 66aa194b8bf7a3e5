"""Finds which parameter of a scene explains its gap to reality, by simulating it shifted.

Every policy acts from where its real trials began, in the scene as it is and with one parameter at
a time off by a known amount, rollout by rollout with the same seeds. What the report says is
computed from the trials, whenever it is asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eval.summary import own_trials
from eval.trials.progress import Progress
from eval.trials.suites import Suite
from eval.trust.causes.cells import Shift, cells_of
from eval.trust.causes.report import CausesReport, causes_report
from eval.trust.pairing import By, require_paired
from robolearn.agents.execution import Execution
from robolearn.errors import ConfigError, DataError, did_you_mean
from robolearn.operations.builders import env_builder, expert_noise
from robolearn.operations.compare import pooled
from robolearn.operations.evaluate import AS_TRAINED, policy_task_space
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.reality.worlds import make_world
from robolearn.operations.trial.like import LikeOptions, evaluate_like, like_suite, real_trials
from robolearn.spec import SignalSpec
from robolearn.types import TrialRecord
from sim.perturbations.kinds import PERTURBATIONS, split_perturbations
from sim.world_name import WorldName

_SHIFT = "_shift"
# What can be wrong with a scene: the name of its shift (``sim/perturbations/shifts.py``).
PARAMETERS = tuple(name.removesuffix(_SHIFT) for name in PERTURBATIONS if name.endswith(_SHIFT))
# These change what is seen, and nothing else.
SEEN = ("camera", "light")


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What is shifted, and by how much."""

    # Default: every one that the scene has and the policies can notice.
    parameters: tuple[str, ...] = ()
    # In the units of docs/perturbations.md: of factors powers of two, of a delay 100 ms.
    levels: tuple[float, ...] = (-1.0, 1.0)
    by: By = "success"
    # Of what is drawn anew.
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.parameters:
            if name not in PARAMETERS:
                raise ConfigError(
                    f"no parameter '{name}'.{did_you_mean(name, PARAMETERS)} There are:"
                    f" {list(PARAMETERS)}"
                )
        if 0.0 in self.levels or len(set(self.levels)) != len(self.levels) or not self.levels:
            raise ConfigError(
                f"levels: expected different numbers other than 0, got {list(self.levels)}"
            )


AS_MEASURED = LikeOptions()
EVERYTHING = ExplainOptions()


def explain(
    runs: Sequence[str | Path],
    like: Path,
    world: str,
    out: Path,
    options: EvaluateOptions,
    execution: Execution = AS_TRAINED,
    how: LikeOptions = AS_MEASURED,
    what: ExplainOptions = EVERYTHING,
    on_progress: Callable[[Progress], None] | None = None,
) -> CausesReport:
    """Simulate ``runs`` (as :func:`~robolearn.operations.evaluate.evaluate` takes them) in the
    scene ``world`` and in shifted ones from the starts of the real trials in ``like``, and say what
    explains the gap; resumes.

    :class:`ConfigError` for a world without parameters to shift, :class:`DataError` for trials that
    do not pair up.
    """
    suite, seen = like_suite(like, options), _pictures(runs)
    _require_shown(seen, world)
    shifts, left_out = shifts_in(world, suite, what, pictured=bool(seen))
    worlds = (world, *(s.world for s in shifts))
    asked = dataclasses.replace(options, worlds=worlds)
    evaluate_like(runs, like, out, asked, execution, how, on_progress)
    real = real_trials(like, how.real_world)
    return causes_of_trials(real, out, by=what.by, left_out=left_out, seed=what.seed)


def shifts_in(
    world: str, suite: Suite, what: ExplainOptions, *, pictured: bool
) -> tuple[tuple[Shift, ...], Mapping[str, str]]:
    """Shifted worlds, and parameter -> why it is not shifted.

    ``pictured``: whether any policy looks at pictures.
    """
    env_builder(world)  # Which worlds there are is said first.
    shifts: list[Shift] = []
    left_out: dict[str, str] = {}
    for name in what.parameters or PARAMETERS:
        if name in SEEN and not pictured and not what.parameters:
            left_out[name] = "no policy looks at pictures"
            continue
        mine = [
            Shift(name, v, f"{world}~{name}{_SHIFT}={v!r}".removesuffix(".0")) for v in what.levels
        ]
        refused = {s.level: why for s in mine if (why := _refused(s.world, suite))}
        shifts += [s for s in mine if s.level not in refused]
        if len(refused) == len(mine):
            left_out[name] = refused[mine[0].level]
        else:
            left_out |= {f"{name} {level:+g}": why for level, why in refused.items()}
    if not shifts:
        raise ConfigError(f"'{world}': no parameter can be shifted: {left_out}")
    return tuple(shifts), left_out


def causes_of_trials(
    real: Sequence[TrialRecord],
    folder: Path,
    *,
    by: By = "success",
    left_out: Mapping[str, str] | None = None,
    seed: int = 0,
) -> CausesReport:
    """What the simulated trials of ``folder`` say about the gap to ``real``.

    Which worlds are shifted, and by how much, their names say. :class:`DataError` for folders of
    anything else.
    """
    kept, _ = own_trials(pooled([folder]).kept)
    sims: dict[str, list[TrialRecord]] = {}
    for record in kept:
        sims.setdefault(record.env, []).append(record)
    known = {name: shift for name in sims if (shift := _shift_of(name)) is not None}
    bases = {split_perturbations(name)[0] for name in known}
    plain = [name for name in sims if name not in known and name in bases]
    if len(plain) != 1:
        raise DataError(
            f"'{folder}': expected trials of one scene as it is and with shifted parameters, got"
            f" {list(sims)}; 'robolearn explain' makes them"
        )
    (world,) = plain
    suites = {r.suite for r in sims[world]}
    mine = [r for r in real if r.suite in suites] or real
    require_paired(mine, sims[world], by)  # Whether both sides belong together at all.
    shifts = tuple(known.values())
    cells = cells_of(mine, sims, world, shifts, by)
    return causes_report(cells, shifts, world, by=by, left_out=left_out, seed=seed)


def explained_tasks(
    real: Sequence[TrialRecord], folder: Path, by: By, seed: int
) -> Mapping[str, CausesReport]:
    """What the trials of ``folder`` explain, by the task of their suite; :class:`DataError` where
    that is none of the real trials'.
    """
    own, _ = own_trials(real)
    shared = {r.suite for r in own} & {r.suite for r in pooled([folder]).kept}
    if len(shared) != 1:
        raise DataError(
            f"the trials of '{folder}' share {len(shared)} suites with the real ones, expected one;"
            " explain each task by itself"
        )
    (suite,) = shared
    mine = [r for r in own if r.suite == suite]
    report = causes_of_trials(mine, folder, by=by, seed=seed)
    return {suite.partition("@")[0] or mine[0].env: report}


def _shift_of(world: str) -> Shift | None:
    """The one shift in a world's name."""
    _, perturbations = split_perturbations(world)
    found = list(perturbations.magnitudes.items())
    if len(found) != 1 or not found[0][0].endswith(_SHIFT):
        return None
    return Shift(found[0][0].removesuffix(_SHIFT), found[0][1], world)


def _refused(world: str, suite: Suite) -> str:
    """Why a world cannot be; empty if it can."""
    try:
        env = make_world(env_builder(world).world)
    except ConfigError as error:
        return str(error)
    try:
        env.reset(suite.select(1)[0], np.random.default_rng(0))
    except ConfigError as error:
        return str(error)
    finally:
        env.close()
    return ""


def _pictures(runs: Sequence[str | Path]) -> tuple[SignalSpec, ...]:
    """What policies look at."""
    spaces = [policy_task_space(run) for run in runs if expert_noise(str(run)) is None]
    return tuple(s for space in spaces for s in space.observations if s.is_image)


def _require_shown(seen: Sequence[SignalSpec], world: str) -> None:
    """:class:`ConfigError` where a world does not show what policies look at."""
    if not seen:
        return
    env = make_world(env_builder(world).world)
    offered = {s.name for s in env.spec.signals}
    env.close()
    missing = [s for s in seen if s.name not in offered]
    if missing:
        names = dict.fromkeys(s.name for s in missing)
        options = {"camera": "+".join(n.removesuffix("/image") for n in names)}
        sides = {side for s in missing for side in s.shape[:2]}
        options |= {"size": str(max(sides))} if len(sides) == 1 else {}
        parsed = WorldName.parse(world)
        shown = dataclasses.replace(parsed, options={**parsed.options, **options})
        raise ConfigError(
            f"policies look at {', '.join(names)}, which '{world}' does not show; name its pictures"
            f" with the world, as in '{shown}'"
        )
