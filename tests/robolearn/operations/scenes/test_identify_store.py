"""A store of an arm's episodes becomes a scene; bad episodes are left out and named."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from robolearn.arms.models import UR5E
from robolearn.config import find_config
from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.operations.scenes.identify_arm import identify_episodes
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Condition, Outcome
from sim.identification.arm_excitation import multisine
from sim.identification.arm_fit import FitConfig
from sim.identification.arm_identify import ArmIdentifyConfig
from sim.identification.arm_model import ArmModel
from sim.identification.arm_motion import ArmMotion, require_usable
from sim.scene.load import load_scene
from tests.sim.identification.arm_lab import DT_S, hidden, record, room

JOINTS, TOLD = "arm/joint_position", "arm/joint_setpoint"
RATE_HZ = 1.0 / DT_S
QUICK = ArmIdentifyConfig(
    FitConfig(starts=0, first_iterations=0, iterations=0, last_iterations=0), held_out=0.25
)


def _episode(streams: dict[str, np.ndarray]) -> Episode:
    signals = tuple(SignalSpec(n, v.shape[1:], "rad", RATE_HZ) for n, v in streams.items())
    steps = len(streams[JOINTS])
    action = ActionSpec("arm/x", (1,), "rad", RATE_HZ, low=(-1.0,), high=(1.0,))
    meta = EpisodeMeta(
        kind="deployment",
        task="",
        embodiment=EmbodimentSpec("cell", signals, (action,), RATE_HZ),
        condition=Condition("c", 0, {}),
        outcome=Outcome(False, 0.0, 0.0),
    )
    return episode_from_arrays(
        meta, streams, {"arm/x": np.zeros((steps, 1))}, progress=np.zeros(steps)
    )


def _recorded(motion: ArmMotion) -> dict[str, np.ndarray]:
    # A measurement is of the end of its period, a set-point of its beginning.
    return {JOINTS: motion.measured[:-1], TOLD: motion.sent[1:]}


@pytest.fixture(scope="module")
def motions() -> list[ArmMotion]:
    model = ArmModel(load_scene("pusht_ur5e"))
    world, place = hidden(11, backlash_rad=0.003), room(model)
    made = [multisine(place, s, seed=3 + k, lines=6) for k, s in enumerate((3.0, 3.0, 2.0))]
    return [record(world, m, smoothing=True) for m in made]


def test_a_store_becomes_a_scene(motions: list[ArmMotion], tmp_path: Path) -> None:
    good = [_recorded(m) for m in motions]
    lost = _episode(good[0])
    block = lost.streams[JOINTS]
    rare = dataclasses.replace(block, valid=np.arange(len(block.value)) % 50 == 0)
    lost = dataclasses.replace(lost, streams={**lost.streams, JOINTS: rare})
    other = {k: v[:, :5] for k, v in good[0].items()}
    silent = {JOINTS: good[0][JOINTS]}
    store = EpisodeStore.create(tmp_path / "store")
    with store.writer() as writer:
        writer.append(lost)
        for streams in (good[0], other, good[1], silent, good[2]):
            writer.append(_episode(streams))
    cell = find_config(Path("configs/hardware/lab_ur5e_pick_place.yaml"))
    result = identify_episodes(
        *(tmp_path / "store", "pusht_ur5e", tmp_path / "cell"),
        settings=QUICK,
        cell=cell,
        force_stop=True,
    )
    limit, told = result.scene.config.supervisor, load_cell(cell).supervisor
    assert limit is not None
    assert (limit.max_tool_force_n, limit.overload_s) == (told.max_tool_force_n, told.overload_s)
    found = result.found
    assert found.after.worst_deg < 0.15 < found.before.worst_deg
    assert (found.fit_s, found.held_out_s) == pytest.approx((6.0, 2.0), abs=0.1)
    assert found.rollouts < 100
    left_out = [n for n in found.notes if n.startswith("left out: ")]
    assert len(left_out) == 3
    for words in ("at least 50 are needed", "are of another arm", "no signal 'arm/joint_setpoint'"):
        assert any(words in n for n in left_out)
    details = result.scene.config.provenance.details
    assert details["notes"][:3] == left_out
    # Play is named, and friction there is not called known.
    loose = [f for f in found.found if any("backlash" in p for p in f.partners)]
    assert loose
    assert {f.status for f in loose} == {"ratio"}
    assert any("wrist" in f.name for f in loose)
    assert any("has backlash" in n and "beside the play" in n for n in found.notes)
    width = details["backlash_deg"]["wrist_1"]
    assert width["interval"][0] < np.degrees(0.003) < width["interval"][1]


def test_a_store_that_tells_nothing_is_refused(motions: list[ArmMotion], tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    with store.writer() as writer:
        writer.append(_episode({JOINTS: motions[0].measured}))
    with pytest.raises(DataError, match="none of 1 episodes can be used; the first: episode ep_0"):
        identify_episodes(tmp_path / "store", "pusht_ur5e", tmp_path / "cell")
    assert not (tmp_path / "cell").exists()


def test_shuffled_times_are_named(motions: list[ArmMotion]) -> None:
    t_s = np.random.default_rng(0).permutation(motions[0].measured_t_s)
    with pytest.raises(DataError, match="run backwards"):
        require_usable(dataclasses.replace(motions[0], measured_t_s=t_s), UR5E)
