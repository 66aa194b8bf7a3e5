"""Episodes are filmed by a function: their actions done again where they have no pictures (what
was recorded: the tests of the command).
"""

from __future__ import annotations

from pathlib import Path

import av
import pytest

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.data.importers.diffusion_policy import import_diffusion_policy
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.operations.pictures.film import film_episodes

WORLD = "pusht_reference,camera=top,size=48"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("film") / "store"
    import_diffusion_policy(pusht_demonstrations_path(), EpisodeStore.create(path), limit=2)
    return path


def test_actions_are_done_again_and_filmed(store: Path, tmp_path: Path, capsys) -> None:
    told: list[tuple[int, int]] = []
    filmed = film_episodes(
        store,
        tmp_path / "videos",
        world=WORLD,
        height=64,
        on_filmed=lambda done, of: told.append((done, of)),
    )
    assert told == [(0, 2), (1, 2), (2, 2)]
    opened = EpisodeStore.open(store)
    assert tuple(f.episode for f in filmed) == opened.ids()
    for one in filmed:
        assert one.video == tmp_path / "videos" / f"{one.episode}.mp4"
        assert one.frames == opened.info(one.episode).steps
        with av.open(str(one.video)) as container:
            stream = container.streams.video[0]
            assert (stream.width, stream.height, stream.frames) == (64, 64, one.frames)
    assert capsys.readouterr() == ("", "")


def test_what_cannot_be_filmed_is_refused_before_anything_is_written(
    store: Path, tmp_path: Path
) -> None:
    out = tmp_path / "videos"
    for error, why, options in (
        (ConfigError, "give a world that does their actions again", {}),
        (ConfigError, "height must be at least 1", {"height": 0}),
        (ConfigError, "episodes must be at least 1", {"episodes": 0}),
        (ConfigError, "'pusht_reference,camera=top'", {"world": "pusht_reference"}),
        (SpecMismatchError, "no signal 'side/image'", {"world": WORLD, "cameras": ["side/image"]}),
    ):
        with pytest.raises(error, match=why):
            film_episodes(store, out, **options)
    EpisodeStore.create(tmp_path / "empty")
    with pytest.raises(DataError, match="holds no episodes"):
        film_episodes(tmp_path / "empty", out)
    assert not out.exists()
