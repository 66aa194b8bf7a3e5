"""Asks a policy what it would do, while the arm stands."""

from __future__ import annotations

import dataclasses
import time

import numpy as np

from hardware.env.real_env import RealEnv
from hardware.env.shadow_env import ShadowEnv
from robolearn.agents.chunk import policy_input
from robolearn.contracts import Agent
from robolearn.errors import InferenceError
from robolearn.operations.deploy.policy import SpecInference
from robolearn.operations.deploy.result import Watched
from robolearn.runtime import run_episode
from robolearn.types import Condition

_ANSWER_S = 10.0


def first_action(
    env: RealEnv, inference: SpecInference, condition: Condition, instruction: str
) -> Watched:
    """One answer about what is seen now; InferenceError when none comes."""
    asked = policy_input([env.watch(condition)], inference.spec, condition.seed)
    inference.submit(0, dataclasses.replace(asked, task=(instruction,)))
    deadline = time.monotonic() + _ANSWER_S
    while (reply := inference.poll(0, time.monotonic_ns())) is None:
        if time.monotonic() > deadline:
            raise InferenceError(f"the policy did not answer within {_ANSWER_S:g} s")
        time.sleep(0.002)
    return Watched(first_action=tuple(round(float(v), 4) for v in reply.actions[0, 0, 0]))


def shadow(
    env: RealEnv, agent: Agent, inference: SpecInference, condition: Condition, max_steps: int
) -> Watched:
    """An episode on live observations; nothing is sent."""
    watching = ShadowEnv(env)
    result = run_episode(watching, agent, inference, [], condition, max_steps=max_steps)
    sizes = [float(np.linalg.norm(d)) for d in watching.deviations]
    return Watched(median=float(np.median(sizes)), max=max(sizes), ticks=result.steps)
