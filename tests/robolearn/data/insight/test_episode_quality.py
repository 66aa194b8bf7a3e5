"""Episodes are judged while the person still stands there: numbers, warnings in words."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.arms.slowing import Slowed
from robolearn.cli.main import main
from robolearn.data.episode import Episode
from robolearn.data.insight.episode_measures import EVENT, EpisodeMeasures, measure_episode
from robolearn.data.insight.verdict import Thresholds, judge_episode
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.annotations import Annotated
from robolearn.data.store.store import EpisodeStore
from robolearn.data.view.curves import episode_curves
from robolearn.errors import ConfigError, StoreError
from robolearn.operations.stores.quality import CAUSES, QualityWatch, judge_quality
from robolearn.spec import EmbodimentSpec, SignalSpec
from robolearn.types import SampleBlock
from tests.episodes import IMAGE, TOOL, small_episode
from tests.recording import END, HEADER, SPEC, make_tick

RATE = 10.0


def moving(steps: int = 60, image: bool = False) -> Episode:
    """A tool that is commanded along a line, from 0.1 to 0.9 m; solved at its end."""
    episode = small_episode(0, steps, image)
    line = np.linspace(0.1, 0.9, steps)[:, None] * np.ones(2)
    return dataclasses.replace(
        episode,
        action={TOOL: line},
        progress=np.linspace(0.0, 1.0, steps),
        source=("human",) * steps,
    )


def kinds(episode: Episode, earlier: list[EpisodeMeasures] | None = None) -> list[str]:
    verdict = judge_episode(measure_episode(episode), earlier or [], causes=CAUSES)
    return [r.kind for r in verdict.remarks]


def test_a_sound_episode_has_no_remarks() -> None:
    verdict = judge_episode(measure_episode(moving(image=True)))
    assert verdict.sound
    m = verdict.measures
    assert (m.idle, m.held, m.late, m.lost_frames, m.saturated) == (0.0, 0.0, 0.0, 0.0, 0.0)
    assert (m.duration_s, m.final, m.cameras[0].frames) == (6.0, 1.0, 60)


def test_standing_still_is_said_in_seconds() -> None:
    episode = moving(120)
    action = episode.action[TOOL].copy()
    action[20:101] = action[20]
    still = dataclasses.replace(episode, action={TOOL: action})
    remark = judge_episode(measure_episode(still)).remarks[0]
    assert (remark.kind, remark.text) == ("idle", "it stood still for 8.0 of 12.0 s")
    assert "data.idle" in remark.advice
    # A pause of three tenths of a second is part of a motion.
    action = episode.action[TOOL].copy()
    action[20:23] = action[20]
    assert measure_episode(dataclasses.replace(episode, action={TOOL: action})).idle == 0.0
    # One long pause of a long episode.
    action = moving(300).action[TOOL].copy()
    action[20:70] = action[20]
    assert kinds(dataclasses.replace(moving(300), action={TOOL: action})) == ["pause"]


def test_a_device_that_nobody_holds_and_limits_are_said() -> None:
    episode = moving()
    loose = dataclasses.replace(episode, source=("hold",) * 40 + ("human",) * 20)
    assert kinds(loose) == ["held"]
    pushed = np.clip([2.0, 1.0] * episode.action[TOOL], 0.0, 1.0)
    cut = dataclasses.replace(episode, action={TOOL: pushed})
    remark = judge_episode(measure_episode(cut)).remarks[0]
    assert remark.kind == "saturated"
    assert "'tool/xy_table[0]' stood at its limit for" in remark.text


def test_late_ticks_lost_frames_and_old_signals_are_said() -> None:
    episode = moving()
    t_ns = episode.tick_t_ns.copy()
    t_ns[30:] += 300_000_000
    late = dataclasses.replace(episode, tick_t_ns=t_ns)
    found = measure_episode(late)
    assert found.late == pytest.approx(1 / 59)
    # What is shown is as old as the tick is late.
    assert {r.kind for r in judge_episode(found).remarks} == {"late", "age"}
    episode = moving(image=True)
    block = episode.streams[IMAGE]
    valid = block.valid.copy()
    valid[3:5] = False
    gone = np.delete(np.arange(60), [20, 21, 22])
    frames = SampleBlock(block.t_ns[gone], block.value[:0], valid[gone])
    view = {**episode.view, IMAGE: np.searchsorted(gone, np.arange(60), side="right") - 1}
    lost = dataclasses.replace(episode, streams={**episode.streams, IMAGE: frames}, view=view)
    camera = measure_episode(lost).cameras[0]
    assert (camera.frames, camera.lost) == (55, 5)
    assert "'top/image': 5 frames lost, 8.3% are missing" in [
        r.text for r in judge_episode(measure_episode(lost)).remarks
    ]
    dead = {TOOL: episode.streams[TOOL]}
    blind = dataclasses.replace(episode, streams=dead, view={TOOL: episode.view[TOOL]})
    assert any("no picture came" in r.text for r in judge_episode(measure_episode(blind)).remarks)


def with_frames(episode: Episode, rows: np.ndarray, late_ns: int = 0) -> Episode:
    """Those frames of it alone, so late; each tick shows the newest that came, or the first."""
    block = episode.streams[IMAGE]
    t_ns = block.t_ns[rows] - late_ns
    frames = SampleBlock(t_ns, block.value[:0], block.valid[rows])
    come = np.searchsorted(t_ns + late_ns, episode.tick_t_ns, side="right")
    newest = np.maximum(come - 1, 0)
    view = {**episode.view, IMAGE: newest}
    return dataclasses.replace(episode, streams={**episode.streams, IMAGE: frames}, view=view)


@pytest.mark.parametrize(
    ("rows", "lost"),
    [
        (np.arange(60), 0),
        (np.arange(30), 30),
        (np.arange(30, 60), 30),
        (np.arange(20, 40), 40),
        (np.arange(1), 59),
        (np.arange(59), 0),
    ],
    ids=["all", "stopped", "began late", "both", "one alone", "the last is on its way"],
)
@pytest.mark.parametrize("late_s", [0.0, 0.25])
def test_frames_before_the_first_and_after_the_last_are_missed(
    rows: np.ndarray, lost: int, late_s: float
) -> None:
    episode = moving(image=True)
    found = measure_episode(with_frames(episode, rows, round(1e9 * late_s)))
    camera = found.cameras[0]
    # A camera that is late by a quarter of a second began so much earlier, too.
    away = round(RATE * late_s) if rows[0] and late_s else 0
    assert camera.frames == len(rows)
    assert abs(camera.lost - lost) <= away
    shown = {age.name: age.most_s for age in found.ages}[IMAGE]
    assert shown == pytest.approx(late_s + max(0, 59 - int(rows[-1])) / RATE)


def supervised(episode: Episode, *told: tuple[int, float]) -> Episode:
    """The same episode with events of the supervisor: cause, and when [s]."""
    rows = np.array([[cause, 1, 1, 3] for cause, _ in told], dtype=np.float64)
    times = np.array([round(1e9 * at_s) for _, at_s in told])
    spec = episode.meta.embodiment
    event = SignalSpec(EVENT, (4,))
    meta = dataclasses.replace(
        episode.meta, embodiment=dataclasses.replace(spec, signals=(*spec.signals, event))
    )
    valid = np.ones(len(told), dtype=np.bool_)
    streams = {**episode.streams, EVENT: SampleBlock(times, rows, valid)}
    view = {**episode.view, EVENT: np.zeros(60, dtype=np.int64)}
    return dataclasses.replace(episode, meta=meta, streams=streams, view=view)


def test_what_slowed_the_arm_is_said_and_for_how_long() -> None:
    episode = moving()
    start_s, end_s = (1e-9 * int(episode.tick_t_ns[k]) for k in (0, -1))
    spells = (Slowed.SINGULARITY, 0.2), (Slowed.JOINT_SPEED, 1.4), (Slowed.OVER, 1.6)
    told = [(int(cause), start_s + at_s) for cause, at_s in spells]
    slowed = supervised(episode, (0, 0.0), *told, (int(Slowed.JOINT_LIMIT), end_s - 1.7))
    measured = measure_episode(slowed)
    assert measured.slowed_s == pytest.approx({54: 1.2, 55: 1.7, 56: 0.2})
    remarks = judge_episode(measured, causes=CAUSES).remarks
    # What is over at once is not worth a word, and none of it is an intervention.
    assert [(r.kind, r.text) for r in remarks] == [
        ("slowed", "it was slowed for 1.2 s: near a singularity"),
        ("slowed", "it was slowed for 1.7 s: before a joint's limit"),
    ]
    row = next(r for r in episode_curves(slowed, Annotated(), width=12) if "supervisor" in r)
    assert row.endswith(", ".join(f"{k[0]} {k[1].words}" for k in zip("slv", Slowed, strict=False)))
    assert row.count("s") > row.count("v")


def test_the_supervisor_and_the_outcome_are_said() -> None:
    episode = moving()
    stopped = supervised(episode, (0, 0.0), (7, 1.0), (9, 2.0), (9, 3.0))
    verdict = judge_episode(measure_episode(stopped), causes=CAUSES)
    row = next(r for r in episode_curves(stopped, Annotated(), width=12) if "supervisor" in r)
    assert row.endswith("! stepped in")
    assert verdict.remarks[0].text == (
        "the supervisor stepped in 3 times (unreachable 1x, agent_silent 2x)"
    )
    dropped = episode.progress.copy()
    dropped[-10:] = 0.3
    assert kinds(dataclasses.replace(episode, progress=dropped)) == ["undone"]
    outcome = dataclasses.replace(episode.meta.outcome, success=False, reason="time_limit")
    failed = dataclasses.replace(episode, meta=dataclasses.replace(episode.meta, outcome=outcome))
    assert kinds(failed) == ["unsolved"]
    rollout = dataclasses.replace(failed, meta=dataclasses.replace(failed.meta, kind="rollout"))
    assert kinds(rollout) == []


def test_short_and_empty_episodes_are_judged_too() -> None:
    assert kinds(moving(3)) == ["short"]
    one = measure_episode(moving(1))
    assert (one.steps, one.jitter_s, one.late, one.idle) == (1, 0.0, 0.0, 0.0)
    none = np.zeros(0, dtype=np.int64)
    empty = moving(1)
    empty = dataclasses.replace(
        empty,
        tick_t_ns=none,
        streams={},
        view={},
        action={TOOL: np.zeros((0, 2))},
        source=(),
        progress=np.zeros(0),
        terminal=np.zeros(0, dtype=np.bool_),
    )
    assert kinds(empty) == ["empty"]
    # A picture of another shape, no actions at all: nothing to say, nothing raised.
    bare = EmbodimentSpec("bare", (), (), RATE)
    idle = dataclasses.replace(
        moving(30), meta=dataclasses.replace(moving().meta, embodiment=bare), action={}, streams={}
    )
    assert measure_episode(idle).saturation == ()


def test_what_is_usual_is_learned_from_earlier_episodes() -> None:
    earlier = [measure_episode(moving(steps)) for steps in range(55, 66)]
    assert kinds(moving(60), earlier) == []
    assert kinds(moving(200), earlier) == ["long"]
    assert kinds(moving(20), earlier) == ["short"]
    verdict = judge_episode(measure_episode(moving(60)), earlier)
    assert (verdict.earlier, verdict.ranks["duration_s"]) == (11, pytest.approx(5 / 11))
    # Those of another task say nothing about this one, and a few say too little.
    other = [dataclasses.replace(e, task="other") for e in earlier]
    assert judge_episode(measure_episode(moving(200)), other).sound
    assert judge_episode(measure_episode(moving(200)), earlier[:3]).ranks == {}
    with pytest.raises(ConfigError, match="idle must be at least 0"):
        Thresholds(idle=-1.0)
    with pytest.raises(ConfigError, match="unusual must be above 1"):
        Thresholds(unusual=1.0)


def test_a_store_is_judged_and_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "store"
    with EpisodeStore.create(path).writer() as writer:
        for steps in (60, 3, 60):
            writer.append(moving(steps, image=True))
    found = judge_quality(path)
    assert found.doubtful == ("ep_000001",)
    # Frames are counted without decoding them: the same as of the episode in memory.
    in_memory = measure_episode(moving(60, image=True))
    assert dataclasses.replace(found.verdicts[0].measures, id="") == in_memory
    argv = ["data", "quality", str(path), "--json"]
    assert main([*argv, "--episode", "ep_000001", "--label", "doubtful"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [e["remarks"][0]["kind"] for e in document["episodes"]] == ["short"]
    assert document["labelled"] == ["ep_000001"]
    assert EpisodeStore.open(path).info("ep_000001").labels == ("doubtful",)
    assert main(["data", "quality", str(path), "--shortest-s", "0.1", "--label", "doubtful"]) == 0
    assert "all sound" in capsys.readouterr().out
    assert main(["data", "quality", str(path), "--episode", "ep_000009"]) == 2
    assert "ep_000009" in capsys.readouterr().err


def test_an_episode_is_judged_before_it_is_saved(tmp_path: Path) -> None:
    store = EpisodeStore.create(tmp_path / "store")
    watch = QualityWatch(store)
    with EpisodeRecorder(store, spec=SPEC, kind="demonstration", autosave=False) as recorder:
        with pytest.raises(StoreError, match="no finished episode"):
            recorder.waiting()
        recorder.on_start(HEADER)
        for k in range(4):
            recorder.on_tick(make_tick(k))
        recorder.on_end(END)
        verdict = watch.judge(recorder.waiting())
        assert "short" in [r.kind for r in verdict.remarks]
        saved = recorder.keep()
        watch.keep(verdict)
    judged = judge_quality(store.path).verdicts[0]
    assert judged.measures == dataclasses.replace(verdict.measures, id=saved)
