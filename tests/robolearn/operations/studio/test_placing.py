"""Objects of a reconstructed scene are dragged in its photographs; commands come out."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from robolearn.capture.folder import read_capture
from robolearn.operations.studio.server.serve import Studio, serve_studio
from sim.reconstruction.pipeline import reconstruct
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from tests.browser import chromium
from tests.robolearn.operations.studio.test_browser import looks
from tests.sim.reconstruction.worlds import draw, shoot


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Generator[Studio]:
    folder = tmp_path_factory.mktemp("placing")
    lab = folder / "lab"
    lab.mkdir()
    shoot(lab / "capture", draw(3))
    write_reconstructed(reconstruct(read_capture(lab / "capture")), SceneChoice(), lab / "cell")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        with serve_studio([lab], port=0) as served:
            yield served


def test_an_object_is_dragged_in_a_photograph(studio: Studio) -> None:
    scene = next(t for t in studio.library.things() if t.kind == "scene")
    text = Path(scene.path, "scene.yaml").read_text()
    with chromium(1400, 1200) as tab:
        tab.open(studio.url)
        tab.wait_for("!!document.querySelector('td a')")
        tab.evaluate(f"location.hash = '#/scene/{scene.id}'")
        tab.wait_for(
            "[...document.querySelectorAll('h2')].some((h) => h.textContent === 'By hand')"
        )
        tab.evaluate(
            "[...document.querySelectorAll('button')]"
            ".find((b) => b.textContent.startsWith('move its objects')).click()"
        )
        shown = "document.querySelector('.placing .stage img').src"
        tab.wait_for(
            f"document.querySelector('.placing .stage img') && {shown}.startsWith('data')", 60
        )
        tab.wait_for("document.querySelectorAll('.placing tbody tr').length === 3")
        before = tab.evaluate(shown)
        tab.evaluate("document.querySelector('.placing .stage').scrollIntoView({block: 'center'})")
        x, y = tab.centre(".placing .stage")
        tab.button("mousePressed", x, y)
        tab.pointer(x + 25, y + 10)
        tab.button("mouseReleased", x + 25, y + 10)
        told = "document.querySelector('.placing pre')?.textContent ?? ''"
        tab.wait_for(f"({told}).startsWith('robolearn scene override')", 30)
        dragged = tab.evaluate(told)
        assert str(scene.path) in dragged
        assert " --pose " in dragged
        tab.evaluate("document.querySelector('.placing .stage').focus()")
        tab.key("ArrowRight")
        tab.wait_for(f"![{dragged!r}, ''].includes({told})", 30)
        one, other = dragged.split(), tab.evaluate(told).split()
        # A millimetre along x, and the two that a person had dragged it stay.
        at = one.index("--pose") + 1
        assert float(other[at]) - float(one[at]) == pytest.approx(1e-3, abs=2e-5)
        assert other[at + 1 :] == one[at + 1 :]
        assert tab.evaluate(shown) != before
        assert looks(tab, "by hand") == []
        tab.evaluate(
            "[...document.querySelectorAll('.placing button')]"
            ".find((b) => b.textContent === 'as it was').click()"
        )
        tab.wait_for(f"({told}) === '' && {shown} === {before!r}", 30)
        assert tab.errors == []
    assert Path(scene.path, "scene.yaml").read_text() == text
