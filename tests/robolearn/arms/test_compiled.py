"""What a tick calls is compiled before it, keeps its numbers and takes nothing but numbers."""

import dataclasses
import importlib.util
import math
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest

from hardware.supervisor.joint_follower import JointFollowerConfig
from hardware.supervisor.link import Mode
from robolearn.arms.compiled import drive_forms, forms, kernel
from robolearn.arms.compiled.ahead import compile_all
from robolearn.arms.differential import DampedStep
from robolearn.arms.packed import packed
from robolearn.arms.tool_path import ToolPathLimits
from tests.benchmarks.bench_supervisor import RECIPE, SPACE
from tests.hardware.workcell import FOLLOWER, Cell, in_joint_space, joints_at

HOME = np.array(SPACE.home)
JERKY = dataclasses.replace(SPACE.limits, max_jerk=20.0, max_rotation_jerk=60.0)
WIDE = ToolPathLimits((-1.4, -1.4, 0.005), (1.0, 1.4, 1.4))


def compiled():
    return sum(len(made.signatures) for made in kernel.KERNELS)


def tool(limits, **space):
    return dataclasses.replace(
        RECIPE, space=dataclasses.replace(SPACE, limits=limits, **space), collision=None
    )


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.parametrize(
    "recipe",
    [
        RECIPE,
        tool(JERKY),
        tool(WIDE, action="tool/pose"),
        in_joint_space("ur5e", table_height_m=0.0, tool_length_m=0.12, max_tool_speed=0.5),
        FOLLOWER,
    ],
)
def test_nothing_is_compiled_while_an_arm_follows(recipe):
    home = np.array(joints_at((0.256, 0.3))) if recipe is FOLLOWER else HOME
    cell = Cell(recipe=recipe, q=home)
    before = compiled()
    assert before > 0
    # A guided move there and back.
    for way in (0.1, 0.0):
        cell.ask("goto", [home + way * np.eye(6)[0]])
        cell.run(3.0)
        assert cell.mode is Mode.HOLD
        np.testing.assert_allclose(cell.supervisor.robot.state().joint_position[0], home[0] + way)
    cell.follow()
    start = cell.follower.action(home)
    joints = isinstance(recipe, JointFollowerConfig)
    # Far away, into the border or a singularity, nowhere, silence, and back.
    for change in (0.3, -1.0, 1.0, np.nan, None, 0.0):
        if change is None:
            cell.run(0.3)
            cell.ask("hold")
            cell.run(0.5)
            cell.follow()
            continue
        value = start.copy()
        value[: len(value) if joints else 3] += change * (0.5 if joints else 0.24)
        cell.drive([value] * 10, 0.05)
    cell.ask("hold")
    cell.run(1.0)
    assert cell.mode is Mode.HOLD
    cell.close()
    assert compiled() == before


def test_a_drives_numbers_in_one_piece_are_those_of_its_forms():
    dof, links = 7, 13
    rng = np.random.default_rng(0)

    def some(*shape):
        return rng.normal(size=shape)

    def norms():
        return forms.Norms(*some(3).tolist())

    marks = np.arange(4, dtype=np.int64)
    bounds = forms.DriveBounds(
        forms.Chain(some(12), some(12), some(dof, links)),
        forms.PathBounds(*some(3).tolist(), norms(), norms(), 0.5, some(3), some(3)),
        forms.StepBounds(*some(4, dof), *some(6).tolist()),
        forms.JointBounds(*some(5, dof), *some(3).tolist(), some(2, 3)),
        *some(4).tolist(),
    )
    path = forms.PathState(some(13), some(7), some(4, 4), some(6), some(3, 13), marks[:1])
    joints = forms.JointState(*some(2, dof), some(2 * dof), some(5, 2 * dof), marks[1:2])
    state = forms.DriveState(path, joints, some(6, dof), some(dof, 6), some(2), marks[2:])
    sizes = np.array((dof, links, 3, 5), dtype=np.int64)
    # Nothing of them is left out, and everything is where it was.
    views, numbers, whole = packed(state)
    again = drive_forms.state_of.py_func(numbers, whole, sizes)
    assert len(packed(again)[1]) == len(numbers) > 0
    assert repr(again) == repr(views) == repr(state)
    numbers += 1.0
    whole += 1
    assert repr(again) == repr(views) != repr(state)
    again = drive_forms.bounds_of.py_func(packed(bounds)[1], sizes)
    assert repr(packed(again)) == repr(packed(bounds))


@pytest.mark.parametrize("dof", [5, 6, 7])
@pytest.mark.parametrize("worst", [1.0, 1e-3, 1e-9, 0.0])
def test_singular_values_and_the_inverse_are_those_of_lapack(dof, worst):
    rng = np.random.default_rng(dof)
    U, S, Vt = np.linalg.svd(rng.normal(size=(6, dof)), full_matrices=False)
    S[-1] *= worst
    step = DampedStep((-3.0,) * dof, (3.0,) * dof, (1e9,) * dof, (1e9,) * dof)
    made = step.speeds(np.zeros(dof), (U * S) @ Vt, np.zeros(6))
    assert made.smallest == pytest.approx(S[-1], abs=1e-14)
    c = step.singularity
    damping = c.damping**2 * (1.0 - (S[-1] / c.damped) ** 2) if S[-1] < c.damped else 0.0
    expected = (Vt.T * (S / (S * S + damping))) @ U.T
    np.testing.assert_allclose(made.inverse, expected, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300])
@pytest.mark.parametrize("dof", [5, 6, 7])
def test_a_jacobian_without_singular_values_is_an_error(bad, dof):
    step = DampedStep((-3.0,) * dof, (3.0,) * dof, (1.0,) * dof, (1.0,) * dof)
    for at in np.ndindex(6, dof):
        J = np.eye(6, dof) + 0.1
        J[at] = bad
        with pytest.raises(FloatingPointError, match="singular values"):
            step.speeds(np.zeros(dof), J, np.ones(6))


def test_where_nothing_can_be_kept_functions_are_compiled_all_the_same(monkeypatch):
    for place in (kernel.InNamedPlace, kernel.BesideSource, kernel.InUserCache):
        monkeypatch.setattr(place, "ensure_cache_path", _refuse)
    monkeypatch.setattr(kernel, "KERNELS", [])
    assert kernel.kernel(_twice)(2.0) == 4.0


@pytest.mark.parametrize("harm", ["full disk", "damaged index", "damaged code"])
def test_a_cache_that_fails_keeps_no_arm_from_being_driven(harm, monkeypatch, tmp_path, caplog):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel, "KERNELS", [])
    if harm == "full disk":
        monkeypatch.setattr(kernel.caching.IndexDataCacheFile, "save", _refuse)
    else:
        assert kernel.kernel(_twice)(2.0) == 4.0
        (kept,) = tmp_path.rglob("*.nbi" if harm == "damaged index" else "*.nbc")
        kept.write_bytes(b"\x80no such thing")
    assert kernel.kernel(_twice)(2.0) == 4.0
    assert "compiled code" in caplog.text


def test_everything_can_be_compiled_ahead():
    """As the setup does; what an arm is driven by needs nothing else then."""
    compile_all()
    before = compiled()
    Cell(recipe=RECIPE, q=HOME).close()
    assert compiled() == before


def _refuse(self, *_):
    raise OSError("read-only")


def _twice(x):
    return 2.0 * x


def test_what_was_compiled_holds_for_the_sources_of_all_that_is_called(tmp_path):
    copy = tmp_path / "kernel.py"
    copy.write_bytes(Path(kernel.__file__).read_bytes())
    spec = importlib.util.spec_from_file_location("a_copy_of_kernel", copy)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    stamps = set()
    for text in ("A = 1", "A = 2"):
        (tmp_path / "called.py").write_text(text)
        made.sources_digest.cache_clear()
        for place in (made.InNamedPlace, made.BesideSource, made.InUserCache):
            stamps.add(place.get_source_stamp(None))
    assert len(stamps) == 2


def test_who_only_names_limits_does_not_wait_for_numba():
    code = (
        "import sys; import robolearn.arms.tool_drive, robolearn.arms.joint_path,"
        " robolearn.arms.collision, hardware.supervisor.tool_follower; assert 'numba' not in"
        " sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
