"""Makes agents of OGBench's scripted oracles: data sets that cannot be downloaded, made anew.

Two kinds, as in OGBench: ``play`` follows a drawn plan through keyframes with smooth noise (not a
function of the state), ``noisy`` is a reactive expert whose actions are disturbed. One target after
the other is drawn until time is up, whatever became of the last one.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Generator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import ConfigError
from robolearn.ogbench import GRIPPER, LIMITS, TOOL
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput
from sim.adapters.ogbench.env import OGBenchEnv

# Standard deviations of the noisy kind's disturbance, per unit of its level (actions in [-1, 1]).
NOISE = np.array([1.0, 1.0, 1.0, 3.0, 10.0])
# OGBench's chance that a new target is on top of another cube.
STACK = 0.5


class OGBenchOracle:
    """Acts in ``env`` (which must be at play) by looking into the simulator."""

    def __init__(self, env: OGBenchEnv, kind: Literal["play", "noisy"], noise: float = 0.1) -> None:
        if not env.playing:
            raise ConfigError(
                f"OGBench's oracles draw their own targets: use the world"
                f" '{env.spec.name.replace('ogbench_', 'ogbench/').replace('_', '-')},mode=play'"
            )
        if not 0.0 <= noise <= 1.0:
            raise ConfigError(f"the noise of an oracle is 0 to 1, got {noise:g}")
        self._env, self._kind, self._noise = env, kind, noise
        self._version = f"ogbench-{importlib.metadata.version('ogbench')}"
        self._rng = np.random.default_rng(0)
        self._state: Any = None
        self._level, self._seq = 0.0, 0
        self._oracles = _oracles(env, kind, noise)
        self._oracle: Any = None
        self._chosen = False

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        return f"{self._version}:{self._kind}-oracle"

    def reset(self, seed: int) -> None:
        """Forget the last episode; all randomness of the next one comes from ``seed``."""
        self._rng = np.random.default_rng(seed)
        # Its oracles use numpy's global generator; it is theirs only while they are asked.
        self._state = np.random.RandomState(self._rng.integers(2**32)).get_state()
        self._level = self._rng.uniform(0.0, self._noise) if self._kind == "noisy" else 0.0
        self._seq, self._chosen = 0, False

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The oracle's next step towards its present target."""
        del reply
        with self._global_numpy():
            if not self._chosen:
                self._choose(self._env.observation, self._env.info)
            elif self._oracle.done:
                ob, info = self._env.ogbench.set_new_target(p_stack=STACK)
                self._choose(ob, info)
            action = self._oracle.select_action(self._env.observation, self._env.info)
        value = np.asarray(action, dtype=np.float64)
        if self._level:
            value = value + self._rng.normal(size=5) * self._level * NOISE
        command = np.clip(value, -1.0, 1.0) * LIMITS
        self._seq += 1
        return Command(
            seq=self._seq - 1,
            action={TOOL: command[:4], GRIPPER: command[4:]},
            due_ns=observation.t_ns,
            source="scripted",
        )

    def _choose(self, ob: NDArray[Any], info: Any) -> None:
        self._oracle = self._oracles[info["privileged/target_task"]]
        self._oracle.reset(ob, info)
        self._chosen = True

    @contextlib.contextmanager
    def _global_numpy(self) -> Generator[None]:
        saved = np.random.get_state()  # noqa: NPY002
        np.random.set_state(self._state)  # noqa: NPY002
        try:
            yield
        finally:
            self._state = np.random.get_state()  # noqa: NPY002
            np.random.set_state(saved)  # noqa: NPY002


def _oracles(env: OGBenchEnv, kind: str, noise: float) -> dict[str, Any]:
    from ogbench.manipspace.oracles.markov import (
        button_markov,
        cube_markov,
        drawer_markov,
        window_markov,
    )
    from ogbench.manipspace.oracles.plan import button_plan, cube_plan, drawer_plan, window_plan

    inner = env.ogbench
    # Where buttons are all there is, the gripper stays closed.
    closed = env.task.startswith("ogbench_puzzle")
    if kind == "play":
        plan = {"env": inner, "noise": noise, "noise_smoothing": 0.5}
        return {
            "cube": cube_plan.CubePlanOracle(**plan),
            "button": button_plan.ButtonPlanOracle(gripper_always_closed=closed, **plan),
            "drawer": drawer_plan.DrawerPlanOracle(**plan),
            "window": window_plan.WindowPlanOracle(**plan),
        }
    return {
        "cube": cube_markov.CubeMarkovOracle(env=inner, min_norm=0.4),
        "button": button_markov.ButtonMarkovOracle(
            env=inner, min_norm=0.4, gripper_always_closed=closed
        ),
        "drawer": drawer_markov.DrawerMarkovOracle(env=inner, min_norm=0.4),
        "window": window_markov.WindowMarkovOracle(env=inner, min_norm=0.4),
    }
