"""An arm's hidden physics is found from motions in process, and bad motions are explained."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from robolearn.arms.models import UR5E
from robolearn.errors import DataError
from sim.identification.arm_excitation import (
    ExcitationConfig,
    d_optimal,
    informed,
    multisine,
    narrowest,
)
from sim.identification.arm_fit import FitConfig
from sim.identification.arm_identify import ArmIdentified, ArmIdentifyConfig, identify_arm
from sim.identification.arm_model import ArmModel
from sim.identification.arm_motion import ArmMotion, checked_motions
from sim.identification.write_arm_scene import arm_document, write_identified_arm
from sim.scene.load import load_scene
from tests.benchmarks.identify_coverage import truth
from tests.sim.identification.arm_lab import DT_S, Hidden, hidden, record, room

QUICK = ArmIdentifyConfig(FitConfig(starts=0, first_iterations=0, iterations=3, last_iterations=0))


@pytest.fixture(scope="module")
def model() -> ArmModel:
    return ArmModel(load_scene("pusht_ur5e"))


@pytest.fixture(scope="module")
def world() -> Hidden:
    return hidden(11)


@pytest.fixture(scope="module")
def motion(model: ArmModel, world: Hidden) -> ArmMotion:
    return record(world, multisine(room(model), 5.6, seed=3, lines=6), smoothing=True)


@pytest.fixture(scope="module")
def held_out(model: ArmModel, world: Hidden) -> ArmMotion:
    return record(world, multisine(room(model), 2.0, seed=4, lines=5), "other", smoothing=True)


@pytest.fixture(scope="module")
def found(model: ArmModel, motion: ArmMotion, held_out: ArmMotion) -> ArmIdentified:
    return identify_arm([motion], model.scene, QUICK, [held_out])


def test_a_hidden_arm_is_found_again(found: ArmIdentified, world: Hidden) -> None:
    assert found.after.worst_deg < 0.1 < found.before.worst_deg
    assert found.after.tool_mm < 1.0
    # The controller's filter (0.03 s at gain 300, here 500) is part of the way.
    lag_s = 0.03 * np.sqrt(300.0 / 500.0)
    assert found.delay_s == pytest.approx(world.delay_s + lag_s, abs=0.005)
    assert found.value("smoothing") == pytest.approx(lag_s, abs=0.015)
    assert found.rollouts <= 140
    assert {f.name for f in found.found if f.status == "identified"} >= {
        *(f"friction of {n.replace('_', ' ')}" for n in UR5E.joint_names),
        "command delay",
    }
    # What is left over does not depend on the way: there is no backlash here.
    assert max(found.hysteresis_deg.values()) < 0.05


def test_what_is_called_identified_is_inside_its_interval(
    found: ArmIdentified, world: Hidden, model: ArmModel
) -> None:
    true = truth(world, model)
    known = [f for f in found.found if f.status == "identified"]
    assert len(known) > 12
    assert np.mean([f.low <= true[f.name] <= f.high for f in known]) > 0.93


def test_the_scale_of_a_light_joint_is_not_taken_for_known(found: ArmIdentified) -> None:
    """Its stiffness, friction and armature scaled together move it all the same; finite differences
    over long steps called that scale known to 5 %.
    """
    stiffness = next(f for f in found.found if f.name == "stiffness of wrist 3")
    assert stiffness.high > 1.5 * stiffness.low


def test_what_is_written_is_what_was_found(
    found: ArmIdentified, model: ArmModel, tmp_path: Path
) -> None:
    scene = write_identified_arm(found, model.scene, QUICK, tmp_path / "cell", source="test")
    again = ArmModel(scene)
    exact = [i for i, p in enumerate(again.parameters) if p.kind not in ("delay", "smoothing")]
    np.testing.assert_allclose(again.start[exact], found.fitted.x[exact], rtol=1e-6, atol=1e-6)
    # Whole steps of delay; what is left of one is a lag.
    assert again.start[-2:].sum() == pytest.approx(found.delay_s, abs=1e-6)
    details = scene.config.provenance.details
    assert details["template"] == "pusht_ur5e"
    assert details["parameters"]["payload"]["interval"][0] >= 0.0
    assert details["assumed"] == arm_document(found)["assumed"]
    # Identified once more it is replaced, and has one payload.
    twice = write_identified_arm(found, scene, QUICK, tmp_path / "cell")
    assert ArmModel(twice).start[exact] == pytest.approx(again.start[exact])


def test_a_touch_is_left_out_and_named(
    model: ArmModel, motion: ArmMotion, held_out: ArmMotion
) -> None:
    measured = motion.measured.copy()
    measured[1500:1600, 2] += 0.15
    touched = dataclasses.replace(motion, measured=measured)
    config = ArmIdentifyConfig(
        FitConfig(starts=0, first_iterations=0, iterations=0, last_iterations=0)
    )
    result = identify_arm([touched], model.scene, config, [held_out])
    assert any("elbow is up to" in n and "touched" in n for n in result.notes)
    measured[500:2500, 2] += 0.15
    with pytest.raises(DataError, match="cannot be explained by any arm"):
        identify_arm([touched], model.scene, config, [held_out])


def test_motions_that_tell_nothing_are_refused(motion: ArmMotion) -> None:
    with pytest.raises(DataError, match=r"moves for 1\.\d s .* at least 5 s"):
        checked_motions([motion.part(1.0, 2.6)], UR5E)
    still = dataclasses.replace(motion, measured=np.zeros_like(motion.measured))
    still = dataclasses.replace(still, sent=np.zeros_like(motion.sent))
    with pytest.raises(DataError, match="too little to find anything"):
        checked_motions([still], UR5E)
    five = dataclasses.replace(motion, sent=motion.sent[:, :5], measured=motion.measured[:, :5])
    with pytest.raises(DataError, match="have 5 joints, ur5e has 6; they are of another arm"):
        checked_motions([five], UR5E)
    with pytest.raises(DataError, match="degrees from its set-point"):
        checked_motions([dataclasses.replace(motion, sent=np.degrees(motion.sent))], UR5E)
    holes = motion.measured.copy()
    holes[700, 3] = np.nan
    with pytest.raises(DataError, match="not finite, the first is row 700"):
        checked_motions([dataclasses.replace(motion, measured=holes)], UR5E)


def test_gaps_and_still_joints_are_told(motion: ArmMotion) -> None:
    late = motion.measured_t_s + np.where(motion.measured_t_s > 2.8, 0.5, 0.0)
    checked = checked_motions([dataclasses.replace(motion, measured_t_s=late)], UR5E, least_s=1.0)
    assert len(checked.motions) == 2
    assert "clock jumps or pauses, so it is used as 2 parts" in checked.notes[0]
    sent, measured = motion.sent.copy(), motion.measured.copy()
    sent[:, 5], measured[:, 5] = sent[0, 5], measured[0, 5]
    checked = checked_motions([dataclasses.replace(motion, sent=sent, measured=measured)], UR5E)
    assert checked.moved.tolist() == [True] * 5 + [False]
    assert "wrist_3 did not move" in checked.notes[-1]
    sent[1000:2000, 5] = UR5E.high[5]
    checked = checked_motions([dataclasses.replace(motion, sent=sent, measured=measured)], UR5E)
    assert any("cut off at the joint's limit" in n for n in checked.notes)


def test_pieces_are_chosen_for_what_they_tell() -> None:
    believed = 1e-6 * np.eye(2)
    one, other, both = (np.diag(d) for d in ([4.0, 0.0], [0.0, 4.0], [1.0, 1.0]))
    assert sorted(d_optimal(np.array([one, other, both]), believed, 2)) == [0, 1]
    assert d_optimal(np.array([one, other, both]), believed, 1) == [2]
    assert sorted(narrowest(np.array([one, other, both]), believed, 2)) == [0, 1]


def test_the_narrowest_intervals_are_not_those_of_the_largest_determinant() -> None:
    """What tells two parameters only together has a determinant, and leaves both wide."""
    together = 100.0 * np.array([[1.0, 0.999], [0.999, 1.0]])
    apart = np.diag([12.0, 12.0])
    matrices, believed = np.array([together, apart]), np.eye(2)
    assert d_optimal(matrices, believed, 1) == [0]
    assert narrowest(matrices, believed, 1) == [1]


def test_a_chosen_motion_keeps_the_limits(model: ArmModel) -> None:
    own = dataclasses.replace(room(model), tool_speed=0.3)
    config = ExcitationConfig(seconds=4.0, piece_s=2.0, candidates=3, threads=1)
    chosen = informed(own, model, config)
    assert chosen.seconds == pytest.approx(4.0)
    qd = np.gradient(chosen.q, DT_S, axis=0)
    assert (np.abs(qd).max(axis=0) < own.speed).all()
    assert (np.abs(np.gradient(qd, DT_S, axis=0)).max(axis=0) < own.acceleration).all()
    tips = UR5E.fk_rows(chosen.q)
    tip = tips[:, :3, 3] + tips[:, :3, :3] @ model.mount.tip
    assert np.linalg.norm(np.diff(tip, axis=0), axis=1).max() / DT_S < own.tool_speed
    np.testing.assert_allclose(chosen.q[[0, -1]], own.home[None].repeat(2, axis=0), atol=1e-9)
