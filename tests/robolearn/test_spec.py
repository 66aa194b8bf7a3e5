import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.config import from_dict
from robolearn.contracts import PolicySpec
from robolearn.errors import DataError, SpecMismatchError
from robolearn.spec import (
    ActionSpec,
    EmbodimentSpec,
    SignalSpec,
    TaskSpace,
    diff_task_spaces,
    require_compatible,
    to_json,
)

XY = SignalSpec("tool/xy_table", (2,), "m", 10.0, components=("x", "y"), frame="table")
POSE = SignalSpec("block/pose", (3,), "m", 10.0, angular=(2,), frame="table")
TARGET = ActionSpec(
    "tool/xy_table", (2,), "m", 10.0, frame="table", low=(0.0, 0.0), high=(1.0, 1.0)
)
GRIP = ActionSpec("gripper/width", (1,), "m", 10.0)
ROBOT = EmbodimentSpec("planar", (XY, POSE), (TARGET, GRIP), 10.0)
SPACE = ROBOT.task_space(["tool/xy_table", "block/pose"], ["tool/xy_table"])


def changed(signal=None, action=None, **robot):
    return dataclasses.replace(
        ROBOT,
        signals=tuple(signal if signal and s.name == signal.name else s for s in ROBOT.signals),
        actions=tuple(action if action and a.name == action.name else a for a in ROBOT.actions),
        **robot,
    )


def test_a_robot_with_more_signals_is_compatible():
    more = dataclasses.replace(
        ROBOT, signals=(*ROBOT.signals, SignalSpec("arm/joint_position", (6,), "rad", 125.0))
    )
    assert diff_task_spaces(SPACE, more) == []
    require_compatible(SPACE, more)


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (changed(dataclasses.replace(XY, unit="mm")), "tool/xy_table, unit: wanted 'm', got 'mm'"),
        (changed(dataclasses.replace(POSE, angular=())), "block/pose, angular: wanted (2,)"),
        (changed(dataclasses.replace(POSE, shape=(7,), angular=())), "shape: wanted (3,), got (7"),
        (changed(dataclasses.replace(XY, frame="base")), "frame: wanted 'table', got 'base'"),
        (
            changed(action=dataclasses.replace(TARGET, mode="relative")),
            "action tool/xy_table, mode: wanted 'absolute', got 'relative'",
        ),
        (changed(rate_hz=20.0), "control rate [Hz]: wanted 10, got 20"),
        (
            dataclasses.replace(ROBOT, signals=(XY,)),
            "observation block/pose: wanted (3,) [m], abse",
        ),
        (dataclasses.replace(ROBOT, actions=(GRIP,)), "action tool/xy_table: wanted (2,), absent"),
    ],
)
def test_a_mismatch_is_one_line_of_the_diff(other, line):
    (only,) = [d for d in diff_task_spaces(SPACE, other) if line[:20] in d]
    assert line in only
    with pytest.raises(SpecMismatchError) as error:
        require_compatible(SPACE, other)
    assert line in str(error.value)
    assert "offers" in str(error.value)


def test_observation_rate_and_range_do_not_matter():
    assert not diff_task_spaces(SPACE, changed(dataclasses.replace(XY, rate_hz=500.0)))
    assert not diff_task_spaces(SPACE, changed(action=dataclasses.replace(TARGET, high=(9.0, 9.0))))


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(SpecMismatchError, match="Did you mean 'block/pose'"):
        ROBOT.signal("block/pos")
    with pytest.raises(SpecMismatchError, match="Did you mean 'gripper/width'"):
        ROBOT.task_space([], ["gripper/with"])


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 3))
def test_split_is_the_inverse_of_join(sizes, leading):
    actions = tuple(ActionSpec(f"a/{i}", (n,)) for i, n in enumerate(sizes))
    space = TaskSpace((), actions, 10.0)
    flat = np.random.default_rng(0).normal(size=(leading, space.action_size))
    parts = space.split(flat)
    for row in range(leading):
        assert np.array_equal(space.join({n: v[row] for n, v in parts.items()}), flat[row])
    with pytest.raises(DataError, match="action values"):
        space.split(flat[:, 1:])
    with pytest.raises(DataError, match="lacks"):
        space.join({})


def test_json_round_trips():
    assert from_dict(TaskSpace, json.loads(json.dumps(to_json(SPACE)))) == SPACE
    assert from_dict(EmbodimentSpec, json.loads(json.dumps(to_json(ROBOT)))) == ROBOT
    with pytest.raises(DataError, match="Did you mean 'frame'"):
        from_dict(SignalSpec, {"name": "a/b", "shape": [1], "framee": "x"}, error=DataError)


WORDS = st.text("abcxyz_", min_size=1, max_size=8)
NAMES = st.lists(st.builds("{}/{}".format, WORDS, WORDS), min_size=1, max_size=3, unique=True)
FINITE = st.floats(-1e6, 1e6)


@given(st.data(), NAMES, NAMES, FINITE, st.lists(WORDS, max_size=2), st.integers(1, 64))
def test_what_is_written_is_read_again(data, observed, commanded, rate_hz, texts, n):
    def signal(name):
        components = tuple(data.draw(st.lists(WORDS, max_size=3)))
        size = max(1, len(components))
        angular = tuple(data.draw(st.lists(st.integers(0, size - 1), max_size=2)))
        return SignalSpec(
            name, (size,), data.draw(WORDS), rate_hz, components=components, angular=angular
        )

    def action(name):
        low = data.draw(st.lists(FINITE, max_size=3))
        mode = data.draw(st.sampled_from(["absolute", "relative"]))
        tolerance = data.draw(st.none() | st.floats(0.001, 1.0))
        bounds = {"low": tuple(low), "high": tuple(v + 1.0 for v in low)}
        return ActionSpec(
            name, (max(1, len(low)),), "m", rate_hz, mode, **bounds, tolerance=tolerance
        )

    space = TaskSpace(
        tuple(signal(name) for name in observed),
        tuple(action(name) for name in commanded),
        rate_hz,
        tuple(texts),
    )
    spec = PolicySpec(space, n, n + 1, n)
    robot = EmbodimentSpec("robot", space.observations, space.actions, rate_hz)
    for written in (space, spec, robot):
        assert from_dict(type(written), json.loads(json.dumps(to_json(written)))) == written


def test_malformed_signals_are_refused():
    with pytest.raises(DataError, match="part/name"):
        SignalSpec("pose", (3,))
    with pytest.raises(DataError, match="components"):
        SignalSpec("a/b", (3,), components=("x",))
    assert SignalSpec("wrist/image", (4, 4, 3), dtype="uint8").is_image
    assert not POSE.is_image


def test_a_tolerance_is_written_only_where_it_is_given():
    bare = to_json(ROBOT)
    assert all("tolerance" not in action for action in bare["actions"])
    judged = dataclasses.replace(ROBOT, actions=(dataclasses.replace(TARGET, tolerance=0.05),))
    assert to_json(judged)["actions"][0]["tolerance"] == 0.05
    assert from_dict(EmbodimentSpec, json.loads(json.dumps(to_json(judged)))) == judged
    # A policy of a robot that declares none runs on one that does.
    require_compatible(SPACE, judged)
