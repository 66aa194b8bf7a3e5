"""The page's files are those that were vouched for, need nothing else, and are documented."""

import hashlib
import re
from pathlib import Path

from robolearn.operations.studio import routes
from robolearn.operations.studio.server.files import page_files
from robolearn.table import resolve

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "robolearn" / "operations" / "studio" / "page"


def test_libraries_are_the_published_files_with_their_licences():
    lines = (PAGE / "vendor/SHA256SUMS").read_text().splitlines()
    sums = {line.split("  ")[1]: line.split("  ")[0] for line in lines}
    files = [f for f in (PAGE / "vendor").rglob("*/*") if f.is_file()]
    assert {f.relative_to(PAGE / "vendor").as_posix() for f in files} == set(sums)
    for file in files:
        name = file.relative_to(PAGE / "vendor").as_posix()
        assert hashlib.sha256(file.read_bytes()).hexdigest() == sums[name], name
    for library in {name.split("/")[0] for name in sums}:
        assert "MIT" in (PAGE / "vendor" / library / "LICENSE").read_text()


def test_every_import_of_the_page_is_one_of_its_files():
    files = page_files()
    for address, file in files.items():
        if not address.endswith(".js") or "/vendor/" in address:
            continue
        text = file.body.decode()
        for name in re.findall(r"""(?:from|import\()\s*["']([^"']+)["']""", text):
            assert name.startswith((".", "/page/")), f"{address} imports {name}"
            base = Path(address).parent
            wanted = name if name.startswith("/") else str(base / name)
            resolved = Path("/", *_normal(wanted)).as_posix()
            assert resolved in files, f"{address} imports {name}, which is not there"


def test_nothing_is_fetched_from_elsewhere():
    for address, file in page_files().items():
        if "/vendor/" not in address and address.endswith((".js", ".css", ".html")):
            found = re.findall(rb"https?://[^\s\"'<>)]+", file.body)
            assert [f for f in found if b"www.w3.org" not in f] == [], address
            assert b"innerHTML" not in file.body, address


def test_what_is_seen_and_is_no_text_stands_out():
    """WCAG 2.1, 1.4.11: curves, the focus and edges of controls, 3 : 1 on what they lie on."""
    sheet = (PAGE / "page.css").read_text()
    themes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for block in re.findall(r":root[^{]*\{([^}]*--surface[^}]*)\}", sheet)
    ]
    assert len(themes) == 3
    curves = [f"s{k}" for k in range(8)]
    # Of bundles, of thin curves, of the dots of trials: as their own sheets and modules say.
    faint = [
        float(re.findall(rule, (PAGE / name).read_text())[0])
        for name, rule in (
            ("plot.js", r"globalAlpha = (0\.\d+);"),
            ("lab/plots.js", r"alpha: s\.thin \? (0\.\d+)"),
            ("lab/samples.js", r"1\.5, (0\.\d+)\)"),
            ("lab/lab.css", r"\.dot \{[^}]*opacity: (0\.\d+);"),
        )
    ]
    weak: list[object] = []
    for theme in themes:
        for ground in ("surface", "panel", "raised", "mark"):
            weak += [
                (ink, ground)
                for ink in ("accent", "edge", "good", "bad", "warn", *curves)
                if _contrast(theme[ink], theme[ground]) < 3
            ]
        for alpha in faint:
            weak += [
                (ink, alpha)
                for ink in ("good", "bad", "warn", "muted", *curves)
                if _contrast(_over(theme[ink], theme["surface"], alpha), theme["surface"]) < 3
            ]
    assert weak == []


def _channels(colour: str) -> list[float]:
    return [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]


def _over(colour: str, ground: str, alpha: float) -> str:
    both = zip(_channels(colour), _channels(ground), strict=True)
    return "#" + "".join(f"{round(255 * (alpha * a + (1 - alpha) * b)):02x}" for a, b in both)


def _contrast(one: str, two: str) -> float:
    def light(colour: str) -> float:
        parts = [
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in _channels(colour)
        ]
        return sum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), parts, strict=True))

    low, high = sorted((light(one), light(two)))
    return (high + 0.05) / (low + 0.05)


def test_a_class_is_laid_out_by_one_sheet():
    """Sheets are loaded in an order: what two say of a class, the later one decides for both."""
    laid_out: dict[str, set[str]] = {}
    for name in ("episodes/episodes.css", "lab/lab.css"):
        sheet = re.sub(r"/\*.*?\*/|@media[^{]*", "", (PAGE / name).read_text(), flags=re.DOTALL)
        for selector in re.findall(r"[^{},;]+(?=[^{};]*\{)", sheet):
            first = selector.split()[0] if selector.split() else ""
            for word in re.findall(r"\.[\w-]+", first):
                laid_out.setdefault(word, set()).add(name)
    assert {".cameras", ".dot", ".camera", ".plots"} <= set(laid_out)
    assert {word for word, names in laid_out.items() if len(names) > 1} == set()


def test_every_route_has_a_function_and_a_line_in_the_docs():
    page = (ROOT / "docs" / "studio.md").read_text()
    told = set(re.findall(r"^\| `((?:GET|POST) /api/[^`]*)` \|", page, re.MULTILINE))
    there = {f"{r.method} {r.path}" for r in routes.ROUTES} | {"GET /api/changes"}
    assert told == there
    for route in routes.ROUTES:
        assert callable(resolve(route.place))


def _normal(path: str) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return parts
