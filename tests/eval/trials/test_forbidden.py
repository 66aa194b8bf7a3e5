"""A region that a suite forbids: what trials say of it, and what it changes besides."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from eval.summary import summarize
from eval.trials.instruments import FORBIDDEN, RegionCounter
from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
from eval.trials.suites import ConditionConfig, SuiteConfig, load_suite, make_suite, suite_yaml
from eval.trials.table import TrialStore
from robolearn.errors import ConfigError
from robolearn.pusht import TOOL
from robolearn.region import Region
from robolearn.runtime import EpisodeRun, run_lockstep
from tests.eval.mocks import BuildEnv, BuildPolicy, conditions

LEFT = Region(TOOL, low=(0.0,), high=(0.25,), index=(0,))
FLOW = PolicyEntry("flow", "h-flow", BuildPolicy())
A = WorldEntry("a", "w-a", "mock 1", BuildEnv("a"))
OPTIONS = Options(suite="s@1", task="pusht", max_steps=30, batch=4, code="k")


def test_every_trial_says_how_long_it_was_there(tmp_path: Path) -> None:
    starts = conditions(6)
    with TrialStore(tmp_path / "a") as store:
        plain = evaluate((FLOW,), (A,), {"a": starts}, store, OPTIONS)
    with TrialStore(tmp_path / "b") as store:
        options = dataclasses.replace(OPTIONS, forbidden=LEFT)
        told = evaluate((FLOW,), (A,), {"a": starts}, store, options)
    assert all(FORBIDDEN not in r.metrics for r in plain)
    shares = [r.metrics[FORBIDDEN] for r in told]
    assert 0.0 < float(np.mean(shares)) < 1.0
    assert [r.score for r in told] == [r.score for r in plain]
    assert summarize(told).measures[FORBIDDEN].value == pytest.approx(float(np.mean(shares)))
    assert FORBIDDEN not in summarize(plain).measures


def test_a_region_belongs_to_the_suite(tmp_path: Path) -> None:
    starts = (ConditionConfig("c0", 1, {TOOL: (0.1, 0.2)}),)
    plain = SuiteConfig("s", "reach", 5, 1, "w", 1, "p", starts)
    told = dataclasses.replace(plain, forbidden=LEFT)
    # A suite that forbids nothing keeps the hash that it always had.
    assert make_suite(plain).hash != make_suite(told).hash
    path = tmp_path / "suite.yaml"
    path.write_text(suite_yaml(told), encoding="utf-8")
    assert load_suite(path).config == told
    assert load_suite(path).hash == make_suite(told).hash
    assert "forbidden" not in suite_yaml(plain)


def test_a_signal_that_is_not_shown_is_explained() -> None:
    counter = RegionCounter(Region("arm/joint_position", low=(0.0,), high=(1.0,)))
    env = BuildEnv("a")()
    agent = FLOW.execution.agent(BuildPolicy()().spec, env.spec, "x")
    run = EpisodeRun(
        env, agent, None, [counter], conditions(1)[0], max_steps=3, task="pusht", env_name="a"
    )
    with pytest.raises(ConfigError, match="which the world does not show"):
        run_lockstep([run])
