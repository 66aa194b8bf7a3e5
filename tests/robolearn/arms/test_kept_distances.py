"""What was measured once bounds what comes after it: never too much, and often enough."""

import numpy as np
import pytest

from robolearn.arms.collision import Capsule, CollisionModel, Plane
from robolearn.arms.kept_distances import kept_distances
from robolearn.arms.models import APART, ARMS, CAPSULES
from robolearn.errors import ConfigError, DataError

PLANES = (Plane((0.0, 0.0, 1.0), -0.05), Plane((0.6, 0.0, 0.8), -0.3))


def model_of(name, plane):
    """An arm with a tool beyond its flange and two things beside it."""
    dof = ARMS[name].dof
    more = [
        Capsule(dof + 1, (0.0, 0.0, 0.0), (0.03, 0.0, 0.15), 0.02, "tool"),
        Capsule(0, (0.4, 0.3, 0.0), (0.4, 0.3, 0.5), 0.04, "post"),
        Capsule(0, (-0.2, 0.5, 0.2), (-0.2, 0.5, 0.2), 0.1, "ball"),
    ]
    capsules = [*CAPSULES[name], *more]
    return CollisionModel(ARMS[name], capsules, table=plane, apart=APART.get(name, ()))


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("name", sorted(CAPSULES))
def test_no_distance_changes_by_more_than_is_said(name, plane):
    model, rng = model_of(name, plane), np.random.default_rng(3)
    dof = model.arm.dof
    measures = (model.between, model.over_table)
    for kept, measure in zip(kept_distances(model), measures, strict=True):
        tightest = 0.0
        for scale in (1e-3, 0.05, 0.5, 3.0):
            for _ in range(20):
                q = rng.uniform(-3.0, 3.0, dof)
                # One joint alone shows the bounds one by one.
                step = rng.normal(0.0, scale, dof) * rng.choice((np.ones(dof), np.eye(dof)[0]))
                step = step if rng.random() < 0.5 else step * np.eye(dof)[rng.integers(dof)]
                change, most = np.abs(measure(q + step) - measure(q)), np.abs(step) @ kept.travel
                assert np.all(change <= most + 1e-9)
                tightest = max(tightest, float((change / np.maximum(most, 1e-9)).max()))
        # A bound that is far away from what happens would be of no use.
        assert tightest > 0.5


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize("name", sorted(CAPSULES))
def test_the_answer_is_that_of_measuring_every_time(name, plane):
    model, rng = model_of(name, plane), np.random.default_rng(4)
    low, high = np.array(model.arm.low), np.array(model.arm.high)
    answers = []
    for limit in (0.01, 0.15):
        kept = kept_distances(model)
        q = rng.uniform(low, high) * 0.5
        goal = q
        for k in range(100):
            goal = rng.uniform(low, high) if k % 40 == 0 else goal
            q = goal if k % 97 == 0 else q + 0.03 * (goal - q)
            least = float(model.distances(q).min())
            enough = [each.all_at_least(q, limit) for each in kept]
            assert all(enough) == (least >= limit)
            answers.append(all(enough))
    assert True in answers
    assert False in answers


def test_a_slow_arm_far_from_everything_is_hardly_measured():
    model = model_of("ur5e", PLANES[0])
    q = np.array([2.8717, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407])
    kept = kept_distances(model)
    for k in range(250):
        # Half a second, every joint as far as .1 rad.
        moved = q + 0.1 * np.sin(0.02 * k)
        assert all(each.all_at_least(moved, 0.005) for each in kept)
    assert 1 <= max(each.measured for each in kept) <= 25


def test_what_is_no_number_is_told_and_never_near_nor_far():
    kept = kept_distances(model_of("ur5e", PLANES[0]))
    q = np.zeros(6)
    for bad in (np.nan, np.inf):
        broken = q.copy()
        broken[2] = bad
        for each in kept:
            for _ in range(2):
                with pytest.raises(DataError, match="finite joint positions"):
                    each.all_at_least(broken, 0.02)
                # Also after it was measured, and from far away.
                each.all_at_least(q, -10.0)
    with pytest.raises(DataError, match="6 finite"):
        kept[0].all_at_least(np.zeros(5), 0.02)


def test_a_plane_whose_normal_is_no_direction_is_refused():
    with pytest.raises(ConfigError, match="length 1"):
        Plane((0.0, 0.0, 2.0), 0.0)
