"""Which episodes are filmed, and that what is filmed is the trial that counted."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np

from eval.filming import choose, film
from eval.trials.rollouts import Options, Plan, VideoPlan, evaluate
from eval.trials.table import TrialStore, read_trials
from tests.eval.mocks import conditions
from tests.eval.report_folder import trial
from tests.eval.trials.test_rollouts import CRITIC, FLOW, OPTIONS, A


def test_a_failure_of_each_kind_and_the_middle_and_the_ends_are_chosen():
    rows = [
        trial("p", "w", i, score, success, steps=steps, reason=reason)
        for i, (score, success, steps, reason) in enumerate(
            (
                (1.0, True, 90, "success"),
                (0.5, False, 300, "time_limit"),
                (1.0, True, 50, "success"),
                (0.2, False, 300, "time_limit"),
                (0.3, False, 100, "dropped"),
                (1.0, True, 70, "success"),
                (0.9, False, 300, "time_limit"),
            )
        )
    ]
    found = [(int(c.trial.condition[-4:]), c.why) for c in choose(rows, 10)]
    assert found == [
        (1, "first of its kind"),
        (5, "median success"),
        (4, "first of its kind"),
        (3, "got least far"),
        (0, "longest success"),
        (6, "got furthest"),
        (2, "shortest success"),
    ]
    assert [c.trial.condition[-1] for c in choose(rows, 2)] == ["1", "5"]
    assert choose([r for r in rows if r.success], 1)[0].why == "median success"
    moved = [dataclasses.replace(r, variant="moved") for r in rows]
    assert choose([*rows, *moved], 10) == choose(rows, 10)
    assert choose([], 3) == choose(rows, 0) == ()


class Writes:
    """Writes what it was given as text."""

    def __call__(self, path, frames, fps):
        assert all(isinstance(f, np.ndarray) for f in frames)
        path.write_text(f"{len(frames)} {frames[0].shape} {fps}")


def _film(folder, known, n=10, **changes):
    video = VideoPlan(folder / "videos", Writes(), clips=3, size=32, every=2)
    options: Options = dataclasses.replace(OPTIONS, video=video, **changes)
    starts = {"a": conditions(n)}
    with TrialStore(folder / "run") as store:
        rows = evaluate(
            [FLOW, CRITIC], [A], starts, store, dataclasses.replace(options, video=None)
        )
    with TrialStore(folder) as store:
        if not store.all():
            longer = 0 if known is None else 1
            store.add([dataclasses.replace(r, steps=r.steps + longer) for r in rows])
        return film(Plan((FLOW, CRITIC), (A,), options), starts, store)


def test_the_clip_is_of_the_trial_that_counted_and_is_made_once(tmp_path):
    clips = _film(tmp_path, None)
    files = sorted((tmp_path / "videos").iterdir())
    assert {c.trial.video for c in clips} == {f.name for f in files}
    assert {c.trial.policy for c in clips} == {"flow", "iql"}
    rows = {(r.policy, r.condition): r for r in read_trials(tmp_path)}
    assert len(rows) == 20
    for c in clips:
        kept = rows[c.trial.policy, c.trial.condition]
        assert kept == c.trial
        # The first picture, every second one, and the last.
        text = (tmp_path / "videos" / kept.video).read_text()
        assert text == f"{2 + kept.steps // 2} (32, 32, 3) 5.0"
    assert sum(bool(r.video) for r in rows.values()) == len(clips)
    times = [f.stat().st_mtime_ns for f in files]
    assert _film(tmp_path, None) == clips
    assert [f.stat().st_mtime_ns for f in files] == times


def test_a_trial_that_does_not_repeat_itself_gets_no_clip(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL)
    assert _film(tmp_path, "changed") == ()
    assert list((tmp_path / "videos").iterdir()) == []
    assert {r.video for r in read_trials(tmp_path)} == {""}
