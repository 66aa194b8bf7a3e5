"""What was planned is refused once something is not as it was, with the difference, by alias."""

import dataclasses
import logging
import shutil
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest

from eval.blinded.plan import read_locked
from eval.rule import Rule
from eval.trials.table import TrialStore
from robolearn.agents.execution import Execution
from robolearn.cli.main import main
from robolearn.errors import ConfigError, InferenceError, StoreLockedError
from robolearn.inference.server import PolicyServer, ServeConfig
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.trial import on_cell
from robolearn.operations.trial.on_cell import blinded_log, run_trials
from robolearn.operations.trial.options import DesignOptions, TrialOptions
from robolearn.operations.trial.planned import (
    draft_trials,
    lock_trials,
    open_trials,
    trials_lock,
)
from robolearn.operations.trial.session import redacted
from tests.mocks import WalkPolicy
from tests.robolearn.operations.trial.files import PLAN, RUNS, write_files

TOKEN = "a-token-for-tests-only"


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trials")
    write_files(folder, 28)
    open_trials(options(folder, full=True))
    return folder


def options(folder: Path, *, full: bool = False, **design) -> TrialOptions:
    if full:
        runs = tuple(str(folder / name) for name in RUNS)
        design = {"policies": runs, "suite": folder / "suite.yaml", **design}
    robot = folder / "cell.yaml" if full else None
    return TrialOptions(
        out=folder / "out", robot=robot, design=DesignOptions(**design), operator="me"
    )


def edited(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        ("out/plan.yaml", "seed: 0", "seed: 1", "was edited"),
        ("out/key.sealed", "Which alias", "What alias", "not the key"),
        ("out/kept/suite.yaml", "max_steps: 300", "max_steps: 299", "it was changed"),
        ("cell.yaml", "goto_speed: 2.5", "goto_speed: 2.4", "goto_speed: now 2.4"),
        ("kestrel/config.yaml", "kestrel", "gull", "config.yaml changed"),
    ],
)
def test_what_changed_is_refused_with_the_difference(planned, name, old, new, said):
    path = planned / name
    before = path.read_text()
    path.write_text(edited(before, old, new))
    try:
        with pytest.raises(ConfigError, match=said) as refused:
            open_trials(options(planned))
        words = str(refused.value)
        if name.startswith("kestrel"):
            # It is known which run that is: nothing may say what it is called here.
            assert str(planned / "kestrel") in words
            assert not any(alias in words for alias in read_locked(planned / "out").plan.aliases)
        else:
            assert not any(run in words for run in RUNS)
    finally:
        path.write_text(before)
    assert not open_trials(options(planned)).began


def test_another_design_is_refused_and_the_same_one_goes_on(planned):
    assert open_trials(options(planned, full=True, trials=1)).lab_seed is None
    with pytest.raises(ConfigError, match="trials: now 2, planned 1; repeats: now 1, planned 0"):
        open_trials(options(planned, trials=2, repeats=1))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--lab-seed 3 --seed 1 --lead-ticks 2 --alpha 0.1 --no-realtime-chunking --trials 1", ""),
        ("--seed 0", "seed: now 0, planned 1"),
        ("--seed=0", "seed: now 0, planned 1"),
        ("--lab-seed 0", "lab_seed: now 0, planned 3"),
        ("--no-start-lab", "start_lab: now False, planned True"),
        ("--lead_ticks 1", "execution.lead_ticks: now 1, planned 2"),
        ("--realtime-chunking", "execution.realtime_chunking: now True, planned False"),
        ("--alpha 0.05", "rule.alpha: now 0.05, planned 0.1"),
        ("--rule fixed --by success", "rule.by: now 'success', planned 'score'"),
        ("--repeats 0", "repeats: now 0, planned 1"),
        ("--score task", "score: now 'task', planned 'operator'"),
        ("--max-steps 300", "max_steps: now 300, planned 4"),
        ("--no-ab --runtime torch --guidance auto", ""),
        ("--ab", "pairs: now True, planned False"),
    ],
)
def test_what_is_asked_for_again_has_to_be_what_was_planned(locked, words, said, monkeypatch):
    """Options with their usual value, and those of a lab, went on with a plan of something else."""
    monkeypatch.chdir(locked)

    def begun(asked, operator):
        open_trials(asked)
        raise ConfigError("goes on")

    monkeypatch.setattr(on_cell, "run_trials", begun)
    err = StringIO()
    with redirect_stderr(err):
        assert main(["trial", "--out", "out", "--yes", *words.split()]) == 2
    assert (said or "goes on") in err.getvalue()
    if said:
        assert "has a plan, which is locked: " in err.getvalue()


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    """Nothing is as usual."""
    folder = tmp_path_factory.mktemp("unusual")
    write_files(folder, 34)
    design = {
        "trials": 1,
        "repeats": 1,
        "seed": 1,
        "max_steps": 4,
        "score": "operator",
        "rule": Rule(by="score", alpha=0.1),
        "execution": Execution(lead_ticks=2),
        "start_lab": True,
        "lab_seed": 3,
    }
    open_trials(options(folder, full=True, **design))
    return folder


def test_a_run_may_be_moved(planned, tmp_path):
    moved = tmp_path / "elsewhere"
    shutil.copytree(planned / "osprey", moved)
    found = open_trials(options(planned, policies=(str(moved), str(planned / "kestrel"))))
    assert str(moved) in found.sources.values()
    (moved / "config.yaml").write_text("policy: gull")
    with pytest.raises(ConfigError, match="none of those that were planned"):
        open_trials(options(planned, policies=(str(moved),)))


def test_runs_that_are_gone_are_named_without_their_aliases(planned):
    plan = read_locked(planned / "out").plan
    for run in RUNS:
        (planned / run).rename(planned / f"{run}-away")
    try:
        with pytest.raises(ConfigError, match="is not where it was") as refused:
            open_trials(options(planned))
    finally:
        for run in RUNS:
            (planned / f"{run}-away").rename(planned / run)
    words = str(refused.value)
    places = [words.index(str(planned / run)) for run in sorted(RUNS)]
    assert places == sorted(places)
    assert not any(alias in words for alias in plan.aliases)


def test_a_second_process_is_refused(planned):
    second = trials_lock(planned / "out")
    with trials_lock(planned / "out"), pytest.raises(StoreLockedError, match="the trials in"):
        second.__enter__()


def test_a_folder_without_a_plan_says_what_is_needed(tmp_path):
    with pytest.raises(ConfigError, match=r"give a cell .*, a suite and two or more policies"):
        open_trials(options(tmp_path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "has no plan yet: give a cell"),
        (["--robot", "cell.yaml"], "has no plan yet: give a cell"),
        ([*PLAN[:-2], "--policies", "kestrel"], "has no plan yet: give a cell"),
        ([*PLAN[:-2], "--policies", "kestrel", "gull"], "gull"),
        ([*PLAN[:-2], "--suite", "nowhere.yaml"], "nowhere.yaml"),
        ([*PLAN[:-2], "--repeats", "9"], "repeats must be 0 to 1"),
        ([*PLAN[:-2], "--rubric", "in place"], "that needs a terminal"),
        ([*PLAN[:-2], "--score", "operator"], "whose keys can be read"),
    ],
)
def test_a_call_that_is_refused_leaves_no_folder(tmp_path, monkeypatch, capsys, words, said):
    write_files(tmp_path, 35)
    monkeypatch.chdir(tmp_path)
    assert main(["trial", "--yes", *words, "--out", "typo/trials"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("typo").exists()


def test_where_trials_have_names_no_plan_is_locked(planned, tmp_path):
    """It was, and refused from then on."""
    for name in (*RUNS, "suite.yaml", "cell.yaml"):
        copy = shutil.copytree if (planned / name).is_dir() else shutil.copy
        copy(planned / name, tmp_path / name)
    with TrialStore(tmp_path / "out"):
        pass
    with pytest.raises(ConfigError, match="a table of trials with the policies' names"):
        open_trials(options(tmp_path, full=True))
    assert not (tmp_path / "out" / "plan.yaml").exists()


def test_what_somebody_planned_meanwhile_is_not_written_over(tmp_path):
    write_files(tmp_path, 36)
    asked = options(tmp_path, full=True)
    late = draft_trials(asked)
    first = open_trials(asked)
    with pytest.raises(ConfigError, match="planned trials there meanwhile"):
        lock_trials(late)
    again = open_trials(asked)
    assert (again.locked, again.key) == (first.locked, first.key)
    assert dataclasses.replace(again, began=True) == first


def test_what_is_logged_names_no_policy(planned, caplog):
    trials = open_trials(options(planned))
    with blinded_log(trials):
        logging.getLogger("worker").warning("'%s' is gone", trials.key.policies[0].source)
    assert "'(policy)' is gone" in caplog.text
    assert not any(run in caplog.text for run in RUNS)


def test_runs_that_were_moved_are_not_named_by_where_they_are_now(tmp_path):
    """The key only knows what they were called when they were planned."""
    write_files(tmp_path, 30)
    open_trials(options(tmp_path, full=True))
    now = [tmp_path / "elsewhere" / name / "final" for name in ("bc_baseline", "diffusion_best")]
    for run, place in zip(RUNS, now, strict=True):
        place.parent.mkdir(parents=True)
        (tmp_path / run).rename(place)
    trials = open_trials(options(tmp_path, policies=tuple(map(str, now))))
    for run, place in zip(RUNS, now, strict=True):
        for name in (place, place.relative_to(tmp_path), place.parent.name, tmp_path / run, run):
            shown = str(redacted(trials, InferenceError(f"the worker of '{name}' is gone")))
            assert not any(word in shown for word in (*RUNS, "baseline", "diffusion", "final"))
            assert "the worker of '" in shown


def test_what_is_logged_with_its_traceback_names_no_policy(planned, caplog):
    trials = open_trials(options(planned))
    with blinded_log(trials):
        try:
            raise ValueError(trials.key.policies[0].source)
        except ValueError:
            logging.getLogger("worker").exception("no room")
    assert "no room" in caplog.text
    assert not any(run in caplog.text for run in RUNS)


def test_errors_of_any_kind_name_no_policy(planned, monkeypatch):
    source = open_trials(options(planned)).key.policies[0].source

    def locked(*_):
        raise ValueError(f"no room for {source}")

    monkeypatch.setattr(on_cell, "StoreLock", locked)
    with pytest.raises(RuntimeError, match=r"ValueError: no room for \(policy\)$"):
        run_trials(options(planned), Unattended(agreed=True))


class Nobody(Unattended):
    """Answers nothing."""

    answers = False


def test_policies_on_servers_take_part_and_are_not_exchanged(tmp_path, monkeypatch):
    """Somebody else's policies; where the cell would be opened, the test ends."""
    monkeypatch.setenv("ROBOLEARN_TOKEN", TOKEN)

    def opened(*_):
        raise ConfigError("both policies are here; the cell would be opened now")

    monkeypatch.setattr(on_cell, "open_cell", opened)
    write_files(tmp_path, 29)

    def serving(name: str, digest: str, port: int = 0) -> PolicyServer:
        config = ServeConfig(token=TOKEN, port=port)
        return PolicyServer(WalkPolicy(), config, name, digest)

    def refusal(said: str, **design) -> None:
        asked = TrialOptions(
            out=tmp_path / "out",
            robot=tmp_path / "cell.yaml",
            design=DesignOptions(**design),
            operator="me",
        )
        with pytest.raises(ConfigError, match=said) as refused:
            run_trials(asked, Nobody(agreed=True))
        assert not any(word in str(refused.value) for word in ("gull", "theirs", "ws://"))

    first, second = serving("gull", "hash-of-gull"), serving("theirs", "hash-of-theirs")
    port = int(second.url.rpartition(":")[2])
    try:
        policies = (first.url, second.url)
        refusal("would be opened", policies=policies, suite=tmp_path / "suite.yaml")
        key = open_trials(options(tmp_path)).key
        assert {p.name.partition("+")[0] for p in key.policies} == {"gull", "theirs"}
        second.close()
        second = serving("theirs", "hash-of-another", port)
        refusal("serves another policy than was planned")
        second.close()
        second = serving("osprey", "hash-of-theirs", port)
        refusal("serves another name than was planned")
        second.close()
        second = serving("theirs", "hash-of-theirs", port)
        refusal("would be opened")
    finally:
        first.close()
        second.close()


def test_a_length_that_is_not_the_suites_is_in_the_policies_names(tmp_path, planned):
    for name in (*RUNS, "suite.yaml", "cell.yaml"):
        copy = shutil.copytree if (planned / name).is_dir() else shutil.copy
        copy(planned / name, tmp_path / name)
    found = open_trials(options(tmp_path, full=True, max_steps=4))
    for policy in found.key.policies:
        assert policy.name.endswith(",max_steps=4")
        assert policy.hash.endswith(",max_steps=4")
