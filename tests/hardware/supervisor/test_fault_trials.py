"""A few of the randomised fault trials; all of them with ``-m slow`` (see ``fault_trials.py``)."""

import numpy as np
import pytest

from hardware.drivers.fakes.robot import FakeFault
from hardware.supervisor.link import Cause, Mode
from tests.hardware.fault_tally import Tally
from tests.hardware.fault_trials import agent_trials, link_trial, run
from tests.hardware.real_cell import prompt_lab
from tests.hardware.supervisor.test_supervisor_joints import READY, UR, within
from tests.hardware.workcell import Cell

# What a busy test machine may add to the time that a controller of its own needs.
PATIENCE_S = 1.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with prompt_lab(tmp_path_factory.mktemp("lab"), 32, 30132) as made:
        yield made


@pytest.mark.parametrize(
    "faults", [["nan", "far", "shape", "stale", "killed"], ["infinite", "silent", "hung"]]
)
def test_a_broken_agent_leaves_the_arm_at_rest_within_its_limits(lab, faults):
    trials = agent_trials(lab, faults, seed=len(faults), patience_s=PATIENCE_S)
    assert [t.fault for t in trials] == faults
    assert [t.wrong for t in trials] == [""] * len(faults)


@pytest.mark.parametrize("fault", ["drop", "garbage", "hang"])
def test_a_broken_link_leaves_the_arm_at_rest(tmp_path, fault):
    tally = Tally()
    with prompt_lab(tmp_path, 33, 30133) as lab:
        # As in a long run: a trial that a busy machine ended before its fault is made again.
        while not tally.real and len(tally.trials) < 3:
            trial = link_trial(lab, fault, 0.2, moving=True, patience_s=PATIENCE_S)
            tally.trials.append(trial)
    assert [t.wrong for t in tally.trials if t.wrong] == []
    assert tally.real, tally.text()
    assert 0.02 < trial.rest_s < trial.allowed_s + PATIENCE_S
    assert trial.error


@pytest.mark.parametrize("seed", range(20))
def test_randomised_faults_in_joint_space_never_send_an_unsafe_set_point(seed):
    rng = np.random.default_rng(seed)
    cell = Cell(recipe=UR, q=READY + rng.uniform(-0.2, 0.2, 6))
    cell.follow()
    for _ in range(3):
        kind = rng.integers(6)
        value = READY + rng.uniform(-0.6, 0.6, 6)
        if kind == 0:
            value = rng.choice([np.nan, np.inf, 1e300, -9.0], 6)
        due = cell.now_ns + round(rng.normal(0, 0.2) * 1e9) if kind == 1 else None
        plan = rng.choice([0.3, np.nan, 5.0], (4, 6)) if kind == 2 else ()
        cell.command(value, plan=plan, due_ns=due)
        cell.run(rng.uniform(0.02, 0.2) if kind == 3 else 0.1)
    fault = int(rng.integers(1, 8))
    if fault == 5:
        cell.inbox.closed = Cause.AGENT_DEAD
    elif fault == 6:
        cell.robot.tool_force_n = 200.0
    elif fault == 7:
        cell.robot.push = np.full(6, 0.4)
    else:
        cell.robot.fault = FakeFault(fault)
    cell.command(READY)
    cell.run(0.35)
    assert cell.mode is Mode.STOPPED
    assert cell.robot.stops == 1
    within(cell)
    model = UR.guard(500.0).model
    assert min(model.distance(q) for _, q in cell.robot.sent[::5]) > 0.003
    cell.close()


@pytest.mark.slow
def test_five_hundred_agent_trials():
    tally = run("agent", 500)
    print(tally.text())
    assert [t.wrong for t in tally.trials if t.wrong] == []


@pytest.mark.slow
def test_two_hundred_link_trials():
    tally = run("link", 200)
    print(tally.text())
    assert [t.wrong for t in tally.trials if t.wrong] == []
