"""The page in Chromium: every view, light and dark, at three widths, without an error."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
import yaml

from eval.trials.table import TrialStore
from robolearn.config import from_dict
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.studio.apart import Apart
from robolearn.operations.studio.server.serve import Studio, serve_studio
from tests.browser import SHIFTS, Tab, chromium
from tests.episodes import TOOL, small_episode
from tests.eval.report_folder import trial
from tests.robolearn.operations.studio.documents.training.test_run import make_run
from tests.robolearn.operations.studio.keyboard import walk
from tests.robolearn.operations.studio.lab import computed_here, tiny_lab
from tests.waiting import wait_until

READ = {"observations": [TOOL], "actions": [TOOL]}
SIZES = ((390, 844), (1400, 900), (2560, 1440))
FROM_AFAR = (3840, 2160)
# What every view must have, and what tells that it is there.
# Two frames: what follows the size of the window (plots) has done so then.
LOOK = """new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r))).then(() => ({
  wide: [document.documentElement, document.querySelector("main")].some((n) =>
    n.scrollWidth > n.clientWidth + 1),
  heading: document.querySelectorAll("h1").length,
  nameless: [...document.querySelectorAll("button, a, input, select")].filter((n) => {
    const said = n.matches("input, select") ? [...n.labels] : [n];
    return !n.hidden && !n.getAttribute("aria-label") && !n.title
      && !said.some((l) => l.textContent.trim());
  }).map((n) => n.outerHTML.slice(0, 120)),
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
}))"""


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


def looks(tab: Tab, view: str, sizes: tuple[tuple[int, int], ...] = SIZES) -> list[str]:
    """What is wrong with the view that is shown, in words."""
    found: list[str] = []
    for dark in (False, True):
        for width, height in sizes:
            tab.size(width, height, dark=dark)
            look = tab.evaluate(LOOK)
            where = f"{view} {width} {'dark' if dark else 'light'}: "
            if look["wide"]:
                found.append(f"{where}wider than the window")
            if look["heading"] != 1:
                found.append(f"{where}{look['heading']} headings")
            found += [f"{where}nameless: {node}" for node in look["nameless"]]
            found += [f"{where}low contrast: {node}" for node in look["low"]]
    tab.size(1400, 900)
    return found


def test_every_view_in_light_and_dark_at_three_widths(studio: Studio, tab: Tab):
    for view in _views(studio):
        _go(studio, tab, view)
        assert looks(tab, view, (*SIZES, FROM_AFAR)) == []
        assert walk(tab) == []
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
    tab.wait_for("document.querySelector('[role=alert]')?.textContent.includes('--min-steps')")
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
    name = command.rsplit(" ", 1)[1]
    _as_a_weight(tab)
    path = studio.library.things()[0].path
    lines = tab.wait_for(
        "[...document.querySelectorAll('dialog[open] pre')].map((n) => n.textContent)"
    )
    assert lines[0] == f"robolearn data note {path} {name} --label picked"
    store = EpisodeStore.open(path)
    steps = {i.id: i.steps for i in store.list()}
    data = from_dict(DataConfig, {**READ, **yaml.safe_load(lines[1])["data"]}, "data")
    share = 2 * steps[name] / (2 * steps[name] + sum(steps.values()) - steps[name])
    assert [c.weight for c in data.stores] == pytest.approx([share, 1 - share], abs=1e-3)
    taken = [[i.id for i in store.list() if c.takes(i, data)] for c in data.stores]
    assert taken == [[name], [i for i in steps if i != name]]
    tab.evaluate("document.querySelector('dialog[open]').close()")
    said = store.annotations()
    _as_a_weight(tab)
    assert "just that already" in tab.evaluate("document.querySelector('dialog[open]').textContent")
    assert store.annotations() == said
    # An earlier test's line may stand there still, and the field that had the focus is gone later.
    tab.evaluate(
        "document.querySelector('dialog[open]').close(); document.activeElement.blur();"
        " document.querySelector('#line').textContent = ''"
    )
    tab.key("u")
    tab.wait_for("document.querySelector('#line').textContent.startsWith('took back')")
    assert store.info(name).labels == ()
    _as_a_weight(tab)
    back = (
        "[...document.querySelectorAll('dialog[open] button')]"
        ".find((b) => b.textContent === 'take it back')"
    )
    tab.wait_for(f"{back} !== undefined")
    tab.evaluate(f"{back}.click()")
    # Lines of a config that name a label which is gone are gone, too.
    tab.wait_for("!document.querySelector('dialog[open]')")
    wait_until(lambda: store.info(name).labels == ())
    tab.key("c")


def _as_a_weight(tab: Tab) -> None:
    tab.evaluate(
        "[...document.querySelectorAll('.chosenbar button')]"
        ".find((b) => b.textContent === 'as a weight').click()"
    )
    tab.wait_for("!!document.querySelector('dialog[open] pre')")


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
        for (let k = 0; k < 500 && frames.drawn !== row; k++)
          await new Promise((go) => setTimeout(go, 10));
        return frames.drawn; };
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
    tab.wait_for("document.querySelector('[role=alert]')?.textContent.includes('not here')")
    assert Path(studio.library.roots[0]).is_dir()


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Generator[Studio]:
    folder = tmp_path_factory.mktemp("everything")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr(Apart, "make", computed_here())
        with serve_studio([tiny_lab(folder / "lab")], port=0) as served:
            yield served


def _lab_views(lab: Studio) -> dict[str, tuple[str, list[str]]]:
    """Address of each view, and words that are there only when it is filled."""
    ids = {(t.kind, t.where): t.id for t in lab.library.things()}
    one, two = ids["run", "one"], ids["run", "two"]
    real, sim = ids["evaluation", "real"], ids["evaluation", "sim"]
    session = "trial_session"
    return {
        "list": ("#/", ["Trial sessions 2", "Certificates 1"]),
        "run": (f"#/run/{one}", ["robolearn train", "loss/flow", "held out"]),
        "runs": (f"#/run/{one}?with={two}", ["fit.steps", "40 of 60"]),
        "critic": (
            f"#/run/{ids['run', 'iql']}",
            ["What the critic's curves say", "15 of 20: 0.75 [", "gained 3 success(es)"],
        ),
        "evaluation": (f"#/evaluation/{sim}", ["2 of 10", "not separated", "Each dot"]),
        "comparison": (f"#/compare/{real},{sim}", ["Rule:", "robolearn compare"]),
        "trust": (f"#/trust/{real},{sim}", ["ranks", "starts of policies", "--real", "20 % [6 %"]),
        "blinded": (f"#/{session}/{ids[session, 'blinded']}", ["1 of 3 trials", "Nobody sees"]),
        "unblinded": (f"#/{session}/{ids[session, 'unblinded']}", ["middling", "recorded"]),
        "deployment": (f"#/deployment/{ids['deployment', 'deployed']}", ["speed: 2", "longest"]),
        "certificate": (
            f"#/certificate/{ids['certificate', 'chain/certificate.json']}",
            ["What it relies on", "signed by"],
        ),
        "scene": (f"#/scene/{ids['scene', 'table']}", ["friction, base", "[0.2, 0.4]"]),
        "capture": (f"#/capture/{ids['capture', 'desk']}", ["3 pictures", "calibrated"]),
    }


@pytest.fixture(scope="module")
def filled(lab: Studio, tab: Tab) -> Tab:
    tab.open(lab.url)
    tab.wait_for("!!document.querySelector('td a')")
    return tab


VIEWS = ("list", "run", "runs", "critic", "evaluation", "comparison", "trust", "blinded",
         "unblinded", "deployment", "certificate", "scene", "capture")  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_of_a_lab_is_filled(lab: Studio, filled: Tab, view: str):
    address, words = _lab_views(lab)[view]
    filled.evaluate(f"location.hash = '{address}'")
    for word in words:
        filled.wait_for(f"document.querySelector('main').textContent.includes({word!r})")
    assert looks(filled, view) == []
    assert filled.errors == []


# Of the window, summed over a view (https://web.dev/articles/cls calls .1 good).
MOST_SHIFT = 0.01


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_nothing_moves_while_a_view_fills(lab: Studio, filled: Tab, width: int, height: int):
    filled.size(width, height)
    filled.open(lab.url)
    filled.wait_for("!!document.querySelector('td a')")
    # For half a second what moves is put down to the window that became another one.
    filled.evaluate("new Promise((go) => setTimeout(go, 600))")
    filled.evaluate(SHIFTS)
    point = next(t.id for t in lab.library.things() if t.where == "point")
    store = f"#/store/{point}"
    views = {
        "wall": (store, ["2 episodes"]),
        "table": (f"{store}?view=table", ["ep_000001"]),
        "scatter": (f"{store}?view=scatter", ["drag to choose"]),
        "episode": (f"{store}/episode/1?t=0.5", ["what the policy wanted"]),
        **_lab_views(lab),
    }
    found: dict[str, object] = {}
    for view, (address, words) in views.items():
        filled.evaluate(f"location.hash = '{address}'")
        for word in words:
            filled.wait_for(f"document.querySelector('main').textContent.includes({word!r})")
        shifts, moved = filled.evaluate(
            "new Promise((go) => setTimeout(() => { const found = [window.shifts, window.moved];"
            " [window.shifts, window.moved] = [[], []]; go(found); }, 120))"
        )
        if sum(shift[0] for shift in shifts) > MOST_SHIFT or moved:
            found[view] = (shifts, moved)
    assert found == {}
    assert filled.errors == []


def test_losses_on_held_out_episodes_lie_over_their_own(lab: Studio, filled: Tab):
    address, words = _lab_views(lab)["run"]
    filled.evaluate(f"location.hash = '{address}'")
    for word in words:
        filled.wait_for(f"document.querySelector('main').textContent.includes({word!r})")
    plots = filled.evaluate(
        "[...document.querySelectorAll('.plot')].map((p) => [p.firstChild.textContent,"
        " [...p.querySelectorAll('.u-label')].map((l) => l.textContent)])"
    )
    assert ["loss/flow", ["updates", "one", "one, held out"]] in plots
    assert not any(title.startswith("held out") for title, _ in plots)


def test_values_lie_over_the_returns_that_followed(lab: Studio, filled: Tab):
    run = next(t for t in lab.library.things() if t.where == "iql")
    filled.evaluate(f"location.hash = '#/run/{run.id}'")
    filled.wait_for("document.querySelector('main').textContent.includes('critic/q whole')")
    plots = dict(
        filled.evaluate(
            "[...document.querySelectorAll('.plot')].map((p) => [p.firstChild.textContent,"
            " [...p.querySelectorAll('.u-label')].map((l) => l.textContent)])"
        )
    )
    assert plots["critic/q whole"] == ["updates", "iql", "iql, what followed"]
    assert "critic/q return" not in plots


def test_what_somebody_holds_stays_while_new_things_come(lab: Studio, filled: Tab):
    ids = {t.where: t for t in lab.library.things()}
    filled.evaluate(f"location.hash = '#/evaluation/{ids['sim'].id}'")
    filled.wait_for(
        "[...document.querySelectorAll('summary')].some((s) => /pairs$/.test(s.textContent))"
    )
    filled.evaluate(
        "[...document.querySelectorAll('summary')].find((s) => /pairs$/.test(s.textContent))"
        ".click(); document.querySelectorAll('.dot')[7].focus();"
        " window.held = document.activeElement.ariaLabel"
    )
    with TrialStore(ids["sim"].path) as table:
        table.add([trial("p0", "sim", 10, 0.3, False, policy_hash="h-p0")])
    lab.library.look()
    filled.wait_for("document.querySelector('main').textContent.includes('41 trials')")
    assert filled.evaluate("document.activeElement.ariaLabel === window.held")
    assert filled.evaluate(
        "[...document.querySelectorAll('details[open]')].some((d) => /pairs/.test(d.textContent))"
    )
    filled.evaluate(f"location.hash = '#/run/{ids['two'].id}'")
    filled.wait_for("document.querySelector('main').textContent.includes('40 of 60')")
    filled.evaluate(
        "document.querySelector('main select').focus(); window.held = document.activeElement"
    )
    with (ids["two"].path / "metrics.jsonl").open("a") as log:
        log.write('{"step": 50, "seconds": 5.0, "loss/flow": 0.02}\n')
    filled.wait_for("document.querySelector('main').textContent.includes('50 of 60')")
    assert filled.evaluate("document.activeElement === window.held && window.held.isConnected")
    assert filled.errors == []


def test_what_vanishes_while_it_is_shown_is_told_in_place(lab: Studio, filled: Tab):
    run = make_run(lab.library.roots[0] / "brief")
    lab.library.look()
    brief = next(t.id for t in lab.library.things() if t.where == "brief")
    filled.evaluate(f"location.hash = '#/run/{brief}'")
    filled.wait_for("document.querySelector('main').textContent.includes('40 of 40')")
    shutil.rmtree(run)
    lab.library.look()
    told = filled.wait_for("document.querySelector('.outdated')?.textContent")
    assert "what was read last" in told
    assert "40 of 40" in filled.evaluate("document.querySelector('main').textContent")
    filled.evaluate("location.hash = '#/'")
    filled.wait_for("!!document.querySelector('td a')")
    # Chromium notes the answer that it is not here (404) of each question; nothing else.
    noted, filled.errors[:] = list(filled.errors), []
    assert [n for n in noted if "404" not in n] == []


def test_a_page_asks_again_while_the_server_is_busy(lab: Studio, filled: Tab):
    filled.evaluate("""(() => { let refused = 0; const fetched = window.unasked = window.fetch;
      window.fetch = (where, more) => String(where).endsWith("/scene") && refused++ < 1
        ? Promise.resolve(new Response('{"error": "busy"}', {status: 503}))
        : fetched(where, more); })()""")
    address, words = _lab_views(lab)["scene"]
    filled.evaluate(f"location.hash = '{address}'")
    filled.wait_for(f"document.querySelector('main').textContent.includes({words[0]!r})")
    filled.evaluate("window.fetch = window.unasked")
    assert filled.errors == []


ASKED = """(() => {
  const answer = {problems: [], episode: "ep_000000", tick: 5, chunk_rate_hz: 10, execute: 2,
    notes: ["these weights drove this episode"], signals: [{name: "tool/xy_table",
      samples: {shape: [8, 4, 2], type: "f4", data: btoa("\\0".repeat(256))}}]};
  const fetched = window.unasked = window.fetch;
  window.fetch = (where, more) => String(where).includes("/samples?")
    ? Promise.resolve(new Response(JSON.stringify(answer))) : fetched(where, more);
})()"""


def test_a_run_is_asked_what_it_wants_at_the_playhead(lab: Studio, filled: Tab):
    ids = {t.where: t.id for t in lab.library.things()}
    filled.evaluate(ASKED)
    filled.evaluate(f"location.hash = '#/store/{ids['point']}/episode/0?t=0.5'")
    filled.wait_for("document.querySelector('.fan')?.textContent.includes('no policy drove this')")
    filled.evaluate(
        "(() => { const s = document.querySelector('.fan select');"
        f" s.value = '{ids['one']}'; s.dispatchEvent(new Event('change')); }})()"
    )
    filled.wait_for("document.querySelector('.fan').textContent.includes('8 chunks that one')")
    said = filled.evaluate("document.querySelector('.fan').textContent")
    assert "these weights drove this episode" in said
    assert "Of the 4 actions of each, 2 would be carried out" in said
    filled.key("w")
    filled.wait_for("!document.querySelector('.fan').textContent.includes('8 chunks')")
    assert looks(filled, "episode with a run") == []
    assert filled.errors == []
    filled.evaluate("window.fetch = window.unasked")
