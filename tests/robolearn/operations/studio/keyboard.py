"""Walks a page by keys alone, as somebody does who has no pointer."""

from __future__ import annotations

from typing import Any

from tests.browser import Tab

CONTROLS = """(() => {
  window.controls = [...document.querySelectorAll(
      "a[href], button, input, select, textarea, summary, video[controls], [tabindex]")]
    .filter((n) => n.tabIndex >= 0 && !n.disabled && n.checkVisibility({visibilityProperty: true}));
  window.reached = [];
  document.querySelector(".skip").focus();
  return window.controls.length;
})()"""
# Where the focus is, and what is wrong with how it shows; nothing when it has left the page.
FOCUS = """(() => {
  const n = document.activeElement;
  if (!n || n === document.body) return null;
  const style = getComputedStyle(n), box = n.getBoundingClientRect();
  window.reached.push(n);
  const wrong = [];
  if (style.outlineStyle === "none" || !(parseFloat(style.outlineWidth) >= 1))
    wrong.push("shows no focus");
  if (!(box.width * box.height > 0 && box.bottom > 0 && box.top < innerHeight))
    wrong.push("out of sight");
  return {at: window.controls.indexOf(n), wrong, what: n.outerHTML.slice(0, 120)};
})()"""
MISSED = """window.controls.filter((n) => n.isConnected && !window.reached.includes(n))
  .map((n) => n.outerHTML.slice(0, 120))"""


def walk(tab: Tab) -> list[str]:
    """What is wrong with the way of Tab, and of Shift and Tab, through the view that is shown."""
    count = tab.evaluate(CONTROLS)
    there = _steps(tab, count, back=False)
    found = [f"{word}: {step['what']}" for step in there for word in step["wrong"]]
    # What was drawn anew meanwhile (plots, after the window's size) has no place among the rest.
    order = [step["at"] for step in there if step["at"] >= 0]
    if order != sorted(order):
        found.append(f"Tab goes {order}")
    found += [f"Tab does not come to {what}" for what in tab.evaluate(MISSED)]
    tab.evaluate("window.controls.at(-1).focus(); window.reached = []; 0")
    _steps(tab, count, back=True)
    return found + [f"Shift and Tab does not come to {what}" for what in tab.evaluate(MISSED)]


def _steps(tab: Tab, count: int, *, back: bool) -> list[dict[str, Any]]:
    """Until the first or the last control is passed; a trap ends it, too."""
    steps: list[dict[str, Any]] = []
    for _ in range(count + 1):
        step = tab.evaluate(FOCUS)
        if step is None or (steps and step["at"] == (count - 1 if back else 0)):
            break
        steps.append(step)
        tab.key("Tab", shift=back)
    return steps
