"""Names of worlds, and worlds by name with their pictures observed."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.errors import ConfigError, SceneError
from robolearn.operations.builders import env_builder
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Command, Condition
from sim.perturbations.kinds import PERTURBATIONS, Perturbations
from sim.world_name import Pictures, WorldName
from sim.worlds import make_world

START = Condition("a", 0, {TOOL: (0.1, 0.4), BLOCK: (0.38, 0.12, 0.7)})


def test_names_are_taken_apart_and_put_together() -> None:
    name = WorldName.parse("a/b,c,camera=top+wrist,size=84~mass=1")
    assert (name.base, name.family, name.thing) == ("a/b,c", "a", "b,c")
    assert name.pictures() == Pictures(("top", "wrist"), 84)
    assert name.perturbations == Perturbations({"mass": 1.0})
    assert str(name) == "a/b,c,camera=top+wrist,size=84~mass=1"
    assert WorldName.parse("gym_pusht") == WorldName("gym_pusht")
    assert WorldName("gym_pusht").pictures() == Pictures()
    assert str(WorldName("gym_pusht")) == "gym_pusht"


# No base holds what begins an option or a perturbation; everything else may be in a path.
BASES = st.text(min_size=1).filter(lambda t: not re.search(r",\w+=|~[a-z_]+=", t))
OPTIONS = st.dictionaries(st.text("abcxyz_019", min_size=1), st.text("ab+.-/0189~"), max_size=4)
MAGNITUDES = st.dictionaries(
    st.sampled_from(sorted(PERTURBATIONS)),
    st.floats(0.0, 20.0, exclude_min=True),
    max_size=3,
)


@given(BASES, OPTIONS, MAGNITUDES, st.integers(0, 10**6))
def test_every_name_comes_back(
    base: str, options: dict[str, str], magnitudes: dict[str, float], seed: int
) -> None:
    perturbations = Perturbations(magnitudes, seed if magnitudes else 0)
    name = WorldName(base, options, perturbations)
    again = WorldName.parse(str(name))
    assert again == name
    assert list(again.options) == list(options)


@pytest.mark.parametrize("name", ["robosuite/Lift,robot", "gymnasium/CartPole-v1,a="])
def test_options_of_families_have_a_value(name: str) -> None:
    with pytest.raises(SceneError, match="expected options like"):
        make_world(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym_pusht,camera=side", "no camera 'side'"),
        ("gym_pusht,size=0", "size is 1 to 4096 pixels"),
        ("gym_pusht,size=big", "got 'big'"),
        ("gym_pusht,cam=top", r"no option 'cam'\. Did you mean 'camera'"),
        ("pick_place,camera=top+top", "each once"),
        ("pick_place,camera=", "camera names cameras"),
        ("pick_place,size=1,size=2", "given twice"),
        ("pick_place,camera=tpo", "Did you mean 'top'"),
    ],
)
def test_what_cannot_be_observed_is_named(name: str, message: str) -> None:
    with pytest.raises(SceneError, match=message):
        make_world(name)


@pytest.mark.parametrize(
    "name", ["gym_pusht,camera=top", "pusht_pybullet,camera=top,size=96",
             "pusht_reference,camera=top,size=96"],
)  # fmt: skip
def test_every_push_t_world_shows_the_same_table(name: str) -> None:
    with contextlib.closing(make_world(name)) as env:
        assert env.spec.signal("top/image").shape == (96, 96, 3)
        env.reset(START, np.random.default_rng(0))
        image = env.observe().value("top/image")
        assert image.dtype == np.uint8
        tool = image[round(96 * (1 - 0.4 / 0.512)), round(96 * 0.1 / 0.512)].astype(int)
        assert tool[2] > max(tool[0], tool[1]) + 30
        action = {TOOL: np.array([0.3, 0.3])}
        env.apply(Command(0, action, env.now_ns(), "test"))
        env.advance()
        assert env.drain().signals["top/image"].value.shape == (1, 96, 96, 3)
        assert not np.array_equal(env.observe().value("top/image"), image)
        assert env.observe().samples["top/image"].t_ns == env.now_ns()


def test_gym_pusht_is_observed_without_the_command_drawn_into_it() -> None:
    with contextlib.closing(make_world("gym_pusht,camera=top")) as env:
        pictures = []
        for target in ((0.1, 0.4), (0.4, 0.1)):
            env.reset(START, np.random.default_rng(0))
            env.apply(Command(0, {TOOL: np.array([0.1, 0.4])}, env.now_ns(), "test"))
            env.advance()
            env.apply(Command(1, {TOOL: np.array(target)}, env.now_ns(), "test"))
            pictures.append(env.observe().value("top/image"))
        assert np.array_equal(*pictures)


def test_perturbed_worlds_have_pictures_too() -> None:
    with contextlib.closing(make_world("pick_place,camera=wrist,size=32~lighting=1")) as env:
        assert env.spec.signal("wrist/image").shape == (32, 32, 3)
        env.reset(env.sample_condition(0), np.random.default_rng(0))
        assert env.observe().value("wrist/image").std() > 5


def test_the_command_line_knows_these_names(tmp_path: Path) -> None:
    assert env_builder("gym_pusht,camera=top").world == "gym_pusht,camera=top"
    (tmp_path / "scene.yaml").write_text("")
    folder = env_builder(f"{tmp_path},camera=top~mass=1").world
    assert folder == f"{tmp_path.resolve()},camera=top~mass=1"
    with pytest.raises(ConfigError, match="no world 'nowhere'"):
        env_builder("nowhere,camera=top")
