"""Long recordings become episodes: every row is that of the recording, and whole or not at all."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.data.episode import Episode
from robolearn.data.markers import MARKER
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.cut import cut_store
from robolearn.data.upkeep.pieces import CutConfig, Piece, find_pieces
from robolearn.data.view.cameras import open_camera
from robolearn.errors import ConfigError, DataError
from robolearn.spec import ActionSpec
from robolearn.types import SampleBlock
from tests.episodes import IMAGE, TOOL, small_episode
from tests.recording import SPEC, record

STEPS = 120
WIDTH = ActionSpec("gripper/width", (1,), "m", 10.0, low=(0.0,), high=(0.08,))


def play(image: bool = False) -> Episode:
    """Twelve seconds: it moves, stands from 3 to 5 s, moves, stands from 9 s to the end."""
    episode = small_episode(7, STEPS, image)
    at = np.cumsum(np.full(STEPS, 0.005))
    at[30:51] = at[30]
    at[90:] = at[89]
    outcome = dataclasses.replace(episode.meta.outcome, reason="operator")
    meta = dataclasses.replace(episode.meta, kind="play", task="free", outcome=outcome)
    return dataclasses.replace(episode, meta=meta, action={TOOL: at[:, None] * np.ones(2)})


def marked(times_s: tuple[float, ...]) -> Episode:
    """The same with markers as a session records them; number 0 is the start."""
    episode = play()
    spec = episode.meta.embodiment
    meta = dataclasses.replace(
        episode.meta, embodiment=dataclasses.replace(spec, signals=(*spec.signals, MARKER))
    )
    t_ns = np.array([0, *(round(t * 1e9) for t in times_s)], dtype=np.int64)
    number = np.arange(len(t_ns), dtype=np.float64)[:, None]
    block = SampleBlock(t_ns, number, np.ones(len(t_ns), dtype=np.bool_))
    view = np.searchsorted(t_ns, episode.tick_t_ns, side="right") - 1
    return dataclasses.replace(
        episode,
        meta=meta,
        streams={**episode.streams, MARKER.name: block},
        view={**episode.view, MARKER.name: view},
    )


def store_of(path: Path, *episodes: Episode) -> EpisodeStore:
    with EpisodeStore.create(path).writer() as writer:
        for episode in episodes:
            writer.append(episode)
    return EpisodeStore.open(path)


def test_pauses_are_left_out_and_every_row_is_the_recordings(tmp_path: Path) -> None:
    source = store_of(tmp_path / "s", play(image=True))
    made = cut_store(source, tmp_path / "o", CutConfig(by="idle"))
    store = EpisodeStore.open(made.store)
    assert (made.pieces, made.too_short) == ({"ep_000000": ("ep_000000", "ep_000001")}, 0)
    whole = source.read("ep_000000")
    for name, (begin, end) in zip(store.ids(), ((0, 33), (49, 92)), strict=True):
        piece, rows = store.read(name), slice(begin, end)
        assert piece.steps == end - begin
        np.testing.assert_array_equal(piece.tick_t_ns, whole.tick_t_ns[rows])
        for signal in (TOOL, IMAGE):
            np.testing.assert_array_equal(piece.observed(signal), whole.observed(signal)[rows])
        np.testing.assert_array_equal(piece.action[TOOL], whole.action[TOOL][rows])
        assert piece.meta.kind == "play"
        assert piece.meta.condition.poses[TOOL] == tuple(whole.observed(TOOL)[begin])
        assert piece.meta.provenance["origin"][-1]["episode"] == "ep_000000"
        assert (piece.meta.provenance["cut"]["first"], bool(piece.truncated[-1])) == (begin, True)
    first, second = (store.read(n).meta.outcome for n in store.ids())
    assert (first.success, first.reason) == (False, "cut")
    # What came after the last piece was a pause: it ends as the recording did.
    assert (second.success, second.reason, second.terminal) == (True, "operator", False)
    assert check_store(made.store, deep=True).sound


def test_markers_cut_and_an_annotation_stands_for_recorded_ones(tmp_path: Path) -> None:
    source = store_of(tmp_path / "s", marked((4.0, 7.0)), play())
    with pytest.raises(DataError, match=r"ep_000001 has no markers: say them"):
        cut_store(source, tmp_path / "o", CutConfig())
    assert not (tmp_path / "o").exists()
    # A pause around a marker belongs to neither piece.
    found = find_pieces(source.read("ep_000000"), source.annotated("ep_000000"), CutConfig())
    expected = [Piece(0, 33, last=False), Piece(49, 70, last=False), Piece(70, 92, last=True)]
    assert [(p.begin, p.last) for p in found] == [(p.begin, p.last) for p in expected]
    assert [p.end for p in found][:2] == [33, 70]
    argv = ["data", "note", str(source.path), "ep_000000", "ep_000001", "--marker", "2", "6.5"]
    assert main(argv) == 0
    found = find_pieces(source.read("ep_000000"), source.annotated("ep_000000"), CutConfig())
    assert [p.begin for p in found] == [0, 20, 65]
    made = cut_store(source, tmp_path / "o", CutConfig(kind="demonstration"))
    store = EpisodeStore.open(made.store)
    assert {i.kind for i in store.list()} == {"demonstration"}
    assert len(made.pieces["ep_000001"]) == 3
    # The same cut again is the same, bit for bit.
    again = EpisodeStore.open(
        cut_store(source, tmp_path / "p", CutConfig(kind="demonstration")).store
    )
    files = [
        [(f.path, f.sha256) for f in s.manifest(i).files] for s in (store, again) for i in s.ids()
    ]
    assert files[: len(files) // 2] == files[len(files) // 2 :]
    assert main(["data", "note", str(source.path), "--undo", "an_000003"]) == 0
    assert source.annotated("ep_000000").markers == ()
    for bad in ((3.0, 1.0), (-1.0,), (float("nan"),)):
        with source.writer() as writer, pytest.raises(DataError, match="ascending times"):
            writer.annotate(Annotation(("ep_000000",), "anna", markers=bad))


def test_the_gripper_letting_go_ends_a_piece(tmp_path: Path) -> None:
    episode = play()
    width = np.full((STEPS, 1), 0.08)
    width[10:60] = 0.0
    width[60:64] = 0.04  # wavers: no release yet
    width[70:100] = 0.01
    spec = episode.meta.embodiment
    spec = dataclasses.replace(spec, actions=(*spec.actions, WIDTH))
    grips = dataclasses.replace(
        episode,
        meta=dataclasses.replace(episode.meta, embodiment=spec),
        action={**episode.action, WIDTH.name: width},
    )
    said = store_of(tmp_path / "s", grips).annotated("ep_000000")
    found = find_pieces(grips, said, CutConfig(by="gripper", after_s=0.5))
    assert [p.begin for p in found] == [0, 69, 105][: len(found)]
    with pytest.raises(DataError, match=r"no action 'of a gripper'"):
        find_pieces(episode, said, CutConfig(by="gripper"))
    still = dataclasses.replace(grips, action={**grips.action, WIDTH.name: width * 0})
    with pytest.raises(DataError, match="never changes"):
        find_pieces(still, said, CutConfig(by="gripper"))


def test_a_recording_with_picture_files_is_cut_without_decoding_them(tmp_path: Path) -> None:
    source = EpisodeStore.create(tmp_path / "s")
    with EpisodeRecorder(source, spec=SPEC, kind="play", codecs={IMAGE: "jpeg:80"}) as recorder:
        record(recorder, 40)
    with source.writer() as writer:
        writer.annotate(Annotation(("ep_000000",), "anna", add_labels=("long",), markers=(2.0,)))
    made = cut_store(source, tmp_path / "o", CutConfig())
    store = EpisodeStore.open(made.store)
    assert [i.labels for i in store.list()] == [("long",), ("long",)]
    whole, piece = open_camera(source, "ep_000000", IMAGE), open_camera(store, "ep_000001", IMAGE)
    for row in (0, 5):
        assert piece.frames.encoded_frame(row) == whole.frames.encoded_frame(20 + row)
    cut = store.read("ep_000001")
    assert cut.meta.provenance["frame_codecs"] == {IMAGE: "jpeg:80"}
    np.testing.assert_array_equal(cut.sent.seq, np.repeat(np.arange(20, 40), 2))
    assert check_store(made.store, deep=True).sound


def test_what_cannot_be_cut_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = store_of(tmp_path / "s", play())
    argv = ["data", "cut", str(source.path), "--out", str(tmp_path / "o")]
    assert main([*argv, "--by", "idle", "--least-s", "60"]) == 2
    assert "no piece" in capsys.readouterr().err
    assert main([*argv, "--episodes", "ep_000009"]) == 2
    assert not (tmp_path / "o").exists()
    assert main([*argv, "--by", "idle", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["too_short"] == 0
    assert main([*argv, "--by", "idle"]) == 2  # it exists
    with pytest.raises(ConfigError, match="longer than its two margins"):
        CutConfig(pause_s=0.3)
    with pytest.raises(ConfigError, match="least_s must be at least 0"):
        CutConfig(least_s=-1.0)
