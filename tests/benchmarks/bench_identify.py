"""Identification of an arm: hidden arms found again, the chosen motion against a multisine, the
search against simulated annealing.

make bench ONLY=identify

The arms are the lab's plant behind its drive train and an emulated UR's filter, in process; their
physics is drawn from the seed. Annealing is SIMPLER's (nathanrooy/simulated-annealing: one chain,
exponential cooling, bounds normalised to [0, 1]), on the same loss, from the same start.
"""

from __future__ import annotations

import math
import time
from typing import Any

import mujoco
import numpy as np

from sim.identification.arm_excitation import (
    ExcitationConfig,
    information_of,
    informed,
    multisine,
)
from sim.identification.arm_fit import ArmFit, FitConfig, first_delay_s
from sim.identification.arm_identify import ArmIdentified, ArmIdentifyConfig, identify_arm
from sim.identification.arm_model import ArmModel, Unknowns
from sim.identification.arm_rollouts import ArmRollouts
from sim.scene.load import load_scene
from tests.sim.identification.arm_lab import Hidden, hidden, record, room

LAG_S = 0.03 * math.sqrt(300.0 / 500.0)
SEEDS = (101, 102, 103)


def rows(long: bool = False) -> list[dict[str, Any]]:
    """All figures of this area."""
    model = ArmModel(load_scene("pusht_ur5e"))
    seconds = 60.0 if long else 15.0
    found = [(hidden(s), *_identified(model, s, seconds)) for s in (SEEDS if long else SEEDS[:1])]
    worst = max(f.after.worst_deg for _, f, _ in found)
    tool = max(f.after.tool_mm for _, f, _ in found)
    before = max(f.before.worst_deg for _, f, _ in found)
    late = max(abs(f.delay_s - w.delay_s - LAG_S) for w, f, _ in found)
    count = max(f.rollouts for _, f, _ in found)
    took, waited = (max(s[k] for *_, s in found) for k in (0, 1))
    bare = count * bare_s(model, seconds)
    ratio = intervals(model, seconds)
    ours, annealed, budget = annealing(model, 6.0)
    what = f"UR5e, hidden dynamics, {len(found)} seed(s), {seconds:g} s of motion"
    return [
        _row(f"{what}: worst held-out joint", "deg", worst, before, worst <= 0.5, 0.5),
        _row(f"{what}: held-out tool", "mm", tool, None, tool <= 10.0, 10.0),
        _row(f"{what}: delay off by", "ms", 1e3 * late, None, late <= 0.005, 5.0),
        _row(f"{what}: rollouts", "", count, None, count <= 400, 400.0),
        _row(f"{what}: CPU time of the fit; {count} bare rollouts", "s", took, bare,
             took <= 120.0, 120.0),
        _row(f"{what}: the fit by the clock, two threads; {count} bare rollouts in one", "s",
             waited, bare, waited <= 60.0, 60.0),
        _row("intervals, chosen motion / multisine", "", ratio, 1.0, ratio <= 0.7, 0.7),
        _row(f"loss with a quarter of annealing's {budget} rollouts", "", ours, annealed,
             ours <= annealed, annealed),
    ]  # fmt: skip


def bare_s(model: ArmModel, seconds: float) -> float:
    """CPU time of one rollout of so long by the engine alone, in one thread [s]."""
    data = mujoco.MjData(model.model)
    steps, tried = round(seconds / float(model.model.opt.timestep)), 5000
    found: list[float] = []
    for _ in range(3):
        mujoco.mj_resetData(model.model, data)
        begin = time.process_time()
        mujoco.mj_step(model.model, data, tried)
        found.append(time.process_time() - begin)
    return min(found) / tried * steps


def _identified(
    model: ArmModel, seed: int, seconds: float
) -> tuple[ArmIdentified, tuple[float, float]]:
    world, place = hidden(seed), room(model)
    motion = informed(place, model, ExcitationConfig(seconds=seconds, seed=seed))
    fit = record(world, motion, smoothing=True)
    check = record(world, multisine(place, 12.0, seed=seed + 1000, lines=7), smoothing=True)
    begin = time.process_time(), time.monotonic()
    found = identify_arm([fit], model.scene, ArmIdentifyConfig(), [check])
    return found, (time.process_time() - begin[0], time.monotonic() - begin[1])


def intervals(model: ArmModel, seconds: float, seeds: int = 3) -> float:
    """Geometric mean over parameters and seeds of the intervals' widths, chosen motion over
    multisine of the same length, both within the same limits, on the nominal model.
    """
    place, believed = room(model), np.diag(model.belief**-2.0)
    ratios: list[np.ndarray] = []
    for seed in range(seeds):
        chosen = informed(place, model, ExcitationConfig(seconds=seconds, seed=seed))
        usual = multisine(place, seconds, seed=seed)
        a, b = (
            np.sqrt(np.diag(np.linalg.inv(m + believed)))
            for m in information_of(model, [chosen, usual])
        )
        ratios.append(np.log(a / b))
    return float(np.exp(np.mean(ratios)))


def annealing(model: ArmModel, seconds: float, seed: int = 104) -> tuple[float, float, int]:
    """Root mean square of the errors [deg] that our search ends with, that annealing ends with
    after four times as many rollouts, and how many these were.
    """
    world: Hidden = hidden(seed)
    motion = record(world, multisine(room(model), seconds, seed=seed), smoothing=True)
    rollouts = ArmRollouts(model)
    track = rollouts.track(motion)
    every = np.ones(len(model.start), dtype=bool)
    fit = ArmFit(rollouts, [track], every, FitConfig())
    ours = _loss(rollouts, fit.solve(), track)
    budget = 4 * rollouts.count
    start = model.start.copy()
    start[-1] = first_delay_s(track, model)
    return ours, _anneal(model, rollouts, track, start, budget, seed), budget


def _anneal(
    model: ArmModel, rollouts: ArmRollouts, track: Any, x: Unknowns, budget: int, seed: int
) -> float:
    rng = np.random.default_rng(seed)
    width = model.high - model.low
    loss = best = _loss(rollouts, x, track)
    for k in range(budget - 1):
        temperature = 1.5 * 0.99 ** (k * 400 / budget)
        # One neighbour: every parameter a little elsewhere, less as it cools down.
        step = 0.1 * temperature * rng.uniform(-1.0, 1.0, len(x)) * width
        trial = np.clip(x + step, model.low, model.high)
        new = _loss(rollouts, trial, track)
        if new < loss or rng.random() < math.exp(-(new - loss) / (0.1 * temperature)):
            x, loss = trial, new
            best = min(best, loss)
    return best


def _loss(rollouts: ArmRollouts, x: Unknowns, track: Any) -> float:
    error = rollouts.roll([track], x[None])[0][0] - track.measured
    rms = float(np.degrees(np.sqrt(np.mean(error**2))))
    return rms if math.isfinite(rms) else 1e6


def _row(
    name: str, unit: str, ours: float, reference: float | None, holds: bool, floor: float
) -> dict[str, Any]:
    ratio = None if not reference else ours / reference
    return {
        "name": name, "unit": unit, "ours": ours, "reference": reference, "ratio": ratio,
        "floor": floor, "holds": bool(holds), "why": "",
    }  # fmt: skip
