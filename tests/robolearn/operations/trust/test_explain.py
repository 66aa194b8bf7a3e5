"""A world in which one parameter is wrong on purpose is told from one in which none is."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from eval.report.trust.causes import advice, causes_lines
from robolearn.cli.evaluation import explain as explaining
from robolearn.cli.main import main
from robolearn.contracts import PolicySpec
from robolearn.errors import ConfigError, DataError
from robolearn.inference.server import PolicyServer, ServeConfig
from robolearn.operations import evaluate as evaluating
from robolearn.operations.evaluate import evaluate
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.suites import open_suite
from robolearn.operations.trial import like as liking
from robolearn.operations.trial.like import LikeOptions
from robolearn.operations.trust.explain import ExplainOptions, explain, shifts_in
from robolearn.operations.trust.options import Beside
from robolearn.operations.trust.trials import trust_of_trials
from robolearn.spec import EmbodimentSpec, TaskSpace
from robolearn.types import PolicyInput, PolicyOutput
from sim.worlds import make_world
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
            beside=Beside(causes=tmp_path / "real"),
        )  # fmt: skip


@pytest.mark.usefixtures("short")
def test_a_scene_in_which_nothing_is_wrong_is_not_accused(tmp_path) -> None:
    # Another name for the same world: a load that weighs nothing more.
    report = explained(tmp_path, "so101_reach~friction_shift=0.1")
    assert (report.verdict, report.suspects) == ("nothing shown", ())
    assert "nothing shown" in causes_lines(report)[0]


SHOWN = "so101_reach,camera=top,size=32"


class Phototropic:
    """Goes a share of the way to the goal: as much of it as the picture is bright."""

    def __init__(self, spec: EmbodimentSpec) -> None:
        wanted = ("arm/joint_position", "goal/joint_position", "top/image")
        observed = tuple(s for s in spec.signals if s.name in wanted)
        space = TaskSpace(observed, tuple(spec.actions), spec.rate_hz)
        self.spec = PolicySpec(space, n_obs=1, horizon=1, execute=1)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        seen = request.observations
        light = seen["top/image"].mean(axis=(1, 2, 3, 4))[:, None] / 255.0
        q, goal = (seen[f"{name}/joint_position"][:, -1] for name in ("arm", "goal"))
        chunks = np.repeat((q + 0.5 * light * (goal - q))[:, None, None], n, axis=1)
        return PolicyOutput(chunks, np.zeros(chunks.shape[:2]), request.t_ns)


@pytest.fixture
def served(monkeypatch) -> Generator[str]:
    """The address of a policy that looks at pictures, on a server."""
    monkeypatch.setenv("ROBOLEARN_TOKEN", "token-of-the-test")
    world = make_world(SHOWN)
    spec = world.spec
    world.close()
    server = PolicyServer(
        Phototropic(spec), ServeConfig(token="token-of-the-test"), "moth", "hash-of-moth"
    )
    yield server.url
    server.close()


@pytest.mark.usefixtures("short")
def test_a_policy_on_a_server_that_looks_at_pictures_tells_a_darker_room(
    tmp_path, served: str, capsys
) -> None:
    reality = f"{SHOWN}~light_shift=-0.6"
    options = EvaluateOptions(suite=SUITE, worlds=(reality,), conditions=8, workers=0, videos=0)
    evaluate([served], tmp_path / "real", options)
    words = ["explain", "--server", served, "--like", str(tmp_path / "real"), "--by", "score"]
    words += ["--out", str(tmp_path / "sim"), "--suite", str(SUITE)]
    words += ["--real-world", reality, "--rollouts", "2", "--workers", "0", "--levels", "-1"]
    words += ["--parameters", "light", "camera", "--json"]
    with pytest.raises(ConfigError, match=f"does not show; name its pictures.*'{SHOWN}'"):
        explaining.main([*words[1:], "--world", "so101_reach"])
    assert main([*words, "--world", SHOWN]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["verdict"], found["suspects"]) == ("found", ["light"])
    assert found["parameters"][0]["best"]["level"]["value"] == pytest.approx(-0.6, abs=0.2)


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
