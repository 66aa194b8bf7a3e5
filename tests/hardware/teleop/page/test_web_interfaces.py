"""What the page's scripts ask a browser for is what the page of teleoperation says they do."""

import re
from pathlib import Path

from hardware.teleop.page.assembly import SCRIPTS

FILES = Path(__file__).parents[4] / "hardware" / "teleop" / "page" / "files"
DOCS = Path(__file__).parents[4] / "docs" / "teleoperation.md"
# The language's own, in every browser for ten years.
LANGUAGE = {"Infinity", "Map", "Math", "Object", "JSON", "Number", "SVG", "VERSION"}
ORDINARY = {"document", "location", "window"}
# What each says that no name of an interface shows.
MEMBERS = {
    "setPointerCapture": "PointerEvent",
    "createImageBitmap": "createImageBitmap",
    "requestAnimationFrame": "requestAnimationFrame",
    "matchMedia": "matchMedia",
}


def code():
    """The scripts without comments and texts."""
    text = "\n".join((FILES / name).read_text(encoding="utf-8") for name in SCRIPTS)
    text = re.sub(r"^\s*//.*$|/\*.*?\*/", "", text, flags=re.MULTILINE)
    return re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", "''", text)


def used():
    """Interfaces of the browser that the scripts name."""
    text = code()
    own = set(re.findall(r"class (\w+)", text)) | LANGUAGE
    # Words in templates stand between spaces; names are called, made, or asked for members.
    made = set(
        re.findall(r"\bnew ([A-Z]\w+)|\binstanceof ([A-Z]\w+)|(?<![.\w])([A-Z]\w+)\.\w", text)
    )
    found = {name for names in made for name in names if name} - own
    found |= set(re.findall(r"\b((?:navigator|performance|screen)\.\w+)", text))
    found |= {said for name, said in MEMBERS.items() if re.search(rf"\b{name}\(", text)}
    return {name for name in found if not name.startswith("HTML")}


def told():
    """Those of the table."""
    table = DOCS.read_text(encoding="utf-8").partition("| web interface |")[2].partition("\n\n")[0]
    first = [row.split("|")[1] for row in table.splitlines()[2:]]
    return {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}


def test_the_list_is_complete():
    assert used() == told()


def test_nothing_takes_the_screen():
    html = (FILES / "index.html").read_text(encoding="utf-8")
    assert "<video" not in html
    assert not re.search(r"requestFullscreen|vibrate|wakeLock|orientation\.lock", code())
