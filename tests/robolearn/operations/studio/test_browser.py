"""The page in Chromium: views of episodes, light and dark, at three widths, without an error."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from robolearn.data.store.store import EpisodeStore
from robolearn.operations.studio.server.serve import Studio, serve_studio
from tests.browser import Tab, chromium
from tests.episodes import small_episode

SIZES = ((390, 844), (1400, 900), (2560, 1440))
# What every view must have, and what tells that it is there.
LOOK = """(() => ({
  wide: document.documentElement.scrollWidth > innerWidth + 1,
  heading: document.querySelectorAll("h1").length,
  nameless: [...document.querySelectorAll("button, a, input, select")].filter((n) =>
    !n.hidden && !(n.textContent.trim() || n.getAttribute("aria-label") || n.title)).length,
  low: [...document.querySelectorAll("main *")].filter((n) => {
    const own = [...n.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
    if (!own || n.disabled) return false;
    if (!n.checkVisibility()) return false;
    const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map((v) => {
      const s = v / 255; return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4; });
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    let under = n, ground = "";
    while (under && !ground) { const c = getComputedStyle(under).backgroundColor;
      if (!/rgba\\(.*, 0\\)$/.test(c) && c !== "transparent") ground = c;
      under = under.parentElement; }
    const a = light(getComputedStyle(n).color), b = light(ground || "rgb(255, 255, 255)");
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
  }).map((n) => n.outerHTML.slice(0, 120)),
}))()"""


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Generator[Studio]:
    folder = tmp_path_factory.mktemp("studio")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        with EpisodeStore.create(folder / "lab" / "point").writer() as writer:
            for seed in range(9):
                writer.append(small_episode(seed, 12 + seed, image=seed < 3))
        with serve_studio([folder / "lab"], port=0) as served:
            yield served


@pytest.fixture(scope="module")
def tab(studio: Studio) -> Generator[Tab]:
    with chromium(1400, 900) as tab:
        tab.open(studio.url)
        tab.wait_for("!!document.querySelector('td a')")
        yield tab


def _views(studio: Studio) -> dict[str, tuple[str, str]]:
    store = f"#/store/{studio.library.things()[0].id}"
    return {
        "list": ("#/", "!!document.querySelector('td a')"),
        "wall": (store, "document.querySelectorAll('.tile .picture[style*=blob]').length === 9"),
        "table": (f"{store}?view=table", "document.querySelectorAll('tbody tr').length === 9"),
        "scatter": (f"{store}?view=scatter", "!!document.querySelector('.scatter canvas')"),
        "episode": (
            f"{store}/episode/1?t=0.5",
            "document.body.textContent.includes('frame 5 of')",
        ),
    }


def _go(studio: Studio, tab: Tab, view: str) -> None:
    address, there = _views(studio)[view]
    tab.evaluate(f"location.hash = '{address}'")
    tab.wait_for(there)


def test_every_view_in_light_and_dark_at_three_widths(studio: Studio, tab: Tab):
    for view in _views(studio):
        _go(studio, tab, view)
        for dark in (False, True):
            for width, height in SIZES:
                tab.size(width, height, dark=dark)
                look = tab.evaluate(LOOK)
                where = f"{view} {width} {'dark' if dark else 'light'}"
                assert not look["wide"], where
                assert look["heading"] == 1, where
                assert look["nameless"] == 0, where
                assert look["low"] == [], where
        tab.size(1400, 900)
    assert tab.errors == []


def test_an_episode_is_judged_by_keys_and_that_is_taken_back(studio: Studio, tab: Tab):
    store = EpisodeStore.open(studio.library.things()[0].path)
    _go(studio, tab, "episode")
    assert store.info("ep_000001").success
    tab.key("0")
    tab.wait_for("document.querySelector('#line').textContent.startsWith('an_')")
    tab.wait_for("!!document.querySelector('.side .events')")
    assert not store.info("ep_000001").success
    tab.key("u")
    tab.wait_for("document.querySelector('#line').textContent.startsWith('took back')")
    assert store.info("ep_000001").success
    assert tab.errors == []


def test_a_filter_in_the_words_of_the_command_line(studio: Studio, tab: Tab):
    _go(studio, tab, "table")
    tab.evaluate(
        "(() => { const i = document.querySelector('#filter'); i.value = '--min-steps 18';"
        " i.dispatchEvent(new Event('input')); })()"
    )
    tab.wait_for("document.querySelectorAll('tbody tr').length === 3")
    assert "min-steps" in tab.evaluate("location.hash")
    tab.evaluate(
        "(() => { const i = document.querySelector('#filter'); i.value = '--min-stps 18';"
        " i.dispatchEvent(new Event('input')); })()"
    )
    tab.wait_for("document.querySelector('[role=alert]').textContent.includes('--min-steps')")
    # What a filter asks for stays in the page; the next view begins without.
    tab.evaluate(
        "(() => { const i = document.querySelector('#filter'); i.value = '';"
        " i.dispatchEvent(new Event('input')); })()"
    )
    tab.wait_for("document.querySelectorAll('tbody tr').length === 9")


def test_what_is_chosen_becomes_a_command(studio: Studio, tab: Tab):
    _go(studio, tab, "wall")
    tab.evaluate("document.activeElement.blur()")
    tab.key("x")
    tab.wait_for("!document.querySelector('.chosenbar').hidden")
    tab.evaluate(
        "[...document.querySelectorAll('.chosenbar button')]"
        ".find((b) => b.textContent.startsWith('as a store')).click()"
    )
    command = tab.wait_for("document.querySelector('dialog[open] pre').textContent")
    assert command.startswith("robolearn data filter ")
    assert command.endswith(("--episodes ep_000000", "--episodes ep_000001"))
    tab.evaluate("document.querySelector('dialog[open]').close()")
    tab.key("c")


def test_an_answer_that_comes_late_is_not_shown_in_the_next_view(studio: Studio, tab: Tab):
    _go(studio, tab, "list")
    tab.evaluate("""(() => { window.first = window.fetch; window.asked = 0; window.answered = 0;
      window.fetch = async (...args) => { window.asked++;
        const answer = await window.first(...args); await new Promise((r) => setTimeout(r, 400));
        window.answered++; return answer; }; })()""")
    store = f"#/store/{studio.library.things()[0].id}"
    tab.evaluate(f"location.hash = '{store}/episode/2'")
    tab.wait_for("window.asked > 0")
    tab.evaluate("window.fetch = window.first; location.hash = '#/'")
    tab.wait_for("!!document.querySelector('td a')")
    tab.wait_for("window.answered === window.asked")
    found = tab.evaluate("""new Promise((r) => setTimeout(() => r(
      [document.querySelector("h1").textContent, document.querySelectorAll("h1").length]), 100))""")
    assert found == ["Everything found", 1]
    assert not tab.errors


def test_a_jump_waits_for_no_picture_that_was_asked_for_ahead(studio: Studio, tab: Tab):
    _go(studio, tab, "list")
    found = tab.evaluate("""(async () => {
      const {Frames} = await import("/page/episodes/frames.js");
      const open = new Map(), real = window.fetch;
      const white = await new Promise((done) => document.createElement("canvas").toBlob(done));
      window.fetch = (url, {signal}) => new Promise((done, fail) => {
        const row = Number(url.split("/").at(-1));
        open.set(row, done);
        signal.addEventListener("abort", () => {
          open.delete(row); fail(new DOMException("broken off", "AbortError")); }); });
      const there = () => [...open.keys()].sort((a, b) => a - b), seen = [];
      const come = async (row) => { open.get(row)(new Response(white)); open.delete(row);
        await new Promise((go) => setTimeout(go, 30)); return frames.drawn; };
      const view = {data: [...Array(100).keys()]}, camera = {size: [4, 4], frames: 100, view};
      const frames = new Frames(document.createElement("canvas"), "a", 0, 0, camera, () => {});
      for (const tick of [0, 50, 90, 10]) { frames.show(tick); seen.push(there()); }
      const drawn = [await come(0), await come(10)], after = there();
      frames.end();
      window.fetch = real;
      return [seen, drawn, after, there()]; })()""")
    # What comes next is asked for, broken off by a jump, and the oldest that was wanted is shown
    # until the newest is there.
    assert found == [[[0, 1], [0, 50], [0, 90], [0, 10]], [0, 10], [8, 9], []]
    assert not tab.errors


def test_keys_are_listed_and_a_new_store_appears_by_itself(studio: Studio, tab: Tab):
    _go(studio, tab, "list")
    tab.evaluate("document.querySelector('#help').click()")
    assert "go to the list" in tab.evaluate("document.querySelector('#keys').textContent")
    tab.evaluate("document.querySelector('#keys').close()")
    EpisodeStore.create(studio.library.roots[0] / "fresh")
    studio.library.look()
    tab.wait_for("document.querySelectorAll('td a').length === 2")
    assert tab.errors == []


def test_a_view_that_is_not_there_says_so(studio: Studio, tab: Tab):
    tab.evaluate("location.hash = '#/store/0123456789abcdef'")
    tab.wait_for("document.querySelector('[role=alert]').textContent.includes('not here')")
    assert Path(studio.library.roots[0]).is_dir()
