// What a practice came to, version by version of the weights: a table and a plot with intervals.

import {getJson, of} from "../api.js";
import {el, fmt, refill} from "../dom.js";
import {interval, intervalText, problems, section, words} from "./parts.js";
import {plot} from "./plots.js";

/** The section of one run; `told(run)` says how it came out, `draw()` asks again, `end()` lets go of its plot. */
export function practice(id, title) {
  const shown = plot("share of episodes that succeeded, 0 to 1 (95 % intervals)", {x: "version of the weights", whole: true, yLimits: [0, 1], named: 4});
  // What comes later has its room: the plot, or why there is none, and a line that unfolds.
  const said = el("div", el("p.waiting", {role: "status"}, "counting its episodes … (the first count takes some seconds)")), table = el("div");
  const outcome = el("div"), node = section(title, outcome, el("div.practised", said, shown.node),
    el("p.muted.small", "While it practises a version explores, and versions meet other starts; on held-out starts it acts as it would be deployed, its parent on the same ones. Success is success without a person's help. Each interval stands for itself: among many versions some miss."),
    el("details.folded", el("summary", "Version by version"), table));
  let ended = false;
  shown.draw([]);
  shown.node.classList.add("to-come");

  async function draw() {
    let d;
    try { d = await getJson(of(id, "practice")); }
    catch (error) { if (!ended) said.replaceChildren(el("div.problem", error.message)); return; }
    if (ended) return;
    const plotted = d.versions.some((v) => v.version !== null) || d.tests.length > 0;
    const any = d.versions.length || d.tests.length;
    said.replaceChildren(problems(d.problems), d.problems.length ? "" : !any ? el("p.waiting", "No episode was finished yet.") : plotted ? "" : el("p.waiting", "Only its parent has driven so far: version by version, below."));
    shown.node.classList.toggle("to-come", !plotted);
    shown.draw(series(d));
    const lines = rows(d);
    refill(table, () => lines.length ? head(lines) : el("p.muted", "Nothing yet."));
  }

  const told = ({outcome: o}) => refill(outcome, () => o && o.sentences.length ? el(o.sound ? "p" : "div.problem", o.sentences.join(" ")) : "");
  return {node, told, draw, end() { ended = true; shown.end(); }};
}

const tested = (t) => ({value: t.successes / t.starts, low: t.low, high: t.high});

function series(d) {
  const flown = d.versions.filter((v) => v.version !== null), parent = d.versions.find((v) => v.version === null), found = [];
  const all = [...flown, ...d.tests].map((v) => v.version);
  if (flown.length) found.push({label: "while practising", x: flown.map((v) => v.version), y: flown.map((v) => v.success.value), tone: 0, bars: {low: flown.map((v) => v.success.low), high: flown.map((v) => v.success.high), shift: -2}});
  if (d.tests.length) {
    found.push({label: "on held-out starts", x: d.tests.map((t) => t.version), y: d.tests.map((t) => tested(t).value), tone: 2, bars: {low: d.tests.map((t) => t.low), high: d.tests.map((t) => t.high), shift: 3}});
    found.push({label: "its parent on these", x: d.tests.map((t) => t.version), y: d.tests.map((t) => t.parent_successes / t.starts), tone: 3, dash: true});
  }
  if (parent && all.length) {
    const ends = [Math.min(...all), Math.max(...all)];
    found.push({label: "parent while practising", x: ends, y: ends.map(() => parent.success.value), tone: 1, dash: true});
  }
  return found;
}

function rows(d) {
  const tests = new Map(d.tests.map((t) => [t.version, t])), flown = new Map(d.versions.map((v) => [v.version, v]));
  return [...new Set([...flown.keys(), ...tests.keys()])].map((version) => {
    const v = flown.get(version), t = tests.get(version);
    return [
      version === null ? el("b", "parent") : el("b", String(version)),
      v ? interval(v.success) : "", v ? [el("span.nowrap", `${v.successes} of ${v.episodes}: ${intervalText(v.success)}`), v.helped ? el("div.small.muted", `${v.helped} with help`) : ""] : el("span.muted", "did not practise"),
      t ? interval(tested(t)) : "", t ? el("span.nowrap", `${t.successes} of ${t.starts}: ${intervalText(tested(t))}`) : "",
      t ? el("span.nowrap", `${t.parent_successes} of ${t.starts} (p ${fmt.number(t.p, 2)})`) : ""];
  });
}

function head(lines) { return words(["version", "while practising", "", "on held-out starts", "", "parent on these"], lines); }
