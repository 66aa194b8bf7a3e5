"""How fast scenes step, draw and reset, against robosuite and against MuJoCo alone.

References are measured in the same run, in turns, so that a busy neighbour slows both: robosuite's
Lift with its default OSC controller, and a loop of ``mj_step`` with the set-points that our own env
sent on the same model. Times are CPU seconds of one process, except where processes or threads are
what is measured.
"""

from __future__ import annotations

import json
import logging
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

# Before anything draws: the software renderer must not use the other core.
os.environ.setdefault("LP_NUM_THREADS", "0")
os.environ.setdefault("MUJOCO_GL", "egl")

import mujoco
import numpy as np

from robolearn.agents.actions import hold_action
from robolearn.types import Command
from sim.env.scene_env import SceneEnv
from sim.identification.batch_rollouts import Rollouts
from sim.rendering.renderer import Renderer, View, update_poses
from sim.scene.load import load_scene
from tests.benchmarks.sim_workers import CAMERA, SIZE, cpu_rate, run, wall_rate
from tests.benchmarks.turns import at_least

WORLD = "pick_place"
TURNS = 8
TICKS = 40
Row = dict[str, Any]


def rows(long: bool = False) -> list[Row]:
    """Every row of this area."""
    turns = 3 * TURNS if long else TURNS
    out = _against_mujoco(turns)
    theirs = _robosuite()
    if theirs is None:
        why = "robosuite is not installed (pip install -c constraints.txt robosuite)"
        names = ("control steps", "84x84 frame", "reset")
        out += [at_least(f"{n} against robosuite", "", None, None, None, None, why) for n in names]
    else:
        out += _against_robosuite(theirs, turns)
        theirs.close()
    return out + _parallel(long)


def _against_mujoco(turns: int) -> list[Row]:
    env = _env(WORLD)
    pairs = [(_tick_times(env, s)[0], _raw_times(env, s)) for s in range(turns)]
    env.close()
    name = f"{WORLD}: control steps per CPU second, 20 Hz, 25 substeps, against mj_step alone"
    return [_paired(name, "1/s", pairs, 0.8)]


def _env(world: str) -> SceneEnv:
    return SceneEnv(load_scene(world))


def _action(env: SceneEnv, k: int, held: dict[str, Any]) -> dict[str, Any]:
    """Circles of 4 cm around the start, opening and closing the gripper."""
    action = {name: np.array(value) for name, value in held.items()}
    action["tool/xyz_yaw"][:2] += 0.04 * np.array([np.cos(0.2 * k) - 1, np.sin(0.2 * k)])
    action["gripper/width"][:] = 0.04 + 0.03 * np.sin(0.1 * k)
    return action


def _tick_times(env: SceneEnv, seed: int, ticks: int = TICKS) -> tuple[float, list[Any]]:
    """CPU seconds per tick of the whole loop, and the set-points that were sent."""
    env.reset(env.sample_condition(seed), np.random.default_rng(seed))
    held = dict(hold_action(env.spec.actions, env.observe()))
    actions = [_action(env, k, held) for k in range(ticks)]
    sent: list[Any] = []
    start = time.process_time()
    for k in range(ticks):
        env.observe()
        env.apply(Command(k, actions[k], env.now_ns(), "bench"))
        env.advance()
        env.drain()
        env.outcome()
        sent.append(env.data.ctrl.copy())
    return (time.process_time() - start) / ticks, sent


def _raw_times(env: SceneEnv, seed: int) -> float:
    """CPU seconds per tick of ``mj_step`` from the same start under the same set-points."""
    _, sent = _tick_times(env, seed)
    env.reset(env.sample_condition(seed), np.random.default_rng(seed))
    model, data, substeps = env.model, env.data, env.scene.config.substeps
    start = time.process_time()
    for ctrl in sent:
        data.ctrl[:] = ctrl
        mujoco.mj_step(model, data, nstep=substeps)
    return (time.process_time() - start) / len(sent)


def _robosuite() -> Any:
    # It announces every controller file on the terminal.
    logging.getLogger("robosuite_logs").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import robosuite

            env = robosuite.make(
                "Lift",
                robots="Panda",
                has_renderer=False,
                has_offscreen_renderer=True,
                use_camera_obs=False,
                control_freq=20,
                ignore_done=True,
                hard_reset=False,
            )
            env.reset()
    except ImportError:
        return None
    return env


def _against_robosuite(theirs: Any, turns: int) -> list[Row]:
    env = _env(WORLD)
    steps = [(_tick_times(env, s)[0], _robosuite_step(theirs)) for s in range(turns)]
    resets = [(_cpu(lambda: _reset(env), 10), _cpu(theirs.reset, 10)) for _ in range(turns)]
    env.close()
    out = [
        _paired(f"{WORLD} against robosuite Lift (OSC): control steps", "1/s", steps, 7.0),
        _paired(f"{WORLD} against robosuite's soft reset", "1/s", resets, 1.0),
    ]
    return out + _frames(theirs, turns)


def _robosuite_step(env: Any, ticks: int = 15) -> float:
    low, high = env.action_spec
    action = 0.2 * (low + high) + 0.1 * high
    start = time.process_time()
    for _ in range(ticks):
        env.step(action)
    return (time.process_time() - start) / ticks


def _reset(env: SceneEnv) -> None:
    env.reset(env.sample_condition(0), np.random.default_rng(0))


def _frames(theirs: Any, turns: int) -> list[Row]:
    """The same model and camera, as robosuite draws it and as observations are drawn."""
    model, data = theirs.sim.model._model, theirs.sim.data._data
    renderer = Renderer(model, "fast")
    # Collision geoms are group 0 in robosuite, which draws group 1 only.
    renderer.show(geom_groups=(1,), site_groups=())
    view = View("agentview", SIZE, SIZE)

    def ours() -> Any:
        update_poses(model, data)
        return renderer.image(data, view)

    def stock() -> Any:
        # It assumes that nobody else draws.
        theirs.sim._render_context_offscreen.gl_ctx.make_current()
        return theirs.sim.render(camera_name="agentview", width=SIZE, height=SIZE)[::-1]

    stock()
    off = float(np.abs(ours().astype(int) - stock().astype(int)).mean())
    pairs = [(_cpu(ours, 10), _cpu(stock, 3)) for _ in range(turns)]
    renderer.close()
    scene = SceneEnv(load_scene(WORLD), cameras=(CAMERA,), size=SIZE)
    scene.reset(scene.sample_condition(0), np.random.default_rng(0))
    eyes = Renderer(scene.model, "fast")
    own = [(_cpu(lambda: _frame(scene, eyes), 10), _cpu(stock, 3)) for _ in range(turns)]
    eyes.close()
    scene.close()
    return [
        _paired("84x84 frame of robosuite's Lift, decimated, against agentview", "1/s", pairs, 8.0),
        at_least("the same pictures, mean absolute difference", "of 255", off, 2.5, 2.5 / off, 1.0),
        _paired(f"84x84 frame of {WORLD} against agentview", "1/s", own, 8.0),
    ]


def _frame(env: SceneEnv, renderer: Renderer) -> Any:
    update_poses(env.model, env.data)
    return renderer.image(env.data, View(CAMERA, SIZE, SIZE))


def _parallel(long: bool) -> list[Row]:
    ticks, cores = (300 if long else 120), len(os.sched_getaffinity(0))
    alone = [run(WORLD, ticks, 1) for _ in range(4)]
    together = [run(WORLD, ticks, 2) for _ in range(4)]
    plans = [(_rollouts(1), _rollouts(2)) for _ in range(6)]
    load = os.getloadavg()[0]
    # A shared core says nothing about two processes; CPU time still sees what they do to each
    # other through memory, caches and drivers, though not a wait.
    quiet = load < cores + 0.5
    why = f"{cores} cores, load {load:.1f}, " + ("wall clock" if quiet else "CPU time, as if idle")
    rate = wall_rate if quiet else cpu_rate
    one, two = (max(rate(r, ticks) for r in runs) for runs in (alone, together))
    name = f"{WORLD}: ticks with a picture, two processes against one"
    out = [at_least(name, "1/s", two, one, two / one, 1.7, why)]
    kind = 0 if quiet else 1
    one, two = (min(p[i][kind] for p in plans) for i in (0, 1))
    name = f"{WORLD}: mujoco.rollout of 32 plans, two threads against one"
    return [*out, at_least(name, "1/s", 32 / two, 32 / one, one / two, 1.2, why)]


def _rollouts(threads: int) -> tuple[float, float]:
    """Seconds for 32 plans of 20 ticks: wall clock, and CPU time per thread."""
    env = _env(WORLD)
    _, sent = _tick_times(env, 0, 20)
    env.reset(env.sample_condition(0), np.random.default_rng(0))
    rng = np.random.default_rng(0)
    plans = np.stack(sent)[None] + 0.01 * rng.standard_normal((32, 20, env.model.nu))
    with Rollouts([env.model], substeps=env.scene.config.substeps, threads=threads) as rollouts:
        state = rollouts.state(env.data)[None]
        rollouts.roll(state, plans[:2])
        start, cpu = time.perf_counter(), time.process_time()
        rollouts.roll(state, plans)
        took = time.perf_counter() - start, (time.process_time() - cpu) / threads
    env.close()
    return took


def _cpu(call: Callable[[], Any], times: int) -> float:
    """CPU seconds per call."""
    call()
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def _paired(name: str, unit: str, pairs: list[tuple[float, float]], floor: float) -> Row:
    """Rates from seconds ``(ours, theirs)``: the fastest turn of each, as what is slower in other
    turns is the neighbours' doing.
    """
    ours, theirs = (float(1 / min(p[i] for p in pairs)) for i in (0, 1))
    return at_least(name, unit, ours, theirs, ours / theirs, floor)


if __name__ == "__main__":
    print(json.dumps(rows(), indent=2))
