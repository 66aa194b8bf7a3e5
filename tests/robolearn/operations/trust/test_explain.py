"""A world in which one parameter is wrong on purpose is told from one in which none is."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from eval.report.trust.causes import advice, causes_lines
from robolearn.cli.main import main
from robolearn.errors import ConfigError, DataError
from robolearn.operations import evaluate as evaluating
from robolearn.operations.evaluate import evaluate
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.suites import open_suite
from robolearn.operations.trial import like as liking
from robolearn.operations.trial.like import LikeOptions
from robolearn.operations.trust.explain import ExplainOptions, explain, shifts_in
from robolearn.operations.trust.trials import trust_of_trials
from tests.command_reference import help_text

SUITE = Path("configs/eval/so101_reach.yaml")
RUNS = ["scripted", "scripted:1"]
WHAT = ExplainOptions(("friction", "delay"), by="score")


@pytest.fixture
def short(monkeypatch) -> None:
    """Episodes of five steps: how far the arm comes depends on its servos and their delay."""
    for module in (evaluating, liking):
        options = module.rollout_options
        monkeypatch.setattr(
            module,
            "rollout_options",
            lambda *a, options=options: dataclasses.replace(options(*a), max_steps=5),
        )


def explained(folder: Path, reality: str):
    """What is wrong with ``so101_reach`` if ``reality`` is real."""
    options = EvaluateOptions(suite=SUITE, worlds=(reality,), conditions=8, workers=0, videos=0)
    evaluate(RUNS, folder / "real", options)
    plain = EvaluateOptions(suite=SUITE, workers=0)
    how = LikeOptions(2, real_world=reality)
    return explain(RUNS, folder / "real", "so101_reach", folder / "sim", plain, how=how, what=WHAT)


@pytest.mark.usefixtures("short")
def test_the_parameter_that_is_wrong_on_purpose_is_found(tmp_path, capsys) -> None:
    reality = "so101_reach~delay_shift=0.6"
    report = explained(tmp_path, reality)
    assert (report.verdict, report.suspects) == ("found", ("delay",))
    level = report.parameters[0].best.level
    assert level is not None
    # An arm in the air touches nothing.
    assert not report.parameters[1].best.moves
    assert level.low < 0.6 < level.high
    # The scene has no delay that could be less.
    assert list(report.left_out) == ["delay -1"]
    first = advice(report)[0]
    assert first.command == "robolearn calibrate latency --config CELL.yaml"
    # On the page of trust, in its JSON, and in its Markdown, from the trials alone.
    words = ["--real", str(tmp_path / "real"), "--real-world", reality, "--by", "score"]
    words += ["--sim", str(tmp_path / "sim"), "--sim-world", "so101_reach"]
    words += ["--causes", str(tmp_path / "sim"), "--html", str(tmp_path / "t.html")]
    assert main(["trust", *words, "--markdown", str(tmp_path / "t.md"), "--json"]) == 0
    (task,) = json.loads(capsys.readouterr().out)
    assert task["causes"]["suspects"] == ["delay"]
    assert task["causes"]["next"][0]["command"] == first.command
    for name in ("t.html", "t.md"):
        text = (tmp_path / name).read_text()
        assert "What is wrong with so101_reach?" in text
        assert first.command in text
    with pytest.raises(DataError, match="'robolearn explain' makes them"):
        trust_of_trials(
            [tmp_path / "real"], [tmp_path / "sim"], sim_world="so101_reach",
            causes=tmp_path / "real",
        )  # fmt: skip


@pytest.mark.usefixtures("short")
def test_a_scene_in_which_nothing_is_wrong_is_not_accused(tmp_path) -> None:
    # Another name for the same world: a load that weighs nothing more.
    report = explained(tmp_path, "so101_reach~friction_shift=0.1")
    assert (report.verdict, report.suspects) == ("nothing shown", ())
    assert "nothing shown" in causes_lines(report)[0]


def test_what_cannot_be_shifted_is_said(tmp_path) -> None:
    suite = open_suite(SUITE)
    shifts, left_out = shifts_in("so101_reach", suite, ExplainOptions(), pictured=False)
    assert {s.parameter for s in shifts} == {"friction", "gain", "delay"}
    assert set(left_out) == {"mass", "damping", "delay -1", "camera", "light"}
    assert left_out["light"] == "no policy looks at pictures"
    assert "finds no object" in left_out["mass"]
    with pytest.raises(ConfigError, match=r"no parameter can be shifted.*need a scene package"):
        shifts_in("gym_pusht", open_suite(Path("configs/eval/pusht.yaml")), WHAT, pictured=False)
    with pytest.raises(ConfigError, match="Did you mean 'friction'"):
        ExplainOptions(parameters=("frictoin",))
    for levels in ((1.0, 0.0), (), (1.0, 1.0)):
        with pytest.raises(ConfigError, match="other than 0"):
            ExplainOptions(levels=levels)


def test_every_command_that_is_proposed_exists() -> None:
    from eval.report.trust import causes

    written = Path(causes.__file__).read_text()
    commands = re.findall(r'"(robolearn [a-z].*?)"', written)
    assert len(commands) >= 9
    for line in commands:
        words = line.split()[1:]
        head = words[:2] if words[0] in ("calibrate", "scene") else words[:1]
        text = help_text(*head)
        for option in re.findall(r"--[a-z-]+", line):
            assert option in text, line
