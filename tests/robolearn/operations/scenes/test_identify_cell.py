"""The arm of a cell is moved and identified by the functions behind ``identify --robot`` and
``capture``: an arm in process behind the motion, and a real supervisor's process under it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.commissioning.excite import excite
from hardware.env.real_env import RealEnv
from robolearn.capture.folder import read_capture
from robolearn.capture.write import CaptureWriter
from robolearn.cli.main import main
from robolearn.errors import ConfigError, SafetyStopError
from robolearn.operations.capture import take
from robolearn.operations.capture.options import CaptureOptions
from robolearn.operations.capture.plan import planned
from robolearn.operations.capture.take import capture_cell
from robolearn.operations.cell.operator import CellOperator
from robolearn.operations.scenes import identify_arm
from robolearn.operations.scenes.identify_arm import identify_capture, identify_cell
from sim.identification.arm_excitation import multisine
from sim.identification.arm_fit import FitConfig
from sim.identification.arm_identify import ArmIdentifyConfig
from sim.scene.load import load_scene
from tests.hardware.env.test_real_env_joints import HOME, cell
from tests.hardware.joint_wave import NoTask
from tests.robolearn.operations.hidden_cell import WORLD, HiddenCell

CELL = Path("configs/hardware/lab_ur5e_capture.yaml")
# Enough to be better than what was assumed.
QUICK = ArmIdentifyConfig(
    FitConfig(starts=0, first_iterations=0, iterations=0, last_iterations=0), held_out=0.25
)


@pytest.fixture(autouse=True)
def _chosen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """How a motion is chosen is tested elsewhere, and takes its time."""

    def chosen(room, model, config):
        assert model.arm.name == room.arm.name
        return multisine(room, config.seconds, seed=config.seed)

    monkeypatch.setattr(identify_arm, "informed", chosen)


def test_the_arm_of_a_cell_is_moved_and_identified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identify_arm, "RealEnv", HiddenCell)
    HiddenCell.made.clear()
    ticks: list[tuple[int, int]] = []
    asked: list[str] = []
    result = identify_cell(
        CELL,
        tmp_path / "cell",
        CellOperator(asked.append),
        seconds=10.0,
        settings=QUICK,
        on_moved=lambda done, of: ticks.append((done, of)),
    )
    assert asked[0].startswith("the arm moves in all joints for 22 s")
    assert ticks[0][0] == 0
    assert ticks[-1][0] == ticks[-1][1]
    (env,) = HiddenCell.made
    assert env.homes == 1
    found = result.found
    # The motion that was chosen is fitted, and the other one judges.
    assert (found.fit_s, found.held_out_s) == pytest.approx((10.0, 12.0), abs=0.3)
    assert found.after.worst_deg < 0.3 * found.before.worst_deg
    assert found.after.tool_mm < found.before.tool_mm
    # What the controller's look-ahead takes is in it.
    assert WORLD.delay_s < found.delay_s < WORLD.delay_s + 0.03
    assert result.scene.config.provenance.kind == "identified"
    assert result.scene.config.provenance.source == "cell lab_ur5e_capture"
    assert load_scene(str(tmp_path / "cell")).content_hash == result.scene.content_hash


def test_nobody_moves_without_consent_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(text: str) -> None:
        raise ConfigError(f"not agreed: {text}")

    monkeypatch.setattr(identify_arm, "RealEnv", HiddenCell)
    HiddenCell.made.clear()
    with pytest.raises(ConfigError, match="not agreed"):
        identify_cell(CELL, tmp_path / "cell", CellOperator(refuse), seconds=10.0)
    assert not HiddenCell.made
    assert not (tmp_path / "cell").exists()
    with pytest.raises(ConfigError, match="has the arm panda, the cell ur5e"):
        identify_cell(
            CELL, tmp_path / "cell", CellOperator(refuse), seconds=10.0, scene="panda_table"
        )


def test_the_motion_of_a_capture_is_made_kept_and_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take, "RealEnv", _NoCameras)
    out = tmp_path / "c"
    options = CaptureOptions(board_on="flange", poses=8, scan=0, excite_s=10.0)
    writer = CaptureWriter(out, planned(load_cell(CELL), options), resume=True)
    grey = np.full((480, 640, 3), 90, np.uint8)
    for name in ["background_side", *["handeye_side"] * 8]:
        writer.add(name, grey, t_s=1.0, T_base_tool=np.eye(4))
    # Cut off between the two files of the motion.
    (out / "motion").mkdir()
    (out / "motion" / "sent.csv").write_text("t_s,q1\n0.0,0.1\n")
    told: list[str] = []
    operator = CellOperator(lambda _: None)
    done = capture_cell(CELL, out, operator, options, on_note=told.append)
    assert done.calibrated is None
    assert done.problem
    assert "moving the arm for 10 s" in told
    assert len(read_capture(out).frames) == 9
    result = identify_capture(out, "pusht_ur5e", tmp_path / "cell", settings=QUICK)
    assert result.found.after.worst_deg < 0.3 * result.found.before.worst_deg
    # What is there is not made again.
    before = (out / "motion" / "sent.csv").read_bytes()
    told.clear()
    capture_cell(CELL, out, operator, options, on_note=told.append)
    assert "moving the arm for 10 s" not in told
    assert (out / "motion" / "sent.csv").read_bytes() == before


class _NoCameras(HiddenCell):
    """Whose pictures are all there already."""

    def __init__(self, config, **rest) -> None:
        super().__init__(identify_arm.excitation_cell(config) if config.cameras else config)


def test_a_supervised_arm_follows_the_motion_and_is_recorded() -> None:
    env = RealEnv(cell(), place=lambda _: "nothing to place", scorer=NoTask())
    t_s = np.arange(0.0, 0.8, 0.002)
    q = np.array(HOME) + 0.05 * (1.0 - np.cos(2 * np.pi * t_s / 0.8))[:, None]
    ticks: list[None] = []
    try:
        rows = excite(env, q, 500.0, lambda: ticks.append(None))
        assert len(ticks) == 16
        assert rows.sent.shape[1] == rows.measured.shape[1] == 6
        assert (np.diff(rows.sent_t_s) > 0).all()
        assert (np.diff(rows.measured_t_s) > 0).all()
        np.testing.assert_allclose(rows.measured[0], HOME, atol=2e-3)
        # The follower's law is behind the targets; the fake arm is where it was told to be.
        assert 0.05 < np.ptp(rows.sent[:, 0]) <= 0.101
        assert np.abs(rows.measured).max(axis=0).max() < 2.1
        # A motion that was stopped half-way is none.
        ticks.clear()

        def stop() -> None:
            ticks.append(None)
            if len(ticks) == 5:
                env.supervisor.estop()

        with pytest.raises(SafetyStopError, match="estop"):
            excite(env, q, 500.0, stop)
    finally:
        env.close()


def test_the_command_asks_for_a_cell_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["identify", "--robot", str(tmp_path / "none.yaml"), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "none.yaml" in capsys.readouterr().err
