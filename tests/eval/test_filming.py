"""Which episodes are filmed, and that what is filmed is the trial that counted."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import pytest

from eval.filming import choose, film
from eval.trials.clips import CommandLog, VideoPlan, keep, kept
from eval.trials.rollouts import Options, Plan, evaluate
from eval.trials.table import TrialStore, read_trials
from robolearn.types import Command
from tests.eval.mocks import MockEnv, conditions
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


class NoPolicy:
    """Stands where the policy was."""

    def __call__(self):
        raise AssertionError("the policy was asked once more")


@pytest.mark.parametrize("workers", [0, 2])
def test_what_was_commanded_is_flown_again_without_the_policy(tmp_path, workers):
    def filmed(policies, folder):
        video = VideoPlan(folder / "videos", Writes(), 3, 32, 2, flown=folder / "flown")
        options = dataclasses.replace(OPTIONS, video=video, workers=workers)
        starts = {"a": conditions(10)}
        with TrialStore(tmp_path) as store:
            evaluate([FLOW, CRITIC], [A], starts, store, options)
            return film(Plan(policies, (A,), options), starts, store)

    absent = tuple(dataclasses.replace(p, build=NoPolicy()) for p in (FLOW, CRITIC))
    clips = filmed(absent, tmp_path)
    assert len(clips) == 6
    assert not (tmp_path / "flown").exists()
    # The same pictures as those of whole chunks.
    texts = {f.name: f.read_text() for f in (tmp_path / "videos").iterdir()}
    assert filmed((FLOW, CRITIC), tmp_path / "later") == clips
    assert {f.name: f.read_text() for f in (tmp_path / "later/videos").iterdir()} == texts


def test_commands_that_cannot_be_read_are_flown_as_a_chunk(tmp_path):
    video = VideoPlan(tmp_path / "videos", Writes(), 3, 32, 2, flown=tmp_path / "flown")
    options = dataclasses.replace(OPTIONS, video=video)
    starts = {"a": conditions(10)}
    with TrialStore(tmp_path) as store:
        evaluate([FLOW], [A], starts, store, options)
        files = sorted((tmp_path / "flown").iterdir())
        assert len(files) == 3
        files[0].write_bytes(b"")
        files[1].write_bytes(files[1].read_bytes()[:99])
        files[2].unlink()
        assert len(film(Plan((FLOW,), (A,), options), starts, store)) == 3


def test_trials_count_also_where_commands_cannot_be_kept(tmp_path, caplog):
    (tmp_path / "flown").write_text("a file")
    video = VideoPlan(tmp_path / "videos", Writes(), 3, 32, 2, flown=tmp_path / "flown")
    options = dataclasses.replace(OPTIONS, video=video)
    starts = {"a": conditions(10)}
    with TrialStore(tmp_path) as store:
        assert len(evaluate([FLOW], [A], starts, store, options)) == 10
        assert "commands are not kept" in caplog.text
        assert len(film(Plan((FLOW,), (A,), options), starts, store)) == 3


def test_commands_come_back_bit_for_bit(tmp_path):
    rng = np.random.default_rng(0)
    logs = [CommandLog(), CommandLog(), CommandLog()]
    for log, steps in zip(logs, (5, 3, 0), strict=True):
        log.commands = [
            Command(7 + i, {"a": rng.normal(size=2), "b/c": rng.normal(size=(1, 3))}, 10 * i, "x")
            for i in range(steps)
        ]
    keep(tmp_path, ["k", 1], dict(enumerate(logs)))
    assert kept(tmp_path, ["k", 2], [0]) == {}
    assert kept(tmp_path, ["k", 1], [3]) == {}
    env = MockEnv("a", "", None)
    env.reset(conditions(1)[0], rng)
    seen = env.observe()
    found = kept(tmp_path, ["k", 1], [1, 0])
    assert list(found) == [1, 0]
    for lane, agent in found.items():
        for _ in range(2):
            agent.reset(0)
            for want in logs[lane].commands:
                command = agent.decide(seen, None)
                assert (command.seq, command.due_ns) == (want.seq, want.due_ns)
                assert {k: v.tobytes() for k, v in command.action.items()} == {
                    k: v.tobytes() for k, v in want.action.items()
                }
        # What goes on for longer holds still.
        assert agent.decide(seen, None) is command
