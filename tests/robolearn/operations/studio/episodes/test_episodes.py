"""Documents of episodes: lists, filters, thumbnails, signals, what is said of them."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from robolearn.cli.data.edit import Filter, selection_of
from robolearn.cli.shared.parse import parse
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError, RobolearnError, StoreError
from robolearn.operations.studio.asking import Ask, NotHere
from robolearn.operations.studio.encoding import encode
from robolearn.operations.studio.episodes import frames, likeness, saying, selecting, thumbnails
from robolearn.operations.studio.episodes.cache import EpisodeCache
from robolearn.operations.studio.episodes.episode import document
from robolearn.operations.studio.episodes.table import table
from robolearn.operations.studio.library import Library
from tests.episodes import small_episode

KEY = "key-of-a-test-"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    with EpisodeStore.create(tmp_path / "lab" / "store").writer() as writer:
        for seed in range(4):
            writer.append(small_episode(seed, 12 + seed, image=seed == 0))
    return tmp_path / "lab"


def _ask(library: Library, body: dict[str, Any] | None = None, **words: str | int) -> Ask:
    numbers = {k: v for k, v in words.items() if isinstance(v, int)}
    texts = {k: v for k, v in words.items() if isinstance(v, str)}
    return Ask(library, library.things()[0], numbers, texts, json.dumps(body or {}).encode())


def test_the_list_is_that_of_the_store(lab: Path):
    library = Library([lab])
    listed = table(_ask(library))
    infos = EpisodeStore.open(lab / "store").list()
    assert listed.number.tolist() == [int(i.id[3:]) for i in infos]
    np.testing.assert_allclose(listed.score, [i.score for i in infos])
    assert listed.operator.words == ("nobody",)
    assert listed.total == 4
    encode(listed)
    # A second program finds what the first one read.
    again = table(_ask(Library([lab])))
    assert again.number.tolist() == listed.number.tolist()


def test_a_store_whose_identity_is_damaged_is_told_and_listed(lab: Path):
    (lab / "store" / "store.json").write_text("{")
    listed = table(_ask(Library([lab])))
    assert listed.number.tolist() == [0, 1, 2, 3]
    assert "store.json" in listed.damage
    assert listed.remark == ""


def test_new_and_removed_episodes_are_followed(lab: Path):
    library = Library([lab])
    table(_ask(library))
    with EpisodeStore.open(lab / "store").writer() as writer:
        writer.append(small_episode(9))
        writer.remove(("ep_000001",), "anna")
    assert table(_ask(library)).number.tolist() == [0, 2, 3, 4]
    with pytest.raises(NotHere, match="ep_000001"):
        document(_ask(library, number=1))


def test_a_damaged_episode_is_told_in_its_place(lab: Path):
    (lab / "store" / "manifests" / "ep_000002.json").write_text("{}")
    library = Library([lab])
    listed = table(_ask(library))
    assert listed.number.tolist() == [0, 1, 2, 3]
    assert "altered" in listed.problems["2"]
    with pytest.raises(StoreError, match="altered"):
        document(_ask(library, number=2))
    assert thumbnails.sheet(_ask(library, rows="0,1,2,3,77")).data
    assert selecting.select(_ask(library)).numbers.tolist() == [0, 1, 3]


WORDS = [
    "",
    "--outcome success",
    "--outcome failure --min-score 0.5 --max-score .9",
    "--label good other --without-label slip",
    "--kind demonstration --task point 'two words' --min-steps 13",
    "--split train --episodes ep_000000 ep_000003",
]


@pytest.mark.parametrize("words", WORDS)
def test_a_filter_reads_like_the_command_line(words: str):
    import shlex

    args = parse(Filter, ["store", "--out", "new", *shlex.split(words)], "data filter", "")
    assert selecting.parse_selection(words) == selection_of(args)


def test_the_options_are_those_of_the_command_line():
    fields = {f"--{name.replace('_', '-')}" for name in Filter.__dataclass_fields__}
    assert set(selecting.OPTIONS) == fields - {"--store", "--out", "--json"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--outcom success", "Did you mean '--outcome'"),
        ("anna", "belongs to no option"),
        ("--min-score high", "needs a number"),
        ("--min-score", "one value, got 0"),
        ("--outcome maybe", "success or failure"),
        ("--label", "at least one word"),
        ("--task 'open", "quotation mark"),
    ],
)
def test_what_a_filter_does_not_understand_it_says(words: str, told: str):
    with pytest.raises(RobolearnError, match=told):
        selecting.parse_selection(words)


def test_thumbnails_are_kept_and_show_the_last_picture(lab: Path):
    library = Library([lab])
    first = thumbnails.sheet(_ask(library, rows="0,3"))
    again = thumbnails.sheet(_ask(Library([lab]), rows="0,3"))
    assert not again.partial
    picture = cv2.imdecode(np.frombuffer(first.data, np.uint8), cv2.IMREAD_COLOR)
    assert picture.shape == (thumbnails.HEIGHT, 8 * thumbnails.WIDTH, 3)
    # Noise is drawn for the one with a camera, two thin curves for the other.
    assert picture[:, 30:100].std() > picture[:, 128:256].std()


@pytest.mark.parametrize("rows", ["", "a", "1,,2", "-1", ",".join(["1"] * 65), "1" * 30, "٣"])
def test_rows_that_are_none_are_refused(lab: Path, rows: str):
    with pytest.raises(DataError, match="rows"):
        thumbnails.sheet(_ask(Library([lab]), rows=rows))


def test_an_episode_is_told_as_it_was_recorded(lab: Path):
    library = Library([lab])
    made, episode = document(_ask(library, number=0)), small_episode(0, 12, image=True)
    np.testing.assert_allclose(made.progress, episode.progress)
    curve = made.curves[0]
    assert curve.command is not None
    np.testing.assert_allclose(curve.command, episode.action[curve.name])
    assert [c.name for c in made.cameras] == ["top/image"]
    assert made.drivers[0].what == "human"
    assert (made.before, made.after, made.total) == (None, 1, 4)
    encode(made)


def test_a_frame_is_that_of_the_camera(lab: Path):
    library = Library([lab])
    data = frames.frame(_ask(library, number=0, camera=0, row=3)).data
    shown = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    wanted = small_episode(0, 12, image=True).streams["top/image"].value[3]
    # Noise does not survive JPEG, its mean does.
    assert abs(float(shown.mean()) - float(wanted.mean())) < 3
    with pytest.raises(NotHere, match="12 frames"):
        frames.frame(_ask(library, number=0, camera=0, row=12))
    with pytest.raises(NotHere, match="1 cameras"):
        frames.frame(_ask(library, row=0, number=0, camera=1))


def test_what_is_said_is_written_once_and_taken_back(lab: Path):
    library = Library([lab])
    said = {"key": KEY + "1", "episodes": [0, 2], "outcome": "failure", "add": ["slip"]}
    first = saying.say(_ask(library, said))
    again = saying.say(_ask(library, said))
    assert (first.again, again.again) == (False, True)
    assert first.record == again.record
    store = EpisodeStore.open(lab / "store")
    assert len(store.annotations()) == 1
    assert not store.info("ep_000002").success
    assert selecting.select(_ask(library, filter="--label slip")).numbers.tolist() == [0, 2]
    saying.say(_ask(library, {"key": KEY + "2", "undo": first.record}))
    assert store.info("ep_000002").success
    assert document(_ask(library, number=0)).history == ()


def test_many_requests_with_one_key_at_once_write_one_record(lab: Path):
    library = Library([lab])
    ask = _ask(library, {"key": KEY + "3", "episodes": [1], "note": "a slow one"})

    def send(_: int) -> str:
        for _ in range(500):
            try:
                return saying.say(ask).record
            except StoreError:
                continue
        raise AssertionError("the store stayed locked")

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(send, range(8)))) == 1
    assert len(EpisodeStore.open(lab / "store").annotations()) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"episodes": [0]},
        {"key": KEY, "episodes": [0]},
        {"key": "../../etc", "episodes": [0], "note": "a"},
        {"key": KEY, "episodes": [99], "note": "a"},
        {"key": KEY, "episodes": ["ep_000000"], "note": "a"},
        {"key": KEY, "episodes": [True], "note": "a"},
        {"key": KEY, "episodes": [-1], "note": "a"},
        {"key": KEY, "episodes": [0], "note": "a" * 5000},
        {"key": KEY, "episodes": [0], "note": "\ud800"},
        {"key": KEY, "episodes": [0], "add": ["two words"]},
        {"key": KEY, "episodes": [0], "markers": [2.0, 1.0]},
        {"key": KEY, "episodes": [0], "markers": ["1"]},
        {"key": KEY, "episodes": [0], "outcome": "maybe"},
        {"key": KEY, "undo": "an_000099"},
        {"key": KEY, "episodes": [0], "path": "/etc/passwd"},
    ],
)
def test_what_cannot_be_said_is_refused_and_nothing_written(lab: Path, wrong: dict[str, Any]):
    with pytest.raises(RobolearnError):
        saying.say(_ask(Library([lab]), wrong))
    assert EpisodeStore.open(lab / "store").annotations() == ()


def test_twins_and_what_is_unlike_all_are_found(tmp_path: Path):
    with EpisodeStore.create(tmp_path / "lab" / "store").writer() as writer:
        for seed in (0, 1, 2, 3, 4, 5, 6, 1):
            writer.append(small_episode(seed))
    library = Library([tmp_path / "lab"])
    found = likeness.likeness(_ask(library))
    assert found.missing == 0
    assert found.twins == ((1, 7),)


def test_distances_are_those_of_a_plain_computation():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(600, 5))
    vectors[17] = 40.0
    vectors[599] = vectors[3]
    novelty, pairs = likeness.distances(vectors)
    scaled = (vectors - vectors.mean(0)) / vectors.std(0)
    exact = np.linalg.norm(scaled[:, None] - scaled[None], axis=-1)
    nth = np.sort(exact, axis=1)[:, likeness.NEIGHBOUR]
    np.testing.assert_allclose(novelty, nth / np.median(nth), rtol=1e-2)
    assert novelty.argmax() == 17
    assert [(a, b) for _, a, b in pairs] == [(3, 599)]


def test_a_damaged_cache_costs_nothing_but_time(tmp_path: Path):
    cache = EpisodeCache("a", tmp_path)
    cache.put("info", [("h", b"data")])
    assert cache.get("info", ["h", "other"]) == {"h": b"data"}
    cache.close()
    (tmp_path / "a.1.sqlite").write_bytes(b"nonsense" * 1000)
    for left in tmp_path.glob("*-wal"):
        left.unlink()
    cache = EpisodeCache("a", tmp_path)
    assert cache.get("info", ["h"]) == {}
    cache.put("info", [("h", b"new")])
    assert cache.all("info") == {"h": b"new"}
