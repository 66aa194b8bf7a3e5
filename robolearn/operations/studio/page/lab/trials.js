// Trials as dots: one per trial, by policy and world; a click plays it.

import {getJson, of} from "../api.js";
import {el, fmt, refill} from "../dom.js";
import {facts, percent, problems, tag} from "./parts.js";

const PAGE = 500;

/** What plays a trial, shown over the page; `at` is the thing whose trials these are. */
export function player(app) {
  const dialog = el("dialog.player", {"aria-label": "A trial"});
  document.body.append(dialog);
  let address = null;
  const forget = () => { if (address) { URL.revokeObjectURL(address); address = null; } };
  dialog.addEventListener("close", () => { forget(); dialog.replaceChildren(); });
  dialog.addEventListener("click", (e) => { if (e.target === dialog) dialog.close(); });

  async function open(at, shown, around = null) {
    forget();
    const t = shown.trial;
    const stage = el(`div.stage${shown.plays === "clip" ? ".film" : ""}`, el("p.muted", "…"));
    const move = (by) => { const next = around && around(by); if (next) open(at, next, around); };
    dialog.replaceChildren(
      el("div.row", el("h2", `${t.policy}, ${t.condition}`), outcome(t), el("span.spring"),
        around ? el("button", {type: "button", onclick: () => move(-1), "aria-label": "The trial before (←)"}, "←") : "",
        around ? el("button", {type: "button", onclick: () => move(1), "aria-label": "The next trial (→)"}, "→") : "",
        el("button", {type: "button", onclick: () => dialog.close()}, "close")),
      stage,
      facts([["world", t.env], ["score", fmt.number(t.score)], ["ended by", t.reason.replaceAll("_", " ")], ["steps", t.steps], ["lasted", fmt.seconds(t.duration_s)], ["began", t.started], ["operator", t.operator],
        ["seed", t.seed], ["start moved", t.variant], ["note", t.note], ["recorded as", t.episode ? el("span.mono", t.episode) : ""],
        ["measured", Object.entries(t.metrics).slice(0, 12).map(([k, v]) => `${k.replaceAll("_", " ")} ${fmt.number(v)}`).join(", ")]]));
    dialog.onkeydown = (e) => {
      if (e.target.closest("video") && e.key !== "Escape") return;
      if (e.key === "ArrowLeft") move(-1);
      else if (e.key === "ArrowRight") move(1);
      else return;
      e.preventDefault();
    };
    if (!dialog.open) dialog.showModal();
    await fill(stage, at, shown);
  }

  async function fill(stage, at, shown) {
    if (shown.plays === "clip") {
      // As a whole: only then a browser can go to any moment of it.
      const response = await fetch(of(at, "clips", shown.row));
      if (!response.ok) { stage.replaceChildren(el("div.problem", `The film cannot be shown: ${(await response.text()).slice(0, 300)}`)); return; }
      address = URL.createObjectURL(await response.blob());
      const video = el("video", {src: address, controls: true, autoplay: true, loop: true, playsinline: true});
      video.muted = true;
      video.addEventListener("error", () => stage.replaceChildren(el("div.problem", "The film is there and does not decode.")));
      stage.replaceChildren(video);
      return;
    }
    if (shown.plays === "episode") {
      try {
        const where = await getJson(of(at, "recordings", shown.row));
        stage.replaceChildren(where.store
          ? el("p", el("a.button", {href: `#/store/${where.store}/episode/${where.number}`, onclick: () => dialog.close()}, "open its recording: cameras, signals, events"))
          : el("p.muted", where.why));
      } catch (error) { stage.replaceChildren(el("div.problem", error.message)); }
      return;
    }
    stage.replaceChildren(el("p.muted", "This trial was not filmed or recorded. An evaluation films a few of each policy and world (the option 'videos' says how many)."));
  }

  return {open, end() { dialog.close(); dialog.remove(); }};
}

export function outcome(t) {
  if (t.status === "started") return tag("runs now", "warn");
  if (t.status === "voided") return tag("does not count", "");
  if (t.status === "aborted") return tag("aborted: a failure", "bad");
  return t.success ? tag("success", "good") : tag("no success", "bad");
}

/** Dots of the trials of one thing, grouped by policy and world, page by page. */
export function dots(app, at, play) {
  const node = el("div.dots"), line = el("p.muted.small", {role: "status"}), pager = el("div.row");
  const state = {offset: 0, total: 0, trials: []};

  const load = () => getJson(`${of(at, "trials")}?offset=${state.offset}&limit=${PAGE}`);
  const look = async () => draw(await load());

  function draw(d) {
    state.total = d.total;
    state.trials = d.trials;
    const groups = new Map();
    for (const t of d.trials) {
      const key = `${t.trial.env}\n${t.trial.policy}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(t);
    }
    const rows = [...groups].map(([key, trials]) => {
      const [world, policy] = key.split("\n"), counted = trials.filter((t) => ["finished", "aborted"].includes(t.trial.status) && !t.trial.variant);
      const good = counted.filter((t) => t.trial.success).length;
      return el("div.dot-row", el("div.dot-name", el("b", policy), " ", el("span.muted", world), " ", el("span.small.muted.nowrap", `${good} of ${counted.length}${counted.length ? ` (${percent(good / counted.length)})` : ""}`)),
        el("div.dot-line", trials.map((t) => dot(t))));
    });
    // Where the focus was is where Tab comes back to.
    const was = node.querySelector('.dot[tabindex="0"]')?.dataset.row;
    refill(node, () => [problems(d.problems), ...rows, pager, line]);
    const first = node.querySelector(`.dot[data-row="${was}"]`) || node.querySelector(".dot");
    if (first) first.tabIndex = 0;
    line.textContent = state.total ? "● success, ○ no success, × aborted, dashed: a start that was moved or tried again. Bright: filmed or recorded. Arrow keys go from trial to trial, Enter plays." : d.problems.length ? "" : "No trials yet; they appear by themselves.";
    const many = state.total > PAGE;
    pager.replaceChildren(...many ? [
      el("button", {type: "button", disabled: state.offset === 0, onclick: () => { state.offset = Math.max(0, state.offset - PAGE); look(); }}, "earlier"),
      el("span", `trials ${(state.offset + 1).toLocaleString("en")} to ${Math.min(state.total, state.offset + PAGE).toLocaleString("en")} of ${state.total.toLocaleString("en")}`),
      el("button", {type: "button", disabled: state.offset + PAGE >= state.total, onclick: () => { state.offset += PAGE; look(); }}, "later"),
      el("label.row", "from trial", el("input", {type: "number", min: 1, max: state.total, value: String(state.offset + 1), "aria-label": "From trial", onchange: (e) => { state.offset = Math.max(0, Math.min(state.total - 1, Number(e.target.value) - 1 || 0)); look(); }})),
    ] : []);
  }

  function dot(t) {
    const r = t.trial, kind = r.status === "started" ? "runs" : r.status === "voided" ? "void" : r.status === "aborted" ? "aborted" : r.success ? "good" : "fail";
    const words = `${r.condition}${r.variant ? ` (${r.variant})` : ""}: ${r.status === "finished" ? (r.success ? "success" : "no success") : r.status}, score ${fmt.number(r.score)}, ${r.reason.replaceAll("_", " ")}${t.plays === "nothing" ? "" : t.plays === "clip" ? ", filmed" : ", recorded"}`;
    return el(`button.dot.${kind}${r.variant ? ".variant" : ""}${t.plays === "nothing" ? "" : ".plays"}`, {type: "button", tabindex: "-1", title: words, "aria-label": words, "data-row": t.row, onclick: () => play.open(at, t, around(t.row))});
  }

  function around(row) {
    let k = state.trials.findIndex((t) => t.row === row);
    return (by) => { const next = state.trials[k + by]; if (next) k += by; return next; };
  }

  node.addEventListener("keydown", (e) => {
    const by = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10}[e.key];
    if (!by || !e.target.classList.contains("dot")) return;
    e.preventDefault();
    e.stopPropagation();
    const all = [...node.querySelectorAll(".dot")], next = all[Math.max(0, Math.min(all.length - 1, all.indexOf(e.target) + by))];
    e.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  return {node, load, draw, focus() { const d = node.querySelector(".dot"); if (d) d.focus(); }};
}
