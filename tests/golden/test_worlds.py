"""An episode of every world that is cheap to run: what is commanded, seen and judged."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from typing import Any

import numpy as np
import pytest

from robolearn.runtime import run_episode
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, EpisodeHeader, Observation, Outcome, PolicyOutput, Tick
from sim.scene.load import packaged_scenes
from sim.worlds import build_operator, make_world
from tests.golden.golden import Golden

RTOL = 1e-6
SEED, NOISE, TICKS = 7, 0.1, 250
# Worlds in which a tick takes long, or the last bits soon decide where things go.
BRIEF, BRIEF_TICKS = ("pusht", "gym_pusht", "pybullet/", "robosuite/", "ogbench/"), 20
# Arms are driven by compiled code.
MUJOCO = ("mujoco", "numba", "llvmlite")
BULLET = (*MUJOCO, "pybullet")
PLANNED = ("mujoco", "pymunk", "scipy", "shapely")
PICK_AND_DISTURB = "pick_place~mass=1~friction=1~action_delay=1~sensor_noise=1~action_noise=1"
# World -> the distributions that decide its last bits.
WORLDS: dict[str, tuple[str, ...]] = {
    **{name: PLANNED if name.startswith("pusht") else MUJOCO for name in packaged_scenes()},
    PICK_AND_DISTURB: MUJOCO,
    "gym_pusht": (*PLANNED, "gym-pusht"),
    "pusht_pybullet": BULLET,
    "pybullet/pick_place": BULLET,
    "gymnasium/Pendulum-v1": ("gymnasium",),
    "robosuite/Lift": (*MUJOCO, "robosuite"),
    "ogbench/cube-single,mode=play": (*MUJOCO, "ogbench"),
}
OPTIONAL = ("robosuite", "ogbench")
# Worlds without an expert, and one where the expert's plan turns on the last bits of its view.
CIRCLED = (
    *("gymnasium/", "panda_table", "so101_table", "ur5e_table", "xarm7_table"),
    "pusht_pybullet",
)


class Circling:
    """A slow circle within the range of every action."""

    name = "circling"

    def __init__(self, spec: EmbodimentSpec) -> None:
        self._actions = spec.actions
        self.reset(0)

    def reset(self, seed: int) -> None:
        self._seq = -1

    def request(self, observation: Observation) -> None:
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        self._seq += 1
        action: dict[str, Any] = {}
        for spec in self._actions:
            low, high = np.array(spec.low), np.array(spec.high)
            phase = 0.3 * self._seq + np.arange(spec.size).reshape(spec.shape) * np.pi / 2
            action[spec.name] = (low + high) / 2 + 0.2 * (high - low) * np.cos(phase)
        return Command(self._seq, action, observation.t_ns, self.name)


class Watching:
    """Keeps every tick."""

    def __init__(self) -> None:
        self.ticks: list[Tick] = []

    def on_start(self, episode: EpisodeHeader) -> None:
        self.achieved = episode.reset.achieved

    def on_tick(self, tick: Tick) -> None:
        self.ticks.append(tick)

    def on_end(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def on_abort(self, error: BaseException) -> None:
        """The error is raised anyway."""

    def told(self) -> dict[str, Any]:
        ticks = self.ticks
        signals, commanded = ticks[0].drained.signals, ticks[0].command.action
        sent = [t.drained.sent for t in ticks]
        return {
            "achieved": self.achieved,
            "captured": {n: _joined([t.drained.signals[n].value for t in ticks]) for n in signals},
            "captured_ns": {
                n: _joined([t.drained.signals[n].t_ns for t in ticks]) for n in signals
            },
            "commanded": {n: np.stack([t.command.action[n] for t in ticks]) for n in commanded},
            "sent": {n: _joined([s.action[n] for s in sent]) for n in sent[0].action},
            "progress": np.array([t.outcome.progress for t in ticks]),
            "reward": np.array([t.outcome.reward for t in ticks]),
            "outcome": self.outcome,
        }


@pytest.mark.parametrize("name", WORLDS)
def test_an_episode_goes_as_before(name: str, golden: Golden) -> None:
    family = name.partition("/")[0]
    if family in OPTIONAL and importlib.util.find_spec(family) is None:
        pytest.skip(f"{family} is not installed (an extra)")
    world, watching = make_world(name), Watching()
    agent: Any
    if name.startswith(CIRCLED):
        agent = Circling(world.spec)
    else:
        kind = "play" if family == "ogbench" else "scripted"
        agent = build_operator(world, kind, NOISE)
    start = world.sample_condition(SEED)
    ticks = BRIEF_TICKS if name.startswith(BRIEF) else TICKS
    run_episode(world, agent, None, [watching], start, max_steps=ticks)
    world.close()
    found = {"start": start, **watching.told()}
    golden.check(f"worlds/{name.replace('/', '-')}", found, rtol=RTOL, rests_on=WORLDS[name])


def _joined(parts: list[Any]) -> Any:
    return np.concatenate(parts)
