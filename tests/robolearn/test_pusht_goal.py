"""Push-T's goal is a parameter of the task: of worlds, recordings, training and drawings."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from eval.report.recordings import store_facts
from hardware.teleop.page.layout import pusht_outlines
from policies.chunks.mirror import Mirror
from policies.nets.encoder import FocusConfig
from policies.registry import policy_config
from robolearn.data.importers.recording import ImportOptions, write_recording
from robolearn.data.importers.registry import find_importer
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SceneError
from robolearn.operations.deploy.video import draw
from robolearn.pusht import (
    BLOCK,
    GOAL,
    TASK_PARAMS,
    TOOL,
    coverage,
    goal_pose,
    px_from_pose,
    recorded_goal,
    table_from_px,
)
from robolearn.training.experiment import load_experiment
from robolearn.training.task_goal import at_goal
from robolearn.types import Condition
from sim.adapters.pusht.gym_pusht import GymPushTEnv
from sim.experts.registry import build_expert
from sim.scene.load import SCENES, load_scene
from sim.tasks.pusht import PushT
from sim.worlds import build_operator, make_world

OTHER = (0.15, 0.3, 1.0)
CONFIGS = Path(__file__).parents[2] / "configs/train"


def scene_with(tmp_path: Path, goal: Any) -> Path:
    folder = tmp_path / "pusht_other"
    shutil.copytree(SCENES / "pusht_reference", folder)
    raw = yaml.safe_load((folder / "scene.yaml").read_text())
    raw["task"]["params"] = {"goal": goal}
    (folder / "scene.yaml").write_text(yaml.safe_dump(raw))
    return folder


def zarr_of(
    path: Path, goal: tuple[float, ...], episodes: int = 4, spread_m: float = 0.002
) -> Path:
    """Recordings in pixels whose T ends near ``goal``."""
    import zarr

    rng, rows = np.random.default_rng(0), 6
    states, actions = [], []
    for _ in range(episodes):
        end = np.array(goal) + rng.normal(0.0, 1.0, 3) * (spread_m, spread_m, 10 * spread_m)
        poses = np.linspace(np.array([0.25, 0.15, 0.0]), end, rows)
        state = np.concatenate([np.full((rows, 2), 100.0), px_from_pose(poses)], axis=1)
        states.append(state)
        actions.append(state[:, :2])
    library: Any = zarr
    root = library.open_group(str(path), mode="w", zarr_format=2)
    data = root.create_group("data")
    data.create_array("state", data=np.concatenate(states))
    data.create_array("action", data=np.concatenate(actions))
    ends = np.arange(1, episodes + 1) * rows
    root.create_group("meta").create_array("episode_ends", data=ends)
    return path


def imported(src: Path, out: Path, goal: tuple[float, ...] | None = None) -> EpisodeStore:
    options = ImportOptions(goal=None if goal is None else goal_pose(goal))
    store = EpisodeStore.create(out)
    write_recording(find_importer(src)[1].open(src, options), store, options)
    return store


def test_what_is_covered_depends_on_the_goal() -> None:
    assert coverage(GOAL) == coverage(GOAL, GOAL) == pytest.approx(1.0)
    assert coverage(OTHER, OTHER) == pytest.approx(1.0)
    assert coverage(OTHER) < 0.3
    assert PushT().judge({BLOCK: np.array(OTHER)}).progress < 0.3
    assert PushT(goal=OTHER).judge({BLOCK: np.array(OTHER)}).success


BAD = [None, "x", [0.1, 0.2], [0.1, 0.2, np.nan], [256, 256, 0.8], [10**400, 0, 0]]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_goal_that_is_none_is_refused(bad: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"yaw \[rad\]|give metres"):
        goal_pose(bad)
    with pytest.raises(DataError):
        recorded_goal({TASK_PARAMS: {"goal": bad}})
    if bad != "x":
        with pytest.raises(SceneError, match=r"task\.params"):
            load_scene(scene_with(tmp_path, [0.1, 0.2]))


def test_a_scene_has_a_goal_of_its_own_that_is_judged_drawn_and_recorded(tmp_path: Path) -> None:
    folder = scene_with(tmp_path, list(OTHER))
    env, usual = make_world(str(folder)), make_world("pusht_reference")
    assert (env.task_params, usual.task_params) == ({"goal": list(OTHER)}, {})
    assert recorded_goal({TASK_PARAMS: env.task_params}) == OTHER
    start = Condition("c", 0, {TOOL: (0.45, 0.45), BLOCK: OTHER})
    for world, solved in ((env, True), (usual, False)):
        world.reset(start, np.random.default_rng(0))
        assert world.outcome().success == solved
    apart = Condition("c", 0, {TOOL: (0.45, 0.45), BLOCK: (0.25, 0.1, 0.0)})
    pictures = []
    for world in (env, usual):
        world.reset(apart, np.random.default_rng(0))
        pictures.append(world.render(96, 96).astype(int))
        world.close()
    moved = np.abs(pictures[0] - pictures[1]).max(axis=-1) > 20
    assert 200 < moved.sum() < 3000  # both goals, and nothing else of the picture


def test_gym_pusht_with_another_goal_judges_and_draws_it() -> None:
    pytest.importorskip("gym_pusht")
    env, usual = GymPushTEnv(goal=OTHER), GymPushTEnv()
    assert env.scene_hash != usual.scene_hash
    start = Condition("c", 0, {TOOL: (0.45, 0.45), BLOCK: OTHER})
    env.reset(start, np.random.default_rng(0))
    assert env.outcome().progress == pytest.approx(1.0, abs=0.01)
    usual.reset(start, np.random.default_rng(0))
    assert (env.render(96, 96) != usual.render(96, 96)).any()
    env.close()
    usual.close()


def test_the_expert_pushes_to_the_goal_of_its_world(tmp_path: Path) -> None:
    env = make_world(str(scene_with(tmp_path, list(OTHER))))
    agent: Any = build_operator(env, "scripted", 0.0)
    agent.reset(0)
    there: Any = build_expert("pusht", env.spec, 0.0, {"goal": OTHER})
    there.reset(0)
    usual: Any = build_expert("pusht", env.spec)
    usual.reset(0)
    assert np.array_equal(agent.goal, there.goal)
    assert not np.array_equal(agent.goal, usual.goal)
    env.close()


def test_recordings_that_end_elsewhere_are_not_imported_with_wrong_rewards(tmp_path: Path) -> None:
    other = zarr_of(tmp_path / "other.zarr", OTHER)
    with pytest.raises(DataError, match=r"4 of 4 episodes the T ends at x 0\.1.*give --goal=0\.1"):
        find_importer(other)[1].open(other, ImportOptions())
    with pytest.raises(DataError, match=r"--goal"):
        imported(other, tmp_path / "wrong")
    usual = imported(zarr_of(tmp_path / "usual.zarr", GOAL), tmp_path / "usual")
    assert TASK_PARAMS not in usual.meta("ep_000000").provenance
    store = imported(other, tmp_path / "store", OTHER)
    assert recorded_goal(store.meta("ep_000000").provenance) == OTHER
    assert all(info.score > 0.9 for info in store.list())
    facts = store_facts(tmp_path / "store", "x")
    assert facts.goal == OTHER
    assert min(facts.final) > 0.85


def test_recordings_without_a_common_end_say_nothing_about_a_goal(tmp_path: Path) -> None:
    play = zarr_of(tmp_path / "play.zarr", (0.25, 0.25, 0.0), episodes=12, spread_m=0.08)
    assert len(imported(play, tmp_path / "play").ids()) == 12
    few = zarr_of(tmp_path / "few.zarr", OTHER, episodes=2)
    assert len(imported(few, tmp_path / "few").ids()) == 2


def test_a_goal_is_for_pusht(tmp_path: Path) -> None:
    import zarr

    library: Any = zarr
    root = library.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=2)
    root.create_group("data").create_array("action", data=np.ones((4, 3)))
    root.create_group("meta").create_array("episode_ends", data=np.array([4]))
    with pytest.raises(DataError, match="for Push-T"):
        find_importer(tmp_path / "a.zarr")[1].open(tmp_path / "a.zarr", ImportOptions(goal=OTHER))


def test_training_puts_the_recordings_goal_into_focus_and_mirror(tmp_path: Path) -> None:
    algorithm: Any = load_experiment(CONFIGS / "pusht_flow.yaml", policy_config).algorithm
    assert (algorithm.focus.centre, algorithm.mirror.point) == ("goal", "goal")
    usual: Any = at_goal(algorithm, lambda: [GOAL])
    assert usual.focus.centre == (0.256, 0.256, -0.7853981633974483)
    assert (usual.mirror.point, usual.mirror.axis_deg) == ((0.256, 0.256), 45.0)
    assert at_goal(usual, lambda: [OTHER]) == usual  # numbers stay
    aside: Any = at_goal(algorithm, lambda: [(0.2, 0.256, -np.pi / 2)])
    assert aside.focus.centre == (0.2, 0.256, -np.pi / 2)
    assert (aside.mirror.point, aside.mirror.axis_deg) == ((0.2, 0.256), 0.0)
    for goals in ([], [GOAL, OTHER]):
        with pytest.raises(ConfigError, match="refers to the goal"):
            at_goal(algorithm, lambda goals=goals: goals)
    store = imported(zarr_of(tmp_path / "a.zarr", OTHER), tmp_path / "store", OTHER)
    source = StoreSource(store, DataConfig(observations=(TOOL, BLOCK)))
    assert source.goals == (OTHER,)
    assert at_goal(algorithm, lambda: source.goals).focus.centre == OTHER


def test_a_mirror_that_would_leave_the_table_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    algorithm: Any = load_experiment(CONFIGS / "pusht_flow.yaml", policy_config).algorithm
    assert at_goal(algorithm, lambda: [OTHER]).mirror is None
    assert "mirror left out" in caplog.text
    up: Any = at_goal(
        algorithm, lambda: [(0.256, 0.3, 0.0)]
    )  # its stem on the table's own middle line
    assert (up.mirror.point, up.mirror.axis_deg) == ((0.256, 0.3), 90.0)


def test_the_word_goal_means_nothing_outside_of_training() -> None:
    algorithm: Any = load_experiment(CONFIGS / "pusht_flow.yaml", policy_config).algorithm
    space = make_world("pusht_reference").spec.task_space([TOOL, BLOCK])
    with pytest.raises(ConfigError, match="training puts in"):
        Mirror(algorithm.mirror, space)
    assert FocusConfig(BLOCK, "goal").centre == "goal"


def test_page_and_film_draw_the_goal_of_the_recording() -> None:
    assert pusht_outlines(GOAL)[0].at == tuple(GOAL)
    assert pusht_outlines(OTHER)[0].at == tuple(OTHER)
    block, tool = (0.25, 0.1, 0.0), (0.45, 0.45)
    usual = draw(block, tool, tool, 0.0, 128)
    assert np.array_equal(usual, draw(block, tool, tool, 0.0, 128, GOAL))
    assert (usual != draw(block, tool, tool, 0.0, 128, OTHER)).any()


def test_an_exported_goal_comes_back(tmp_path: Path) -> None:
    from robolearn.data.exporters.common import ExportOptions
    from robolearn.data.exporters.registry import export_store

    store = imported(zarr_of(tmp_path / "a.zarr", OTHER), tmp_path / "store", OTHER)
    export_store(store, tmp_path / "out", "diffusion-policy", ExportOptions())
    back = imported(tmp_path / "out", tmp_path / "back")
    assert recorded_goal(back.meta("ep_000000").provenance) == OTHER
    again, first = back.read("ep_000000"), store.read("ep_000000")
    np.testing.assert_allclose(again.progress, first.progress)
    assert dataclasses.asdict(again.meta.outcome) == dataclasses.asdict(first.meta.outcome)
    assert table_from_px([256, 256]).shape == (2,)
