"""A complete results folder from synthetic numbers: every section of the report has something."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np

from eval.evaluation import Evaluation, PolicyIdentity, WorldIdentity, write_evaluation
from eval.filming import choose
from eval.trials.table import TrialStore
from robolearn.data.episode import EpisodeMeta, episode_from_arrays
from robolearn.data.store.store import EpisodeStore
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Condition, Outcome, TrialRecord
from sim.rendering.video import write_mp4
from tests.eval.mocks import SPEC

LAB = "virtual lab, pybullet"
WORLDS = (("gym_pusht", 60), ("pusht_reference", 25), ("pusht_ur5e", 25))


def results_folder(root: Path) -> Path:
    _store(root / "import" / "store", "demonstration", 24)
    _store(root / "collect" / "store", "scripted", 2)
    _physics(root / "identify")
    critics = ("loss/value", "loss/critic", "q/mean")
    for name, keys, seed in (
        ("flow", ("loss/flow",), 0),
        ("flow_1", ("loss/flow",), 1),
        ("iql", critics, 0),
    ):
        _run(root / "train" / name, keys, seed)
    _evaluation(root / "evaluate")
    _deployment(root / "deploy")
    stages = {"import": {"status": "done", "seconds": 12.5}, "train": {"status": "running"}}
    (root / "demo.json").write_text(json.dumps({"stages": stages}))
    return root


def _store(path: Path, kind, n: int) -> None:
    store = EpisodeStore.create(path)
    rng = np.random.default_rng(3)
    with store.writer() as writer:
        for i in range(n):
            steps = int(rng.integers(20, 40))
            t = np.linspace(0, 1, steps)[:, None]
            tool = 0.25 + 0.2 * np.concatenate([np.cos(6 * t + i), np.sin(5 * t + i)], axis=1)
            block = np.concatenate([tool * 0.3 + 0.18, t * 0.1 - 0.8], axis=1)
            meta = EpisodeMeta(
                kind=kind,
                task="pusht",
                embodiment=SPEC,
                condition=Condition(f"c{i}", i, {TOOL: tuple(map(float, tool[0]))}),
                outcome=Outcome(i % 2 == 0, 0.8, 0.8, terminal=True, reason="success"),
                provenance={"source": "synthetic <numbers>"},
            )
            writer.append(
                episode_from_arrays(
                    meta, {TOOL: tool, BLOCK: block}, {TOOL: tool}, progress=np.ravel(t)
                )
            )


def _physics(folder: Path) -> None:
    folder.mkdir(parents=True)
    summary = {
        "episodes": 10,
        "position_p50_mm": 20.5,
        "position_p90_mm": 50.0,
        "rotation_p50_deg": 10.0,
        "rotation_p90_deg": 25.0,
    }
    small = {k: v / 50 if k != "episodes" else v for k, v in summary.items()}
    document = {
        "parameters": {"friction": {"before": 0.3, "after": 0.001}},
        "heldout": {
            "before": {"after_5_s": summary, "final": summary},
            "after": {"after_5_s": small, "final": small},
        },
        "train_episodes": 20,
        "heldout_episodes": 10,
        "windows": 60,
        "evaluations": 92,
        "duration_s": 40.0,
    }
    (folder / "identify.json").write_text(json.dumps(document))
    rng = np.random.default_rng(0)
    for scene, scale in (("pusht_naive", 30.0), ("pusht_identified", 0.4), ("pusht_ur5e", 20.0)):
        mm, deg = rng.lognormal(np.log(scale), 0.7, 40), rng.lognormal(np.log(scale / 3), 0.7, 40)
        replay = {
            "episodes": 40,
            "final_position_error_mm": _percentiles(mm),
            "final_rotation_error_deg": _percentiles(deg),
            "diverged": 0,
            "per_episode": [
                {"id": f"e{i}", "final_position_error_mm": a, "final_rotation_error_deg": b}
                for i, (a, b) in enumerate(zip(mm, deg, strict=True))
            ],
        }
        (folder / f"replay_{scene}.json").write_text(json.dumps(replay))


def _percentiles(values) -> dict[str, float]:
    return {"p50": float(np.median(values)), "p90": float(np.percentile(values, 90))}


def _run(folder: Path, keys, seed: int) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(len(keys) + seed)
    lines = [
        {"step": s, "total": 3000, "seconds": s / 20, "cpu_seconds": s / 18, "lr_factor": 0.5}
        | {k: float(0.1 + 2.0 / (1 + s / 100) + 0.03 * rng.normal()) for k in keys}
        for s in range(50, 3001, 50)
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    # A run that was killed while it logged ends in half a line.
    (folder / "metrics.jsonl").write_text(text + '\n{"step": 30')
    settings = f"seed: {seed}\npolicy: {keys[0][5:]} # <b>not bold</b>\n"
    (folder / "config.yaml").write_text(settings)
    provenance = {"episodes": 24, "seed": seed, "data_hash": "abc123"}
    (folder / "provenance.json").write_text(json.dumps(provenance))


def trial(policy, world, i, score, success, seed=0, **changes) -> TrialRecord:
    base = TrialRecord(
        policy=policy,
        policy_hash=f"h-{policy}",
        env=world,
        env_hash=f"h-{world}",
        engine="mock 1.0",
        kind="sim",
        condition=f"pusht-{i:04d}",
        seed=seed + i,
        success=success,
        score=score,
        final_progress=score * 0.9,
        return_=10.0,
        steps=300,
        duration_s=30.0,
        reason="success" if success else ("physics_diverged" if i == 7 else "time_limit"),
        commit="abc",
        suite="pusht@1234",
        metrics={"max_coverage": 0.95 * score, "chunks": 38.0}
        | ({"changed": 20.0} if policy == "iql" else {}),
    )
    return TrialRecord(**{f: getattr(base, f) for f in TrialRecord.__slots__} | changes)


def _evaluation(folder: Path) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(2)
    hard = rng.beta(5, 1.2, 60)

    def group(policy, world, n, seed=0):
        scores = np.clip(hard[:n] + rng.normal(0, 0.12, n), 0, 1)
        return [
            trial(policy, world, i, float(s), bool(s > 0.93), seed) for i, s in enumerate(scores)
        ]

    groups = {(p, w): group(p, w, n) for w, n in WORLDS for p in ("flow", "iql")}
    repeats = [
        dataclasses.replace(r, variant=variant)
        for p in ("flow", "iql")
        for variant, seed in (("moved", 0), ("noise", 9000))
        for r in group(p, "gym_pusht", 25, seed)
    ]
    variants = {
        (p, f"pusht_reference~{v}"): [
            dataclasses.replace(
                r,
                env=f"pusht_reference~{v}",
                env_hash=f"h-{v}",
                success=r.success and (v == "mass=1" or r.seed % 3 == 0),
                reason="dropped" if v != "mass=1" and r.seed % 3 else r.reason,
            )
            for r in groups[p, "pusht_reference"]
        ]
        for p in ("flow", "iql")
        for v in ("friction=1", "mass=1")
    }
    clips = {
        (r.policy, r.env, r.condition, r.seed): _clip(folder, r)
        for records in groups.values()
        for r in (c.trial for c in choose(records, 3))
    }
    worlds = tuple(dict.fromkeys(w for _, w in (*groups, *variants)))
    counts = {w: len(({**groups, **variants})["flow", w]) for w in worlds}
    with TrialStore(folder) as store:
        for r in (*(r for g in (groups | variants).values() for r in g), *repeats):
            key = (r.policy, r.env, r.condition, r.seed)
            video = "" if r.variant else clips.get(key, "")
            store.add([dataclasses.replace(r, code="def", batch=10, video=video)])
    # One of the clips is gone.
    next((folder / "videos").glob("iql-pusht_ur5e-*.mp4")).unlink()
    first = groups["flow", "gym_pusht"]
    write_evaluation(
        folder,
        Evaluation(
            suite="pusht@1234",
            protocol="score = maximum of min(1, coverage / 0.95); 300 steps at 10 Hz",
            task="pusht",
            max_steps=300,
            source_world="gym_pusht",
            starts={r.condition: r.seed for r in first},
            conditions=counts,
            worlds=tuple(
                WorldIdentity(w, f"h-{w.partition('~')[2] or w}", "mock 1.0") for w in worlds
            ),
            policies=(
                PolicyIdentity("flow", "h-flow", "runs/flow", trained_on="starts"),
                PolicyIdentity("iql", "h-iql", "runs/iql"),
            ),
            seen={r.condition: r.seed % 2 == 0 for r in first},
            trained_on=("starts",),
            placed=True,
            batch=10,
            code="def",
            commit="abc",
            versions={"mujoco": "3"},
            command="robolearn evaluate runs/flow runs/iql",
        ),
    )


def _clip(folder: Path, t: TrialRecord) -> str:
    path = folder / "videos" / f"{t.policy}-{t.env}-{t.condition}.mp4"
    frames = [np.full((64, 64, 3), 240, dtype=np.uint8) for _ in range(6)]
    for k, frame in enumerate(frames):
        frame[20 + k : 36 + k, 24:40] = (60, 100, 160)
    write_mp4(path, frames, 5.0)
    return path.name


def _deployment(folder: Path) -> None:
    _store(folder / "store", "deployment", 2)
    records = [
        trial(
            "flow", "lab_ur5e", i, s, s > 0.95, kind="lab", episode=f"ep{i}", reason=r, engine=LAB
        )
        for i, (s, r) in enumerate(((0.97, "success"), (0.71, "safety_stop")))
    ]
    with TrialStore(folder) as table:
        table.add(records)
    events = [{"t_ns": 1, "cause": c, "value": 0.1, "command": 3} for c in ("speed", "speed")]
    trials = [
        {"interventions": events, "setpoint_lateness_ms": [0.1, 0.2, 0.15]},
        {"interventions": [{"t_ns": 2, "cause": "stale_tracker"}], "setpoint_lateness_ms": [0.3]},
    ]
    figures = {"interventions": 3, "inference_ms_p50": 4.1, "trials": trials}
    (folder / "deploy.json").write_text(json.dumps(figures))
