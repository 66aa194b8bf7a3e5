"""How often the stated intervals of an identified arm hold the truth, over many drawn worlds.

    python -m tests.benchmarks.identify_coverage OUT.jsonl [--worlds 30] [--seconds 10]

In every world the same length of motion is made twice, chosen for what it tells and as a multisine,
and the arm is identified from either; one line per world and motion is appended to OUT, so that a
run that was ended goes on where it was (``--only multisine``: one of the two). Prints one JSON
document at the end. One thread.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from sim.identification.arm_excitation import Excitation, ExcitationConfig, informed, multisine
from sim.identification.arm_fit import FitConfig
from sim.identification.arm_identify import ArmIdentified, ArmIdentifyConfig, identify_arm
from sim.identification.arm_model import ArmModel
from sim.plants.scene import ScenePlant
from sim.scene.load import load_scene
from tests.sim.identification.arm_lab import DT_S, Hidden, hidden, record, room

# Short, and from few starts: what is judged is whether the intervals say so.
SEARCH = FitConfig(
    starts=0, first_iterations=3, first_s=4.0, iterations=4, last_iterations=3, threads=1
)
CHOICES = 3
LAG_S = 0.03 * math.sqrt(300.0 / 500.0)
CHOSEN, USUAL = "chosen", "multisine"
# 95 % of a normal distribution, on both sides.
_WIDE = 1.96


def truth(world: Hidden, model: ArmModel) -> dict[str, float]:
    """What the world hides, by the names of the model's parameters. The delay is as the drive
    train makes it: set-points wait for whole periods.
    """
    plant = ScenePlant(world.plant, world.seed)
    hidden_model = plant.model
    values = {
        "stiffness": hidden_model.actuator_gainprm[model.actuators, 0],
        "servo_damping": -hidden_model.actuator_biasprm[model.actuators, 2],
        "damping": hidden_model.dof_damping[model.dofs],
        "friction": hidden_model.dof_frictionloss[model.dofs],
        "armature": hidden_model.dof_armature[model.dofs],
    }
    drawn = world.drivetrain.drawn(model.arm.dof, world.seed)
    waits_s = DT_S * math.ceil(drawn.command_delay_s / DT_S - 1e-6)
    whole = {
        "payload": float(hidden_model.body("payload").mass[0]),
        "smoothing": LAG_S,
        "delay": waits_s + drawn.state_delay_s,
    }
    plant.close()
    return {
        p.name: float(values[p.kind][p.joint]) if p.joint >= 0 else whole[p.kind]
        for p in model.parameters
    }


@functools.cache
def chosen(model: ArmModel, seconds: float, seed: int) -> Excitation:
    """On the scene as it is, which knows nothing of the worlds: a few serve them all."""
    config = ExcitationConfig(seconds, seed=seed, threads=1)
    return informed(room(model), model, config)


def one(model: ArmModel, seed: int, how: str, seconds: float) -> dict[str, Any]:
    """One line: of every parameter what is true, what was found and how sure it was said to be."""
    world, place = hidden(seed), room(model)
    if how == CHOSEN:
        planned = chosen(model, seconds, seed % CHOICES)
    else:
        planned = multisine(place, seconds, seed=seed)
    made = record(world, planned, smoothing=True)
    check = record(world, multisine(place, 4.0, seed=seed + 1000, lines=7), smoothing=True)
    found = identify_arm([made], model.scene, ArmIdentifyConfig(SEARCH), [check])
    return {"seed": seed, "how": how, "seconds": seconds, **_told(found, truth(world, model))}


def _told(found: ArmIdentified, true: dict[str, float]) -> dict[str, Any]:
    return {
        "delay_off_s": found.delay_s - true["command delay"] - true["smoothing of set-points"],
        "worst_deg": found.after.worst_deg,
        "tool_mm": found.after.tool_mm,
        "rollouts": found.rollouts,
        "parameters": {
            f.name: [true[f.name], f.after, f.low, f.high, f.status] for f in found.found
        },
        "spread": np.sqrt(np.diag(found.fitted.covariance)).tolist(),
    }


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage by kind of motion and status, widths of the one over the other, errors of delay."""
    out: dict[str, Any] = {}
    for how in (CHOSEN, USUAL):
        rows = [r for r in lines if r["how"] == how]
        told = [(n, *v) for r in rows for n, v in r["parameters"].items()]
        out[how] = {
            "worlds": len(rows),
            "worst_delay_ms": 1e3 * max((abs(r["delay_off_s"]) for r in rows), default=math.nan),
            "worst_deg": max((r["worst_deg"] for r in rows), default=math.nan),
            "status": {
                status: _coverage([t for t in told if t[5] == status])
                for status in ("identified", "ratio", "assumed")
            },
            "by_kind": {
                kind: _coverage([t for t in told if t[0].startswith(kind) and t[5] != "assumed"])
                for kind in sorted({t[0].partition(" of ")[0] for t in told})
            },
        }
    out["errors, chosen / multisine"] = _nearer(lines)
    by_world = {(r["seed"], r["how"]): np.array(r["spread"]) for r in lines}
    seeds = sorted({s for s, _ in by_world if (s, CHOSEN) in by_world and (s, USUAL) in by_world})
    ratios = [by_world[s, CHOSEN] / by_world[s, USUAL] for s in seeds]
    if ratios:
        logs = np.log(np.maximum(np.array(ratios), 1e-6)).mean(axis=1)
        half = _WIDE * float(logs.std(ddof=1)) / math.sqrt(len(logs)) if len(logs) > 1 else math.nan
        middle = float(logs.mean())
        out["widths, chosen / multisine"] = {
            "worlds": len(seeds),
            "geometric_mean": math.exp(middle),
            "interval": [math.exp(middle - half), math.exp(middle + half)],
        }
    return out


def _nearer(lines: list[dict[str, Any]]) -> float:
    """Median error of every parameter over the worlds, one motion's over the other's; geometric
    mean over those that both told.
    """
    medians: dict[str, list[float]] = {}
    for how in (CHOSEN, USUAL):
        of = [r["parameters"] for r in lines if r["how"] == how]
        for name in of[0] if of else ():
            errors = [abs(p[name][1] - p[name][0]) for p in of]
            medians.setdefault(name, []).append(float(np.median(errors)))
    ratios = [a / b for a, b in (v for v in medians.values() if len(v) == 2) if a > 0.0 < b]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else math.nan


def _coverage(told: list[tuple[Any, ...]]) -> dict[str, float]:
    inside = [low <= true <= high for _, true, _, low, high, _ in told]
    return {"of": len(inside), "inside": float(np.mean(inside)) if inside else math.nan}


def main() -> None:
    """Run what is missing in OUT, and say what is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--worlds", type=int, default=30)
    parser.add_argument("--first", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", choices=(CHOSEN, USUAL), help="only motions of this kind")
    args = parser.parse_args()
    old = args.out.read_text().splitlines() if args.out.exists() else []
    lines = [json.loads(line) for line in old]
    done = {(r["seed"], r["how"]) for r in lines}
    model = ArmModel(load_scene("pusht_ur5e"))
    for seed in range(args.first, args.first + args.worlds):
        for how in (CHOSEN, USUAL):
            if (seed, how) in done or args.only not in (None, how):
                continue
            lines.append(one(model, seed, how, args.seconds))
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    print(json.dumps(summary(lines), indent=1))


if __name__ == "__main__":
    main()
