"""Of two simulated worlds one stands for reality: swapped sides passed without a word."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from eval.trials.table import TrialStore, read_trials
from robolearn.errors import DataError
from robolearn.operations.evaluate import evaluate
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.trial.like import LikeOptions, evaluate_like
from robolearn.operations.trust.sides import require_sides
from robolearn.operations.trust.trials import trust_of_trials
from tests.robolearn.operations.trust.test_folders import rows, written

REALITY, SCENE = "gym_pusht", "pusht_reference"
NOT_TOLD = "nothing in the trials says which of both worlds is the reality"


def short_suite(folder: Path) -> Path:
    """Two starts, three steps."""
    lines = Path("configs/eval/pusht.yaml").read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("conditions"))
    text = "\n".join(lines[: first + 3]) + "\n"
    path = folder / "suite.yaml"
    text = text.replace("subset: 25", "subset: 2").replace("max_steps: 300", "max_steps: 3")
    path.write_text(text)
    return path


def test_what_was_simulated_like_the_other_side_is_no_reality(tmp_path: Path) -> None:
    real, sim, plain, both = (tmp_path / name for name in ("real", "sim", "plain", "both"))
    usual = EvaluateOptions(suite=short_suite(tmp_path), workers=0, videos=0, conditions=2)
    evaluate(["scripted"], real, dataclasses.replace(usual, worlds=(REALITY,)))
    evaluate(["scripted"], plain, dataclasses.replace(usual, worlds=(SCENE,)))
    asked = dataclasses.replace(usual, conditions=None, worlds=(SCENE,))
    how = LikeOptions(rollouts=2, real_world=REALITY)
    evaluate_like(["scripted"], real, sim, asked, how=how)
    again = dataclasses.replace(asked, worlds=(REALITY, SCENE))
    evaluate_like(["scripted"], real, both, again, how=how)

    # Told by what is like the other: nothing to remark.
    assert not [n for n in trust_of_trials([real], [sim]).report.notes if NOT_TOLD in n]
    with pytest.raises(DataError, match=r"swapped: the trials in '.*sim', .* began"):
        trust_of_trials([sim], [real])
    for swapped in (both, sim):
        with pytest.raises(DataError, match="the two sides are swapped"):
            trust_of_trials([swapped], [real], real_world=SCENE)
    # A repetition in the reality is real, also where it stands beside the simulated ones.
    trust_of_trials([real], [both], sim_world=SCENE)
    trust_of_trials([real, both], [both], real_world=REALITY, sim_world=SCENE)
    trust_of_trials([both], [plain], real_world=REALITY)
    # Two simulators are anybody's choice, which is said.
    for sides in ((real, plain), (plain, real)):
        notes = trust_of_trials([sides[0]], [sides[1]]).report.notes
        env = read_trials(sides[0])[0].env
        assert [n for n in notes if NOT_TOLD in n and f"that '{env}' is" in n]


def test_a_reality_is_told_by_its_name(tmp_path: Path) -> None:
    world = "reality/pusht,seed=3"
    reality, scene = rows(world, "sim"), rows("scene", "sim")
    assert require_sides(reality, scene, {}, {}) == ()
    with pytest.raises(DataError, match=f"swapped: '{world}', whose trials .* is a reality"):
        require_sides(scene, reality, {}, {})
    # One reality may be judged by another; that is a choice again.
    other = rows("reality/pusht,seed=4", "sim")
    assert NOT_TOLD in require_sides(reality, other, {}, {})[0]
    assert require_sides(rows("cell", "lab"), reality, {}, {}) == ()
    folder = written(tmp_path / "real", scene)
    (folder / "like.json").write_text("[]")
    with TrialStore(tmp_path / "sim") as table:
        table.add(rows("other", "sim"))
    with pytest.raises(DataError, match=r"like\.json"):
        trust_of_trials([folder], [tmp_path / "sim"])
