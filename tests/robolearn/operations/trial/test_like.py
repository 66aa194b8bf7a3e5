"""Simulated trials begin where real ones really began, and pair up with them."""

import dataclasses
import json
from collections import Counter

import numpy as np
import pytest

from eval.trials.suites import load_suite
from eval.trials.table import TrialStore, read_trials
from robolearn.agents.execution import Execution
from robolearn.cli.main import main
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.inference.server import PolicyServer, ServeConfig
from robolearn.operations.builders import executed_as
from robolearn.operations.deploy.result import DOCUMENT
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.suites import aside
from robolearn.operations.trial import like as module
from robolearn.operations.trial.like import LikeOptions, LikeResult, evaluate_like
from robolearn.operations.trial.start_noise import AS_SAID, StartNoise
from robolearn.operations.trust.trials import trust_of_trials
from tests.episodes import small_episode
from tests.hardware.lab import CONFIG
from tests.mocks import WalkPolicy
from tests.robolearn.operations.trial.toy import plan_toy

SUITE = CONFIG.parents[1] / "eval" / "pusht.yaml"


@pytest.fixture
def short(monkeypatch):
    """Episodes of three steps."""
    options = module.rollout_options
    monkeypatch.setattr(
        module, "rollout_options", lambda *a: dataclasses.replace(options(*a), max_steps=3)
    )


def real_trials(folder, suite, shift=0.004, number=0, errors=None):
    """Trials by the expert on a robot that were placed a little off; one start was tried twice."""
    simulated = by_the_expert()
    with TrialStore(folder) as table:
        for i, condition in enumerate((*suite.select(2), suite.select(1)[0])):
            x, y, yaw = condition.poses["block/pose"]
            achieved = {"block/pose": (x + shift, y, yaw)}
            more = {"env": "cell", "env_hash": "c", "engine": "robot", "kind": "robot"}
            more |= {"code": "", "libraries": "", "achieved": achieved, "episode": f"e{number}-{i}"}
            more |= {"standard_errors": errors or {}}
            table.add([dataclasses.replace(simulated, condition=condition.id, **more)])


def by_the_expert():
    """A record of the expert, as simulation calls it."""
    from robolearn.operations.evaluate import policy_entries
    from robolearn.types import TrialRecord

    suite = load_suite(SUITE)
    entry = policy_entries(["scripted"], EvaluateOptions(), module.AS_TRAINED, suite, {})[0]
    return TrialRecord(
        *(entry.name, entry.hash, "", "", "", "robot", "", 0, False, 0.0, 0.0, 0.0, 3, 0.3),
        *("time_limit", "", suite.label),
    )


@pytest.fixture
def drawn(monkeypatch):
    """How often starts were drawn, by what they were drawn as."""
    counts, seed_of = Counter(), module.child_seed

    def counted(seed, what, *more):
        counts[what] += 1
        return seed_of(seed, what, *more)

    monkeypatch.setattr(module, "child_seed", counted)
    return counts


def test_starts_are_the_measured_ones_and_pair_up(tmp_path, short, drawn):
    suite = load_suite(SUITE)
    real_trials(tmp_path / "real", suite)
    options = EvaluateOptions(suite=SUITE, worlds=("gym_pusht",), workers=0)
    how = LikeOptions(rollouts=2, noise=StartNoise(position_m=0.0005))
    found = evaluate_like(["scripted"], tmp_path / "real", tmp_path / "sim", options, how=how)
    assert (len(found.trials), found.real, found.alone) == (6, 3, ())
    # As what no world is asked for, none are.
    assert drawn == {module.SIMULATED: 6}
    wanted = {c.id: c.poses["block/pose"] for c in suite.select(2)}
    for r in found.trials:
        offset = np.array(r.achieved["block/pose"][:2]) - wanted[r.condition][:2]
        assert np.abs(offset - [0.004, 0.0]).max() < 0.003
        assert r.variant == ""
    assert len({r.seed for r in found.trials}) == 6
    # Nothing is run twice.
    assert evaluate_like(
        ["scripted"], tmp_path / "real", tmp_path / "sim", options, how=how
    ).trials == read_trials(tmp_path / "sim")
    trust = trust_of_trials([tmp_path / "real"], [tmp_path / "sim"])
    assert trust.report.tasks[0].agreement[0].conditions == 2


def test_a_repetition_in_the_reality_has_noise_of_its_own(tmp_path, short, drawn):
    """Else a policy's chunks would be drawn alike in simulation and in the repetition, which sets
    the ceiling that simulation is judged against; simulators are compared under the same noise.
    """
    suite = load_suite(SUITE)
    real_trials(tmp_path / "real", suite)
    records = [dataclasses.replace(r, env="gym_pusht") for r in read_trials(tmp_path / "real")]
    with TrialStore(tmp_path / "world") as table:
        table.add(records)
    worlds = ("gym_pusht", "pusht_reference", "pusht_ur5e")
    options = EvaluateOptions(suite=SUITE, worlds=worlds, workers=0)
    how = LikeOptions(rollouts=2, real_world="gym_pusht")
    found = evaluate_like(["scripted"], tmp_path / "world", tmp_path / "out", options, how=how)
    seeds = {w: {r.seed for r in found.trials if r.env == w} for w in worlds}
    assert [len(seeds[w]) for w in worlds] == [6, 6, 6]
    assert drawn == {module.SIMULATED: 6, module.REPEATED: 6}
    assert seeds["pusht_reference"] == seeds["pusht_ur5e"]
    assert not seeds["gym_pusht"] & seeds["pusht_reference"]


@pytest.fixture
def still(monkeypatch):
    """Nothing is simulated: what is asked for is told, by condition."""
    asked = {}

    def evaluate(policies, worlds, conditions, *more):
        asked.clear()
        for condition in (c for group in conditions.values() for c in group):
            asked.setdefault(condition.id, []).append(condition.poses["block/pose"])
        return []

    monkeypatch.setattr(module.rollouts, "evaluate", evaluate)
    return asked


def test_starts_are_drawn_by_what_the_cell_says_of_its_tracker(tmp_path, still):
    """Two constants stood for every tracker: one of 4 mm was simulated with .3 mm."""
    suite = load_suite(SUITE)
    said = {"block/pose": (0.004, 0.0)}
    real_trials(tmp_path / "real", suite, errors=said)
    real_trials(tmp_path / "silent", suite)
    options = EvaluateOptions(suite=SUITE, worlds=("gym_pusht",), workers=0)

    def spread(real, noise=AS_SAID, out="sim"):
        how = LikeOptions(rollouts=60, noise=noise)
        found = evaluate_like(["scripted"], tmp_path / real, tmp_path / out, options, how=how)
        return np.std(still["pusht-0001"], axis=0), found.drawn

    (x, y, yaw), words = spread("real")
    assert (x, y) == pytest.approx((0.004, 0.004), rel=0.3)
    assert yaw == pytest.approx(0.0, abs=1e-12)
    assert words.endswith("with 4 mm (said by the cell) and 0 mrad (said by the cell)")
    # Who asks for something else gets it; what is not asked for stays the cell's.
    (x, _, yaw), words = spread("real", StartNoise(position_m=0.001), "b")
    assert (x, yaw) == pytest.approx((0.001, 0.0), rel=0.3, abs=1e-12)
    assert words.endswith("with 1 mm and 0 mrad (said by the cell)")
    (x, _, yaw), words = spread("silent", out="c")
    assert (x, yaw) == pytest.approx((0.0003, 0.0017), rel=0.3)
    assert words.endswith("with 0.3 mm (assumed) and 1.7 mrad (assumed)")
    # A folder that was begun by one cell's word does not go on by another's, nor by none.
    with pytest.raises(ConfigError, match=r"was measured with errors of \{\}, now \{'block/pose'"):
        spread("real", out="c")
    with pytest.raises(ConfigError, match=r"errors of \{'block/pose': \(0.004, 0.0\)\}, now \{\}"):
        spread("silent")
    # One that was begun before cells said it goes on where they still do not.
    begun = json.loads((tmp_path / "c" / "like.json").read_text())
    del begun["errors"]
    (tmp_path / "c" / "like.json").write_text(json.dumps(begun))
    spread("silent", out="c")
    del begun["starts"]
    (tmp_path / "c" / "like.json").write_text(json.dumps(begun))


def test_cells_that_say_different_things_are_told_apart(tmp_path, still):
    suite = load_suite(SUITE)
    real_trials(tmp_path / "real", suite, errors={"block/pose": (0.002, 0.01)})
    real_trials(tmp_path / "real", suite, number=1)
    options = EvaluateOptions(suite=SUITE, worlds=("gym_pusht",), workers=0)
    how = LikeOptions(rollouts=1)
    found = evaluate_like(["scripted"], tmp_path / "real", tmp_path / "sim", options, how=how)
    assert found.drawn == (
        "starts are drawn about the measured ones: block/pose with 2 mm (said by the cell) and 10"
        " mrad (said by the cell); block/pose with 0.3 mm (assumed) and 1.7 mrad (assumed)"
    )


def test_a_folder_goes_on_with_the_same_starts_alone(tmp_path, short):
    """Trials from other starts, or with other noise, had passed for those that were asked for."""
    suite, out = load_suite(SUITE), tmp_path / "sim"
    real_trials(tmp_path / "real", suite)
    real_trials(tmp_path / "moved", suite, shift=0.01)
    real_trials(tmp_path / "more", suite)
    real_trials(tmp_path / "more", suite, number=1)
    options = EvaluateOptions(suite=SUITE, worlds=("gym_pusht",), workers=0)
    how = LikeOptions(rollouts=1)

    def simulated(real, how=how):
        return len(evaluate_like(["scripted"], tmp_path / real, out, options, how=how).trials)

    assert simulated("real") == 3
    for real, odd, said in (
        ("moved", how, r"trial 1 of pusht-0000 began at .*; give another folder"),
        (
            "real",
            dataclasses.replace(how, noise=StartNoise(position_m=0.01)),
            r"noise of positions \[m\] 0\.0003, no",
        ),
        (
            "real",
            dataclasses.replace(how, noise=StartNoise(angle_rad=0.0)),
            r"noise of angles \[rad\] 0\.0017, now",
        ),
    ):
        with pytest.raises(ConfigError, match=said):
            simulated(real, odd)
    assert len(read_trials(out)) == 3
    # More trials from the same starts, and more rollouts, are more of the same.
    assert simulated("more") == 6
    assert simulated("real", dataclasses.replace(how, rollouts=2)) == 6
    assert len(read_trials(out)) == 9
    (out / "like.json").write_text("[]")
    with pytest.raises(DataError, match=r"like\.json' must hold a JSON object"):
        simulated("real")


def test_length_and_instruction_are_those_of_the_plan(tmp_path, monkeypatch):
    """Real trials were cut after eight steps; simulated ones went on for the suite's 300."""
    suite = load_suite(SUITE)
    plan_toy(tmp_path / "real", instruction="push it")
    real_trials(tmp_path / "real", suite)
    # These were tried under no plan; that they have to be is tested beside the blinded trials.
    monkeypatch.setattr(module, "require_as_tried", lambda folder, trials: None)
    told, run = [], module.rollouts.evaluate

    def evaluate(policies, worlds, *more):
        told.extend(w.instruction for w in worlds)
        return run(policies, worlds, *more)

    monkeypatch.setattr(module.rollouts, "evaluate", evaluate)
    options = EvaluateOptions(suite=SUITE, worlds=("gym_pusht",), workers=0)
    how = LikeOptions(rollouts=1)
    found = evaluate_like(["scripted"], tmp_path / "real", tmp_path / "sim", options, how=how)
    assert {r.steps for r in found.trials} == {8}
    assert told == ["push it"]


def test_what_cannot_be_paired_is_refused(tmp_path):
    suite = load_suite(SUITE)
    real_trials(tmp_path / "real", suite)
    options = EvaluateOptions(suite=SUITE, worlds=("gym_pusht",), workers=0)
    with pytest.raises(DataError, match=r"no real trial is of 'scripted-0\.5'"):
        evaluate_like(["scripted:0.5"], tmp_path / "real", tmp_path / "sim", options)
    odd = dataclasses.replace(options, conditions=5)
    with pytest.raises(ConfigError, match="leave plan, conditions and repeat out"):
        evaluate_like(["scripted"], tmp_path / "real", tmp_path / "sim", odd)


def as_deployed(folder, suite, *executions, **asked):
    """Trials on a cell as a deployment of a served policy leaves them, an execution each."""
    (folder / DOCUMENT).parent.mkdir()
    (folder / DOCUMENT).write_text("{}")
    store = EpisodeStore.create(folder / "store")
    for i, how in enumerate(executions):
        plain = small_episode(i)
        kept = {"execution": dataclasses.asdict(how), **asked}
        told = {"max_steps": suite.config.max_steps, "instruction": suite.config.instruction}
        apart = aside(suite.config, **{**told, **asked})
        with store.writer() as writer:
            writer.append(
                dataclasses.replace(plain, meta=dataclasses.replace(plain.meta, provenance=kept))
            )
        name, digest = executed_as("walk", "hash-of-walk", execution=how, aside=apart)
        condition = suite.select(2)[i]
        told = {"policy": name, "policy_hash": digest, "condition": condition.id}
        told |= {"env": "cell", "env_hash": "c", "engine": "robot", "kind": "robot", "code": ""}
        achieved = {"block/pose": condition.poses["block/pose"]}
        with TrialStore(folder) as table:
            table.add(
                [dataclasses.replace(by_the_expert(), **told, achieved=achieved, episode=f"e{i}")]
            )


def test_a_deployment_says_itself_how_its_policy_was_executed(tmp_path, short, monkeypatch):
    """The policy runs on a server, as it did on the cell."""
    token = "token-of-the-test"
    monkeypatch.setenv("ROBOLEARN_TOKEN", token)
    suite, ahead = load_suite(SUITE), Execution(lead_ticks=1, realtime_chunking=True)
    as_deployed(tmp_path / "real", suite, ahead, ahead)
    as_deployed(tmp_path / "mixed", suite, ahead, Execution(execute=2))
    as_deployed(tmp_path / "short", suite, ahead, max_steps=2, instruction="push it")
    options = EvaluateOptions(suite=SUITE, worlds=("gym_pusht",), workers=0)
    server = PolicyServer(WalkPolicy(), ServeConfig(token=token), "walk", "hash-of-walk")
    try:
        how = LikeOptions(rollouts=1)
        found = evaluate_like([server.url], tmp_path / "real", tmp_path / "sim", options, how=how)
        short = evaluate_like([server.url], tmp_path / "short", tmp_path / "t", options, how=how)
        with pytest.raises(DataError, match="the same options of execution"):
            evaluate_like([server.url], tmp_path / "mixed", tmp_path / "s", options, how=how)
    finally:
        server.close()
    assert {r.policy for r in found.trials} == {"walk+lead_ticks=1,realtime=True"}
    assert len(found.trials) == 2
    ((name, steps),) = {(r.policy, r.steps) for r in short.trials}
    assert steps == 2
    assert name.startswith("walk+lead_ticks=1,realtime=True,max_steps=2,instruction=")


def test_the_command_takes_servers_and_worlds_that_stand_for_reality(tmp_path, monkeypatch, capsys):
    asked = []

    def like(runs, folder, out, options, execution, how, show):
        asked.append((tuple(map(str, runs)), how))
        return LikeResult((), 0, (), "")

    monkeypatch.setattr(module, "evaluate_like", like)
    words = ["evaluate", "--like", str(tmp_path), "--worlds", "gym_pusht", "--out"]
    words.append(str(tmp_path / "sim"))
    reality = "reality/pusht,seed=3"
    assert main([*words, "--server", "ws://host:1", "--real-world", reality]) == 0
    assert asked == [(("ws://host:1",), LikeOptions(real_world=reality))]
    assert f"--real-world {reality} --sim" in capsys.readouterr().out
    assert main(words) == 2
    assert "give the policies" in capsys.readouterr().err
    assert main(["evaluate", "scripted", "--real-world", reality]) == 2
    assert "which is missing" in capsys.readouterr().err
