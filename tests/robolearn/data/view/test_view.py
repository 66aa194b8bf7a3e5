"""``robolearn data view``: what is in the rerun file, and the picture strip."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rerun.dataframe
from PIL import Image

from robolearn.cli.data.commands import main
from robolearn.cli.main import main as robolearn
from robolearn.data.episode import episode_from_arrays
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.annotations import Annotated, Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.data.view.curves import ASCII, JOINTS, SETPOINTS, episode_curves
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Outcome
from tests.episodes import IMAGE, TOOL, small_episode
from tests.recording import FORCE, SPEC, record


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording with a camera and signals at other rates, then an episode without."""
    folder = tmp_path_factory.mktemp("view") / "store"
    made = EpisodeStore.create(folder)
    with EpisodeRecorder(made, spec=SPEC, kind="rollout", codecs={IMAGE: "jpeg"}) as recorder:
        record(recorder)
    with made.writer() as writer:
        writer.append(small_episode(1))
        writer.annotate(Annotation(("ep_000000",), "me", note="the cable caught"))
    return folder


def component(recording: Any, path: str, name: str) -> list[Any]:
    table = recording.view(index="time", contents=path).select().read_all()
    return table.column(f"{path}:{name}").to_pylist()


def test_the_rerun_file_holds_everything_at_its_own_times(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.rrd"
    assert main(["view", str(store), "ep_000000", "--save", str(out)]) == 0
    recording = rerun.dataframe.load_recording(str(out))
    episode = EpisodeStore.open(store).read("ep_000000")
    assert component(recording, f"/signals/{FORCE}", "Scalar") == [
        pytest.approx(row.tolist()) for row in episode.streams[FORCE].value
    ]
    assert component(recording, f"/action/{TOOL}", "Scalar") == [
        pytest.approx(row.tolist()) for row in episode.action[TOOL]
    ]
    assert len(component(recording, f"/sent/{TOOL}", "Scalar")) == 40
    assert len(component(recording, f"/cameras/{IMAGE}", "Blob")) == 20
    times = recording.view(index="time", contents=f"/cameras/{IMAGE}").select().read_all()
    seconds = [t.total_seconds() for t in times.column("time").to_pylist()]
    start = episode.tick_t_ns[0]
    assert seconds == pytest.approx(((episode.streams[IMAGE].t_ns - start) * 1e-9).tolist())
    about = recording.view(index="time", contents="/about").select_static().read_all()
    (text,) = about.column("/about:Text").to_pylist()[0]
    assert "**success**" in text
    assert "note: the cable caught" in text


def test_the_strip_is_a_picture_with_frames_and_curves(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "strip.png"
    assert main(["view", str(store), "ep_000000", "--strip", str(out), "--frames", "4"]) == 0
    with Image.open(out) as picture:
        strip = np.asarray(picture.convert("RGB"))
    # Every tick's frame is one grey value, the tick's number: four of them are in the picture.
    flat = strip.reshape(-1, 3)
    for grey in (0, 6, 13, 19):
        near = (np.abs(flat.astype(int) - grey) <= 3).all(axis=1)
        assert near.sum() > 5000
    # More than one colour of curve below.
    assert len({tuple(c) for c in flat[::7].tolist()}) > 50


def test_an_episode_without_cameras_has_a_strip_too(store: Path, tmp_path: Path) -> None:
    assert main(["view", str(store), "--strip", str(tmp_path / "b.png")]) == 0
    assert (tmp_path / "b.png").stat().st_size > 5000


def test_pusht_is_drawn_from_its_poses(tmp_path: Path) -> None:
    out = tmp_path / "s"
    assert main(["import", "--out", str(out), "--limit", "1", "--json"]) == 0
    assert main(["view", str(out), "--strip", str(tmp_path / "c.png")]) == 0
    with Image.open(tmp_path / "c.png") as picture:
        flat = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    goal = (flat == (144, 238, 144)).all(axis=1)
    assert goal.sum() > 1000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--strip", "x.jpg"], "x.png"),
        (["--save", "x.bin"], "x.rrd"),
        (["--strip", "x.png", "--frames", "0"], "--frames"),
        (["ep_000009", "--strip", "x.png"], "ep_000009"),
        ([], "--strip"),
    ],
)
def test_bad_input_is_one_line(
    store: Path,
    options: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert robolearn(["data", "view", str(store), *options]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
    assert list(tmp_path.iterdir()) == []


def test_many_values_become_a_map_and_an_unknown_outcome_is_said(tmp_path: Path) -> None:
    wide = EmbodimentSpec(
        "arm", (SignalSpec("arm/all", (30,)),), (ActionSpec("arm/all", (30,)),), 10.0
    )
    base = small_episode(2)
    meta = dataclasses.replace(
        base.meta,
        embodiment=wide,
        outcome=Outcome(False, 0.0, 0.0, truncated=True),
        provenance={"progress": "unknown: zero"},
    )
    values = np.random.default_rng(0).random((12, 30))
    values[:, 3] = 1.0  # never moves
    episode = episode_from_arrays(
        meta, {"arm/all": values}, {"arm/all": values}, progress=np.zeros(12)
    )
    made = EpisodeStore.create(tmp_path / "s")
    with made.writer() as writer:
        writer.append(episode)
    assert main(["view", str(made.path), "--strip", str(tmp_path / "d.png")]) == 0
    with Image.open(tmp_path / "d.png") as picture:
        flat = np.asarray(picture.convert("RGB")).reshape(-1, 3).astype(int)
    # The colour map's ends are there; the red of a failure is not.
    for colour in ((68, 1, 84), (253, 231, 37)):
        assert (np.abs(flat - colour).max(axis=1) < 3).sum() > 1000
    assert not (flat == (0xC0, 0, 0)).all(axis=1).any()


def test_text_needs_no_display(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert robolearn(["data", "view", str(store), "ep_000000", "--text"]) == 0
    told = capsys.readouterr().out
    assert "the cable caught" in told
    assert "h human, s scripted" in told
    assert f"data note {store} ep_000000" in told
    assert robolearn(["data", "view", str(store), "ep_000009", "--text"]) == 2


def test_curves_show_shape_gaps_and_markers() -> None:
    episode = small_episode(0, 40)
    line = np.linspace(0.0, 1.0, 40)[:, None] * [1.0, 0.5]
    block = episode.streams[TOOL]
    valid = block.valid.copy()
    valid[10:20] = False
    episode = dataclasses.replace(
        episode,
        action={TOOL: line},
        streams={TOOL: dataclasses.replace(block, value=line, valid=valid)},
        source=("human:keys",) * 20 + ("hold",) * 20,
    )
    said = Annotated(markers=(1.0, 3.95))
    lines = episode_curves(episode, said, width=8, levels=ASCII)
    assert lines[0] == f"{'tool/xy_table[0] [m]':<30}        0 _.-~=+*# 1"
    # What was not measured is a gap, not a value.
    assert lines[1] == f"{'  as measured':<30}        0 _.  =+*# 1"
    assert lines[-2].endswith("hhhh.... h human, . hold")
    assert lines[-1].endswith("   |    |")
    assert episode_curves(dataclasses.replace(episode, tick_t_ns=np.zeros(0, np.int64)), said) == []
    still = dataclasses.replace(episode, action={TOOL: np.full((40, 2), 0.3)})
    assert "0.3 ======== 0.3" in episode_curves(still, said, width=8, levels=ASCII)[0]


def test_one_curve_says_how_far_the_arm_is_behind_its_set_points() -> None:
    made = small_episode(0, 40)
    told = np.linspace(0.0, 1.0, 40)[:, None] * np.ones(6)
    late = told.copy()
    late[20:, 2] -= 0.25
    joints = {JOINTS: late, SETPOINTS: told}
    signals = tuple(SignalSpec(name, (6,), "rad", 500.0) for name in joints)
    spec = dataclasses.replace(made.meta.embodiment, signals=signals)
    episode = episode_from_arrays(
        dataclasses.replace(made.meta, embodiment=spec),
        joints,
        dict(made.action),
        progress=made.progress,
    )
    lines = episode_curves(episode, Annotated(), width=8, levels=ASCII)
    assert f"{'joints off set-points [rad]':<30}        0 ____#### 0.25" in lines
    only = {JOINTS: episode.view[JOINTS]}
    lines = episode_curves(dataclasses.replace(episode, view=only), Annotated(), width=8)
    assert not [line for line in lines if "set-points" in line]
