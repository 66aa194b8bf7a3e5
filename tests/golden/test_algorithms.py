"""Every registered policy: the figures of three updates, and what it then answers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from policies.critics.denoising.gate import GateConfig
from policies.nets.bisimulation import BisimulationConfig
from policies.online_rl.smooth import SmoothConfig
from policies.registry import POLICIES, load_policy
from robolearn.contracts import Policy
from robolearn.training.loop import FitConfig
from robolearn.types import PolicyOutput
from tests.golden.golden import Golden
from tests.policies.every import SEEING, Family

RTOL = 1e-4
# What edits gain is a difference of values that are nearly equal.
COARSE = {"dice_rl": 1e-3}
RESTS_ON = ("torch", "diffusers")
FIT = FitConfig(steps=3, warmup=1, log_every=1)
# What metrics.jsonl says of the machine, not of the learning.
TIMES = ("seconds", "cpu_seconds", "data_seconds")
# As iql_rerank was.
RECORDED: dict[str, Any] = {
    "backup": "expectile",
    "bounds": None,
    "discount": 0.99,
    "lr": 1e-3,
    "tau": 0.01,
    "candidates": 4,
    "margin": 0.02,
}
# Algorithms of practice that are a switch of another one.
SWITCHES: dict[str, tuple[str, dict[str, Any]]] = {
    "reinflow-gate": ("reinflow", {"gate": GateConfig(every=1, critics_first=1)}),
    "dppo-gate": ("dppo", {"gate": GateConfig(every=1, critics_first=1)}),
    "sac-smooth": ("sac", {"smooth": SmoothConfig()}),
    "cql-calibrated": ("cql", {"calibrated": True}),
    "residual-sac": ("residual", {"kind": "sac"}),
    "adversarial-constant": ("adversarial", {"kind": "constant"}),
}
GUIDANCE = ("jacobian", "identity", "hard")


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_it_learns_and_answers_as_before(name: str, tmp_path: Path, golden: Golden) -> None:
    found = learned(Family(tmp_path), name)
    golden.check(f"algorithms/{name}", found, rtol=COARSE.get(name, RTOL), rests_on=RESTS_ON)


@pytest.mark.parametrize("name", [*SEEING, "compose"])
def test_from_pictures_and_words_too(name: str, tmp_path: Path, golden: Golden) -> None:
    found = learned(Family(tmp_path, told=True), name)
    golden.check(f"algorithms_told/{name}", found, rtol=COARSE.get(name, RTOL), rests_on=RESTS_ON)


def test_critics_of_the_behaviour_that_was_recorded(tmp_path: Path, golden: Golden) -> None:
    family = Family(tmp_path)
    run = family.run("idql", fit=FIT, **RECORDED)
    golden.check("algorithms/idql-expectile", told(run, family), rtol=RTOL, rests_on=RESTS_ON)


@pytest.mark.parametrize("switch", sorted(SWITCHES))
def test_switches_of_practice(switch: str, tmp_path: Path, golden: Golden) -> None:
    name, settings = SWITCHES[switch]
    family = Family(tmp_path)
    run = family.run(name, fit=FIT, **settings)
    golden.check(f"algorithms/{switch}", told(run, family), rtol=RTOL, rests_on=RESTS_ON)


def test_histories_apart_by_bisimulation(tmp_path: Path, golden: Golden) -> None:
    family = Family(tmp_path, told=True)
    run = family.run("iql", fit=FIT, bisimulation=BisimulationConfig(size=4, width=8))
    golden.check("algorithms/iql-bisimulation", told(run, family), rtol=RTOL, rests_on=RESTS_ON)


def test_relative_actions(tmp_path: Path, golden: Golden) -> None:
    found = learned(Family(tmp_path, actions="relative"), "flow")
    golden.check("algorithms/flow-relative", found, rtol=RTOL, rests_on=RESTS_ON)


def test_every_guidance(tmp_path: Path, golden: Golden) -> None:
    family = Family(tmp_path)
    run = family.run("flow", fit=FIT)
    found = {kind: answers(load_policy(run, guidance=kind), family) for kind in GUIDANCE}
    golden.check("algorithms/flow-guidance", found, rtol=RTOL, rests_on=RESTS_ON)


def learned(family: Family, name: str) -> dict[str, Any]:
    """Three updates, then answers by weights that are moved away from zero."""
    if name == "compose":
        return answers(family.policy(name), family)
    return told(family.run(name, fit=FIT), family)


def told(run: Path, family: Family) -> dict[str, Any]:
    """What the log says, and what the policy of a run answers."""
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    # A group that is updated now and then has no loss in some lines.
    figures = {k: [x.get(k) for x in lines] for k in lines[0] if k not in TIMES}
    return figures | answers(load_policy(run), family)


def answers(policy: Policy, family: Family) -> dict[str, Any]:
    """To the same request without a plan, and with one to continue."""
    asked = family.request(2)
    free = policy.sample(asked, 2)
    plan = free.actions[:, 0, :2] + 0.003
    held = policy.sample(dataclasses.replace(asked, prefix=plan))
    return {"free": _told(free), "held": _told(held)}


def _told(output: PolicyOutput) -> dict[str, Any]:
    return {"actions": output.actions, "scores": output.scores, **output.extras}
