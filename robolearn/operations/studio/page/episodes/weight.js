// A selection as a weight of training: one click labels it, and shows the command for which that
// stood and the lines of an experiment's config that weigh it.

import {command, el, fmt} from "../dom.js";
import {say} from "./model.js";

const MOST_IDS = 300;

/** Label what is chosen (where no label says just that already); what to show of it. */
export async function weighed(m, numbers, back) {
  const t = m.table, chosen = new Set(numbers), held = labelled(t, chosen);
  const label = held || free(t), ids = numbers.map((n) => `ep_${String(n).padStart(6, "0")}`);
  const record = held ? null : await say(m.id, {add: [label], episodes: numbers});
  const steps = [0, 0];
  t.number.data.forEach((n, k) => { if (Number.isFinite(t.steps.data[k])) steps[chosen.has(n) ? 0 : 1] += t.steps.data[k]; });
  const lines = el("div"), often = el("input", {type: "number", min: 0.1, max: 1000, step: "any", value: "2", "aria-label": "How many times as often", oninput: () => draw()});
  function draw() {
    const times = Number(often.value);
    lines.replaceChildren(times > 0 ? command(config(t.path, label, times, steps)) : el("p.bad", "a number above 0"));
  }
  draw();
  return el("div", el("h2", "As a weight of training"),
    record ? [el("p", `${fmt.count(numbers.length, "episode")} got the label '${label}' (${record.record}). The same in a terminal:`),
      ids.length <= MOST_IDS ? command(`robolearn data note ${t.quoted} ${ids.join(" ")} --label ${label}`) : el("p.small.muted", `robolearn data note STORE EPISODES --label ${label}, of ${ids.length.toLocaleString("en")} episodes`),
      el("p", el("button", {type: "button", onclick: (e) => { e.target.closest("dialog").close(); back(); }}, "take it back"))]
      : el("p", `The label '${label}' says just that already; nothing was written.`),
    el("label.row", "A step of these is drawn", often, "times as often as another."), el("p", "In the experiment's config:"), lines,
    el("p.small.muted", steps[1] ? `Weights are shares of the batches: of ${fmt.number(steps[0], 9)} and ${fmt.number(steps[1], 9)} steps, as long as the experiment takes all of them.` : "Everything is chosen: there is no other part to weigh it against."));
}

function config(path, label, times, [mine, others]) {
  // A string of JSON is one of YAML.
  const place = JSON.stringify(path), share = (times * mine) / (times * mine + others);
  const part = (choice, weight) => `  - {path: ${place}, ${choice}: [${label}], weight: ${Number(weight.toPrecision(4))}}`;
  return ["data:", "  stores:", part("labels", others ? share : 1), ...(others ? [part("without_labels", 1 - share)] : [])].join("\n");
}

const labels = (t, k) => t.labels.words[t.labels.index.data[k]].split(",").filter(Boolean);

/** A label that exactly the chosen episodes have; "" where there is none. */
function labelled(t, chosen) {
  const found = new Map();
  t.number.data.forEach((n, k) => { for (const l of labels(t, k)) { if (!found.has(l)) found.set(l, []); found.get(l).push(n); } });
  for (const [label, numbers] of found) if (numbers.length === chosen.size && numbers.every((n) => chosen.has(n))) return label;
  return "";
}

function free(t) {
  const taken = new Set(t.labels.words.flatMap((w) => w.split(",")));
  for (let k = 1; ; k++) { const label = k === 1 ? "picked" : `picked-${k}`; if (!taken.has(label)) return label; }
}
