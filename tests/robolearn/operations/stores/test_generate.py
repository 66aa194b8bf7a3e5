"""Episodes made from a few demonstrations are true, checked, and resumed bit for bit."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.edit import Selection, filter_store
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.operations.collect import CollectConfig, collect
from robolearn.operations.stores import generate as module
from robolearn.operations.stores.collect_options import CollectOptions
from robolearn.operations.stores.demonstrations import Commanded
from robolearn.operations.stores.generate import Generated, generate
from robolearn.operations.stores.generate_options import GenerateConfig
from robolearn.runtime import EpisodeRun
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec

CONFIG = GenerateConfig(episodes=2, hold_s=0.3, seed=5)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("generate") / "few"
    collect(CollectConfig("pick_place", seed=7), path, CollectOptions(agent="scripted", episodes=2))
    return path


@pytest.fixture(scope="module")
def made(few: Path, tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return generate(few, tmp_path_factory.mktemp("generate") / "many", CONFIG)


def test_new_starts_are_solved_and_say_where_they_come_from(few: Path, made: Generated) -> None:
    source, store = EpisodeStore.open(few), EpisodeStore.open(made.store)
    assert (made.world, len(made.ids), made.new, made.missing) == ("pick_place", 2, 2, ())
    assert made.skills == ("cube/pose", "cube/pose to goal/pose")
    assert made.sees_touches
    assert made.attempts == 2 + sum(made.failed.values())
    assert sum(made.used.values()) == 2
    starts: set[tuple[float, ...]] = set()
    for name in made.ids:
        episode = store.read(name)
        assert episode.success
        assert (episode.meta.kind, episode.meta.task) == ("scripted", "pick_place")
        said = episode.meta.provenance
        told = said["generated"]
        assert said["origin"][-1]["store"] == source.uuid
        assert said["origin"][-1]["episode"] == told["demonstration"]
        assert said["config"]["world"] == "pick_place"
        assert told["attempts"] == 1 + sum(told["failed"].values())
        # The cube's skill moved as the cube did.
        before = source.read(told["demonstration"]).observed("cube/pose")[0]
        now = episode.observed("cube/pose")[0]
        moved = np.array(told["skills"][0]["moved"])
        turn = 2.0 * np.arctan2(moved[6], moved[3])
        R = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        np.testing.assert_allclose(R @ before[:2] + moved[:2], now[:2], atol=1e-4)
        starts.add(tuple(episode.meta.condition.poses["cube/pose"]))
    assert len(starts) == 2
    assert {store.meta(i).provenance["generated"]["stratum"] for i in made.ids} == {0, 1}


def test_a_killed_call_goes_on_and_ends_with_the_same_episodes(
    few: Path, made: Generated, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "many"
    child = os.fork()
    if child == 0:
        _die_in_the_second(few, out)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert len(EpisodeStore.open(out).ids()) == 1
    options = ["--episodes", "2", "--hold-s", "0.3", "--seed", "5", "--json"]
    assert main(["data", "generate", str(few), "--out", str(out), *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (len(told["ids"]), told["new"]) == (2, 1)
    assert (told["attempts"], told["failed"], told["used"]) == (
        made.attempts,
        made.failed,
        made.used,
    )
    assert not check_store(out).findings
    ours, theirs = EpisodeStore.open(out), EpisodeStore.open(made.store)
    for one, other in zip(told["ids"], made.ids, strict=True):
        a, b = ours.read(one), theirs.read(other)
        assert a.meta.condition == b.meta.condition
        for name, values in a.action.items():
            np.testing.assert_array_equal(values, b.action[name])
        np.testing.assert_array_equal(a.observed("cube/pose"), b.observed("cube/pose"))


def _die_in_the_second(few: Path, out: Path) -> None:
    """Kill this process some ticks after the first episode was kept."""
    ticks: list[int] = []
    act = EpisodeRun.act

    def counted(run: EpisodeRun) -> None:
        ticks.append(1)
        if len(ticks) > 20:
            os.kill(os.getpid(), signal.SIGKILL)
        act(run)

    def kept(done: int, of: int) -> None:
        del done, of
        EpisodeRun.act = counted

    try:
        generate(few, out, CONFIG, on_kept=kept)
    finally:
        os._exit(7)


def test_another_generation_does_not_go_on_with_a_store(few: Path, made: Generated) -> None:
    with pytest.raises(ConfigError, match="not from this generation"):
        generate(few, made.store, GenerateConfig(episodes=2, seed=6))
    with pytest.raises(ConfigError, match="not from this generation"):
        generate(made.store, few, GenerateConfig(episodes=1))


def test_what_cannot_work_leaves_nothing_and_says_why(
    few: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, source = tmp_path / "out", EpisodeStore.open(few)
    with pytest.raises(DataError, match="has no episode 'ep_000099'"):
        generate(few, out, CONFIG, selection=Selection(ids=("ep_000099",)))
    with pytest.raises(SpecMismatchError, match="of the task 'pick_place', 'stacking' is of"):
        generate(few, out, CONFIG, world="stacking")
    monkeypatch.setattr(module, "HOPELESS", 2)
    one = Selection(ids=source.ids()[:1])
    with pytest.raises(DataError, match=r"no attempt of 2 succeeds .* 2 jerk .*lower noise_m"):
        generate(few, out, GenerateConfig(episodes=1, jerk=1e-3), selection=one)
    failed = filter_store(source, Selection(), tmp_path / "failed")
    with failed.writer() as writer:
        writer.annotate(Annotation(failed.ids(), "someone", success=False))
    with pytest.raises(DataError, match=r"none of the 2 demonstrations .*: it failed"):
        generate(tmp_path / "failed", out, CONFIG)
    wrong = tmp_path / "skills.yaml"
    wrong.write_text("skills:\n- {object: mug/pose}\n")
    with pytest.raises(DataError, match=r"\['mug/pose'\] are no objects here"):
        generate(few, out, CONFIG, skills=wrong)
    assert not out.exists()


def test_objects_and_the_tool_must_be_seen() -> None:
    place = ActionSpec("tool/xy_table", (2,), "m")
    cube = SignalSpec("cube/pose", (7,), "m, quaternion wxyz")
    with pytest.raises(SpecMismatchError, match="has no object's pose among its signals"):
        Commanded.of(EmbodimentSpec("blind", (), (place,), 20.0))
    with pytest.raises(SpecMismatchError, match="where the tool is is no signal"):
        Commanded.of(EmbodimentSpec("numb", (cube,), (place,), 20.0))


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"episodes": 0}, "at least 1"),
        ({"cap": 0.5}, "cap must be at least 1"),
        ({"near_m": 0.0}, "above 0"),
        ({"noise_m": float("nan")}, "at least 0"),
    ],
)
def test_options_are_checked(bad: dict[str, float], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        GenerateConfig(**bad)
