"""What a pointer does in a store's views, keys do, too; what lies over a view keeps its keys."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from robolearn.data.store.store import EpisodeStore
from robolearn.operations.studio.server.serve import Studio, serve_studio
from tests.browser import Tab, chromium
from tests.episodes import small_episode
from tests.robolearn.data.upkeep.test_mirror import as_version_1

TILE = "document.activeElement.dataset.at"


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Generator[Studio]:
    """A store of version 1, as an older robolearn made it."""
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        store = EpisodeStore.create(folder / "lab" / "point")
        with store.writer() as writer:
            for seed in range(3):
                writer.append(small_episode(seed, 12 + seed, image=False))
        as_version_1(store.path)
        with serve_studio([folder / "lab"], port=0) as served:
            yield served


@pytest.fixture(scope="module")
def tab(old: Studio) -> Generator[Tab]:
    with chromium(1400, 900) as tab:
        tab.open(old.url)
        tab.wait_for("!!document.querySelector('td a')")
        yield tab


def _go(old: Studio, tab: Tab, more: str = "") -> None:
    tab.evaluate("location.hash = '#/'")
    tab.wait_for("!!document.querySelector('td a')")
    tab.evaluate(f"location.hash = '#/store/{old.library.things()[0].id}{more}'")


def test_a_store_of_version_1_says_so_and_works(old: Studio, tab: Tab):
    _go(old, tab)
    tab.wait_for("document.querySelectorAll('.tile').length === 3")
    assert "format version 1" in tab.evaluate("document.querySelector('.storehead').textContent")
    assert tab.errors == []


def test_the_wall_is_one_stop_and_arrows_go_on_from_it(old: Studio, tab: Tab):
    _go(old, tab)
    tab.wait_for("document.querySelectorAll('.tile').length === 3")
    stops = "[...document.querySelectorAll('.tile')].filter((t) => t.tabIndex === 0).length"
    assert tab.evaluate(stops) == 1
    tab.evaluate("document.querySelector('.group button:last-child').focus()")
    tab.key("Tab")
    tab.wait_for(f"{TILE} === '0'")
    tab.key("ArrowRight")
    tab.wait_for(f"{TILE} === '1'")
    assert tab.evaluate(stops) == 1
    tab.key("x")
    tab.wait_for("!document.querySelector('.chosenbar').hidden")
    # What lies over the page keeps its keys: nothing is said of an episode, Escape closes just it.
    tab.evaluate(
        "[...document.querySelectorAll('.chosenbar button')]"
        ".find((b) => b.textContent.startsWith('as a store')).click()"
    )
    tab.wait_for("!!document.querySelector('dialog[open]')")
    tab.key("c")
    tab.key("Escape")
    tab.wait_for("!document.querySelector('dialog[open]')")
    assert tab.evaluate("location.hash").startswith("#/store/")
    assert not tab.evaluate("document.querySelector('.chosenbar').hidden")
    tab.evaluate("document.querySelector('.tile[tabindex=\"0\"]').focus()")
    tab.key("Enter")
    tab.wait_for("location.hash.includes('/episode/1')")
    # A curve is hidden by its name.
    tab.wait_for("!!document.querySelector('.u-legend th[role=button]')")
    tab.evaluate("document.querySelector('.u-legend th[role=button]').focus()")
    tab.key("Enter")
    tab.wait_for("document.activeElement.getAttribute('aria-pressed') === 'false'")
    assert tab.errors == []


def test_points_are_told_chosen_and_opened_by_keys(old: Studio, tab: Tab):
    _go(old, tab, "?view=scatter")
    tab.wait_for("!!document.querySelector('.scatter canvas')?.style && true")
    tab.evaluate("document.activeElement.blur()")
    tab.key("c")
    tab.wait_for("document.querySelector('.chosenbar').hidden")
    tab.wait_for("document.querySelector('.scatter canvas')?.width > 400")
    tab.key("ArrowRight")
    # From left to right: the shortest episode first.
    tab.wait_for("document.querySelector('.tip').textContent.startsWith('ep_000000')")
    tab.key("ArrowRight")
    tab.wait_for("document.querySelector('.tip').textContent.startsWith('ep_000001')")
    tab.key("x")
    tab.wait_for("document.querySelector('.chosenbar').textContent.startsWith('1 chosen')")
    tab.key("Enter")
    tab.wait_for("location.hash.includes('/episode/1')")
    assert tab.errors == []


def test_a_box_that_is_ticked_leaves_the_keys_of_the_view(old: Studio, tab: Tab):
    _go(old, tab, "?view=table")
    tab.wait_for("document.querySelectorAll('tbody tr').length === 3")
    tab.evaluate("document.activeElement.blur()")
    tab.key("c")
    tab.wait_for("document.querySelector('.chosenbar').hidden")
    tab.evaluate("document.querySelector('tbody input').focus()")
    tab.key(" ")
    tab.wait_for("document.querySelector('.chosenbar').textContent.startsWith('1 chosen')")
    tab.key("a")
    tab.wait_for("document.querySelector('.chosenbar').textContent.startsWith('3 chosen')")
    tab.key("c")
    assert tab.errors == []
