"""Shifts are what they say, the same in every episode, and undone before the next."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robolearn.errors import ConfigError
from robolearn.types import Condition
from sim import worlds
from sim.perturbations.kinds import split_perturbations
from sim.perturbations.model import Snapshot
from tests.sim.perturbations.test_perturbations import DERIVED, POSES, START, drive

# Shift -> arrays of the model that it must change, and that it may.
MODEL: dict[str, tuple[set[str], set[str]]] = {
    "friction": ({"geom_friction", "pair_friction"}, set()),
    "mass": ({"body_mass", "body_inertia"}, DERIVED),
    "damping": ({"dof_damping"}, {"dof_frictionloss"}),
    "gain": ({"actuator_gainprm", "actuator_biasprm"}, set()),
    "light": ({"light_diffuse"}, {"light_ambient", "light_specular"}),
    "camera": ({"cam_pos", "cam_quat"}, set()),
}


def make_world(name: str) -> Any:
    """A scene, perturbed or not, with all that it has inside."""
    return worlds.make_world(name)


@pytest.mark.parametrize("name", MODEL)
def test_it_changes_that_and_nothing_else(name: str) -> None:
    # The arm's joints have no damping of their own.
    scene = "pusht_reference" if name == "damping" else "pusht_ur5e"
    env = make_world(f"{scene}~{name}_shift=1")
    before = Snapshot(env.inner.model)
    env.reset(START, np.random.default_rng(0))
    must, may = MODEL[name]
    assert must <= set(before.changed()) <= must | may
    before.restore()
    assert before.changed() == []
    env.close()


def test_a_shift_is_the_same_in_every_episode_and_for_every_seed() -> None:
    env, other = (make_world(f"pusht_ur5e~gain_shift=-1{seed}") for seed in ("", "~seed=4"))
    plain = make_world("pusht_ur5e")
    for i in range(3):
        for e in (env, other, plain):
            e.reset(Condition(f"c{i}", i, POSES), np.random.default_rng(0))
        stiff = plain.model.actuator_gainprm[:, 0]
        for e in (env, other):
            model = e.inner.model
            assert np.allclose(model.actuator_gainprm[:, 0], stiff / 2)
            assert np.allclose(model.actuator_biasprm[:, 1], -stiff / 2)
            # A servo that is damped as much, in proportion, as before.
            damped = model.actuator_biasprm[:, 2] / plain.model.actuator_biasprm[:, 2]
            assert np.allclose(damped, 2**-0.5)
    for e in (env, other, plain):
        e.close()


def test_a_delay_is_exact_in_steps_of_physics() -> None:
    plain = make_world("pusht_ur5e")
    late = make_world("pusht_ur5e~delay_shift=0.3")
    shifted = late.inner.scene.config.control_delay_s - plain.scene.config.control_delay_s
    assert shifted == pytest.approx(0.03)
    assert not np.array_equal(drive(late, START, 6), drive(plain, START, 6))
    plain.close()
    late.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("friction_shift=-1", "finds no friction that could be less"),
        ("delay_shift=-0.5", r"needs a delay of 0\.05 s that could be less; the scene has 0 s"),
        ("mass_shift=-21", "must be -20 to 20"),
    ],
)
def test_less_than_nothing_is_refused(name: str, said: str) -> None:
    def begin() -> None:
        make_world(f"pusht_reference~{name}").reset(START, np.random.default_rng(0))

    with pytest.raises(ConfigError, match=said):
        begin()


def test_names_of_both_directions_are_read_and_written() -> None:
    base, shifts = split_perturbations("w~friction_shift=-0.5~mass_shift=1")
    assert (base, dict(shifts.magnitudes)) == ("w", {"friction_shift": -0.5, "mass_shift": 1.0})
    assert split_perturbations(base + shifts.suffix) == (base, shifts)
    assert shifts.hash("h") != split_perturbations("w~friction_shift=0.5~mass_shift=1")[1].hash("h")


def test_cameras_move_sideways_and_turn_about_where_they_look() -> None:
    env, plain = make_world("pusht_ur5e~camera_shift=1"), make_world("pusht_ur5e")
    env.reset(START, np.random.default_rng(0))
    model = env.inner.model
    moved = np.linalg.norm(model.cam_pos - plain.model.cam_pos, axis=1)
    assert np.allclose(moved, 0.02 * np.sqrt(2))
    apart = np.abs(np.sum(model.cam_quat * plain.model.cam_quat, axis=1))
    assert np.allclose(2 * np.arccos(np.minimum(apart, 1.0)), np.radians(3.0), atol=1e-6)
    env.close()
    plain.close()
