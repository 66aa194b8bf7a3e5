// Small pieces that views of runs, evaluations and scenes share.

import {command, el, fmt, table} from "../dom.js";

/** What could not be read, said in place. */
export function problems(found, nothing = "") {
  if (!found || !found.length) return nothing;
  return el("div", found.map((p) => el("div.problem", el("b", p.where), ": ", p.words)));
}

/** Facts as a list; what is empty is left out. */
export function facts(pairs) {
  const kept = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== "–");
  return el("dl.facts", kept.flatMap(([name, value]) => [el("dt", name), el("dd", value)]));
}

export function section(title, ...content) { return el("section", el("h2", title), content); }

/** A part that is shown when somebody wants it. */
export function folded(title, content, open = false) {
  const node = el("details.folded", {open}, el("summary", title));
  let made = false;
  const fill = () => { if (!made && node.open) { made = true; node.append(el("div", typeof content === "function" ? content() : content)); } };
  node.addEventListener("toggle", fill);
  fill();
  return node;
}

/** A share with its interval on a line from 0 to 1 (or `from`, `to`). */
export function interval(estimate, {from = 0, to = 1, tone = ""} = {}) {
  if (!estimate || estimate.value === null) return el("span.muted", "not known");
  const share = (v) => Math.max(0, Math.min(100, 100 * (v - from) / (to - from)));
  const low = estimate.low ?? estimate.value, high = estimate.high ?? estimate.value;
  const range = el("span.range"), point = el("span.point"), zero = from < 0 ? el("span.zero") : "";
  range.style.left = `${share(low)}%`;
  range.style.width = `${Math.max(0.5, share(high) - share(low))}%`;
  point.style.left = `${share(estimate.value)}%`;
  if (zero) zero.style.left = `${share(0)}%`;
  const words = intervalText(estimate);
  return el(`span.interval${tone ? `.${tone}` : ""}`, {role: "img", "aria-label": words, title: words}, zero, range, point);
}

export function intervalText(e, digits = 2) {
  if (!e || e.value === null) return "not known";
  const n = (v) => (v === null || v === undefined ? "?" : v.toFixed(digits));
  return `${n(e.value)} [${n(e.low)}, ${n(e.high)}]`;
}

/** A tag with a tone: good, bad, warn or none. */
export function tag(text, tone = "") { return el(`span.tag${tone ? `.${tone}` : ""}`, text); }

/** Commands with what they do, and which words are to be filled in. */
export function commands(list) {
  return el("div", list.map((c) => el("div", el("p.small", c.does, c.missing && c.missing.length ? el("span.muted", ` (put in: ${c.missing.join(", ")})`) : ""), command(c.command))));
}

/** A table of plain words: `header` and rows of texts or nodes; numbers on the right from a column on. */
export function words(header, rows, right = header.length) {
  return table(header.map((name, k) => ({name, right: k >= right, cell: (row) => row[k] ?? ""})), rows);
}

/** Runs `work` when it is not running already; a call meanwhile runs it once more afterwards. */
export function oneAtATime(work) {
  let running = false, again = false;
  return async function run() {
    if (running) { again = true; return; }
    running = true;
    try { do { again = false; await work(); } while (again); }
    finally { running = false; }
  };
}

/** The things of some kinds as options of a select, the chosen one first. */
export function picker(label, things, chosen, changed, none = "") {
  const select = el("select", {"aria-label": label, onchange: () => changed(select.value)},
    none ? el("option", {value: ""}, none) : "",
    things.map((t) => el("option", {value: t.id, selected: t.id === chosen}, `${t.name} (${t.where})`)));
  return el("label.row", el("span.muted", label), select);
}

export function percent(value) { return value === null || value === undefined ? "–" : `${(100 * value).toFixed(0)} %`; }

export {fmt};
