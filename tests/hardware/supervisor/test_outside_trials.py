"""A few of the trials from outside; all of them with ``-m slow`` (see ``outside_trials.py``)."""

import pytest

from tests.hardware.outside_trials import run, text


@pytest.mark.parametrize(("kind", "last"), [("pause", 34), ("far", 35), ("rival", 36)])
def test_what_comes_from_outside_moves_no_arm_beyond_its_limits(kind, last):
    outcomes = run(kind, 2, seed=1, last=last)
    if all(o.kind == "spoiled" for o in outcomes):
        # Two drives that a busy machine stopped before anything reached them: no trial yet.
        outcomes = run(kind, 2, seed=2, last=last)
    assert [o.wrong for o in outcomes if o.wrong] == [], text(outcomes)
    assert any(o.kind != "spoiled" for o in outcomes), text(outcomes)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("pause", 50), ("far", 50), ("rival", 20)])
def test_all_trials_from_outside(kind, count):
    outcomes = run(kind, count)
    print(text(outcomes))
    assert [o.wrong for o in outcomes if o.wrong] == []
