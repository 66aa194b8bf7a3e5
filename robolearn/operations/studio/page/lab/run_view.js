// A run, and others laid over it: live curves, what tells them apart, samples, commands.

import {getJson, of} from "../api.js";
import {el, refill} from "../dom.js";
import {Log} from "./curves.js";
import {commands, facts, fmt, folded, problems, section, tag, words} from "./parts.js";
import {plot, smoothed} from "./plots.js";
import {practice} from "./practice.js";
import {samples} from "./samples.js";

const CLOCK = new Set(["step", "total", "seconds", "cpu_seconds", "data_seconds", "diagnosis_seconds"]);
const EVERY_MS = 400, MOST_RUNS = 8, SILENT_MS = 95e3;
const HELD = "held_out/";
const STATES = {training: ["training", "good"], finished: ["finished", ""], stopped: ["stopped", "warn"], unreadable: ["not readable", "bad"]};

export async function show(main, place, app) {
  const others = (place.query.get("with") || "").split(",").filter((id) => app.things.some((t) => t.id === id && t.kind === "run"));
  const ids = [app.thing.id, ...others.filter((id) => id !== app.thing.id)].slice(0, MOST_RUNS);
  app.title(app.thing.name);
  let runs = await Promise.all(ids.map((id) => getJson(of(id, "run"))));
  const logs = ids.map((id) => new Log(id));
  const head = el("div"), curves = el("div.plots.awaited"), more = el("div.apart");
  const view = {smooth: Number(place.query.get("smooth") || 0), log: place.query.get("log") === "1", plots: new Map(), ended: false};
  const controls = el("div.row",
    el("label.row", el("span.muted", "smooth"), el("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: String(view.smooth), "aria-label": "Smooth curves", oninput: (e) => { view.smooth = Number(e.target.value); address(); draw(true); }})),
    el("label.row", el("input", {type: "checkbox", checked: view.log, onchange: (e) => { view.log = e.target.checked; address(); for (const p of view.plots.values()) p.setLog(view.log); }}), "logarithmic"));
  main.append(head, section("Curves", controls, curves), more);

  function address(list = ids.slice(1)) {
    const query = new URLSearchParams();
    if (list.length) query.set("with", list.join(","));
    if (view.smooth) query.set("smooth", view.smooth);
    if (view.log) query.set("log", "1");
    const text = query.toString().replaceAll("%2C", ",");
    app.replace(`#/run/${app.thing.id}${text ? `?${text}` : ""}`);
    return location.hash;
  }

  const lines = el("div.runs"), other = el("div"), wrong = el("div");
  head.append(el("h1", runs[0].name, " ", ids.length > 1 ? el("span.muted.small", `and ${fmt.count(ids.length - 1, "other run")}`) : ""), lines, other, wrong);
  function drawHead() {
    refill(lines, () => runs.map(runLine));
    // A list that somebody has unfolded would close.
    if (!other.contains(document.activeElement)) refill(other, () => [overlay()]);
    refill(wrong, () => [problems(runs[0].problems)]);
  }

  function runLine(run, k) {
    const [text, tone] = STATES[run.state];
    const step = logs[k].last("step") ?? run.updates, total = run.wanted || logs[k].last("total");
    const seconds = logs[k].last("seconds") ?? run.seconds;
    const left = run.state === "training" && step && total ? seconds / step * (total - step) : null;
    const swatch = el("span.swatch");
    swatch.style.background = `var(--s${k % 8})`;
    const bar = el("progress", {max: total || 1, value: Math.min(step || 0, total || 1), "aria-label": `${run.name}: updates`});
    return el("div.run-line", swatch, k ? el("a", {href: `#/run/${ids[k]}`}, run.name) : el("b", run.name), tag(text, tone), el("span.muted", [run.policy, run.seed && run.seed !== "–" ? `seed ${run.seed}` : ""].filter(Boolean).join(", ")), bar,
      roomy("span.nowrap", step === null || step === undefined ? "no updates yet" : `${fmt.number(step, 9)}${total ? ` of ${fmt.number(total, 9)}` : ""} updates`, total ? `${fmt.number(total, 9)} of ${fmt.number(total, 9)} updates` : ""),
      roomy("span.muted.nowrap", `${seconds ? fmt.seconds(seconds) : ""}${left ? `, ${fmt.seconds(left)} left` : ""}`, run.state === "training" ? "99 min 59 s, 99 min 59 s left" : ""),
      k ? el("button", {type: "button", "aria-label": `Take ${run.name} away`, onclick: () => { address(ids.slice(1).filter((id) => id !== ids[k])); reopen(); }}, "×") : "");
  }

  function reopen() { dispatchEvent(new HashChangeEvent("hashchange")); app.go(location.hash); }

  function overlay() {
    const folder = (t) => t.where.split("/").slice(0, -1).join("/");
    const mine = folder(app.thing);
    const free = app.things.filter((t) => t.kind === "run" && !ids.includes(t.id)).sort((a, b) => (folder(b) === mine) - (folder(a) === mine) || b.changed_s - a.changed_s);
    if (!free.length || ids.length >= MOST_RUNS) return "";
    const select = el("select", {"aria-label": "Lay another run over this one", onchange: () => { if (select.value) app.go(withRun(select.value)); }},
      el("option", {value: ""}, "lay another run over this one …"), free.map((t) => el("option", {value: t.id}, `${t.name}  (${t.where}, ${fmt.ago(t.changed_s)})`)));
    return el("div.row", select);
  }

  function withRun(id) {
    const query = new URLSearchParams(location.hash.split("?")[1] || "");
    query.set("with", [...ids.slice(1), id].join(","));
    return `#/run/${app.thing.id}?${query.toString().replaceAll("%2C", ",")}`;
  }

  function draw() {
    const names = [...new Set(logs.flatMap((l) => l.names()))].filter((n) => !CLOCK.has(n));
    const own = names.filter((n) => !n.startsWith(HELD));
    const rank = (n) => (n.startsWith("loss") ? 0 : n.startsWith("test/") || n.startsWith("evaluation/") ? 1 : n.startsWith("practice/") ? 2 : n.startsWith("critic/") ? 4 : n === "lr_factor" ? 5 : 3);
    own.sort((a, b) => rank(a) - rank(b));
    const alone = names.filter((n) => n.startsWith(HELD) && !own.some((name) => heldOut(name) === n));
    for (const name of [...own, ...alone]) {
      const [beside, words] = besideIt(name), series = [];
      if (own.some((n) => n !== name && besideIt(n)[0] === name)) continue;
      logs.forEach((log, k) => {
        const a = log.curve(name), b = log.curve(beside);
        if (a.x.length) series.push({label: runs[k].name, x: a.x, y: smoothed(a.y, view.smooth), tone: k});
        if (b.x.length) series.push({label: `${runs[k].name}, ${words}`, x: b.x, y: b.y, tone: k, dash: true});
      });
      if (!series.length) continue;
      if (!view.plots.has(name)) {
        const fresh = plot(name.replaceAll("_", " "), {log: view.log, named: 2 * ids.length});
        view.plots.set(name, fresh);
        curves.append(fresh.node);
      }
      view.plots.get(name).draw(series);
    }
    if (!view.plots.size) curves.replaceChildren(el("p.muted", "Nothing was logged yet; curves appear by themselves."));
    else for (const p of curves.querySelectorAll(":scope > p")) p.remove();
    const bad = logs.map((l, k) => (l.problem || l.damaged ? el("div.problem", `${runs[k].name}: `, l.problem || `${fmt.count(l.damaged, "line")} of its log cannot be read; the others are shown`) : "")).filter(Boolean);
    said.replaceChildren(...bad);
  }
  const said = el("div");
  curves.before(said);

  const sampling = samples(app, runs[0]);
  async function drawMore() {
    const different = ids.length > 1 ? await getJson(`/api/runs/differences?of=${ids.join(",")}`) : null;
    if (view.ended) return;
    refill(more, () => [
      runs.map((r, k) => (r.practised ? practised(k).node : "")),
      runs.map((r, k) => (r.diagnosis ? diagnosis(r, k, ids.length > 1) : "")),
      different ? differences(different) : "",
      sampling.node,
      section(ids.length > 1 ? `Commands for ${runs[0].name}` : "Commands", commands(runs[0].commands)),
      certificate(), learnedFrom(runs[0]),
    ]);
  }

  const practices = new Map();
  function practised(k) {
    if (!practices.has(k)) practices.set(k, practice(ids[k], ids.length > 1 ? `Success by version of ${runs[k].name}` : "Success by version"));
    practices.get(k).told(runs[k]);
    practices.get(k).draw();
    return practices.get(k);
  }

  function certificate() {
    if (!runs[0].certified) return "";
    const found = app.things.find((t) => t.kind === "certificate" && t.where.startsWith(app.thing.where));
    return found ? el("p", el("a", {href: `#/certificate/${found.id}`}, "Its certificate")) : "";
  }

  async function tick() {
    if (view.ended) return;
    if (!document.hidden) {
      const grown = await Promise.all(logs.map((l) => l.pull()));
      if (view.ended) return;
      if (grown.some(Boolean)) { heard = performance.now(); draw(); drawHead(); }
      // One that was killed tells nobody: its state is asked for when its log has been silent.
      else if (runs.some((r) => r.state === "training") && performance.now() - heard > SILENT_MS) { heard = performance.now(); await again(); }
    }
    // What has ended is asked rarely: it may be resumed.
    timer = setTimeout(tick, runs.some((r) => r.state === "training") ? EVERY_MS : 2000);
  }
  let timer = 0, heard = performance.now();

  const told = () => JSON.stringify(runs.map((r) => [r.state, r.diagnosis, r.practised, r.outcome, r.problems, r.certified]));
  async function again() {
    const before = told();
    runs = await Promise.all(ids.map((id) => getJson(of(id, "run"))));
    if (view.ended) return;
    drawHead();
    for (const p of practices.values()) p.draw();
    if (told() !== before) await drawMore();
  }

  drawHead();
  await Promise.all(logs.map((l) => l.pull()));
  draw();
  drawHead();
  await drawMore();
  curves.classList.remove("awaited");
  timer = setTimeout(tick, EVERY_MS);
  app.live(again);
  app.keys([
    {key: "l", does: "logarithmic or linear", run: () => controls.querySelector("input[type=checkbox]").click()},
    {key: "o", does: "lay another run over this one", run: () => { const s = head.querySelector("select"); if (s) s.focus(); }},
    ...sampling.keys,
  ]);
  return () => { view.ended = true; clearTimeout(timer); for (const p of [...view.plots.values(), ...practices.values()]) p.end(); sampling.end(); };
}

/** What the trainer calls a loss on held-out episodes: `loss/flow` and `held_out/flow`. */
function heldOut(name) { return HELD + name.replace(/^loss\//, ""); }

/** The curve that is drawn dashed in the plot of another, and what it is: a value beside the return that followed, a loss beside that of held-out episodes. */
function besideIt(name) {
  const value = /^critic\/q_whole(_held_out)?$/.exec(name);
  return value ? [`critic/q_return${value[1] || ""}`, "what followed"] : [heldOut(name), "held out"];
}

/** Words that leave room for the longest that may come to stand there. */
function roomy(what, text, longest) {
  const node = el(what, text);
  node.style.minWidth = `${longest.length}ch`;
  return node;
}

function diagnosis(run, k, named) {
  const tones = {sound: "good", unclear: "", diverging: "bad", overfit: "warn", underfit: "warn"};
  const d = run.diagnosis;
  return section(named ? `What the critic's curves of ${run.name} say` : "What the critic's curves say",
    el("p", tag(d.verdict, tones[d.verdict] || ""), d.peak ? ` values on the data were highest at update ${fmt.number(d.peak, 9)}` : ""),
    el("ul", d.words.map((w) => el("li", w))));
}

function differences(found) {
  const rows = found.rows.map((r) => [el("span.mono.nowrap", r.name), ...r.values.map((v) => el("span.mono", v))]);
  return section("What tells these runs apart", problems(found.problems),
    rows.length ? words(["setting", ...found.runs], rows) : el("p", "Nothing: settings and data are alike, so all that differs is chance."),
    el("p.muted.small", `${fmt.count(found.alike, "setting")} are alike. 'data_hash' says whether they learned from the same recordings; 'code' is the version of robolearn.`));
}

function learnedFrom(run) {
  const held = run.held_out_episodes;
  return el("div", folded("What it learned from, and with what", () => [facts([
    ["folder", el("span.mono", run.path)], ["episodes", run.episodes], ["hash of the data", el("span.mono", run.data_hash)],
    ["kept from training", held.length ? `${fmt.count(held.length, "episode")}: ${held.slice(0, 20).join(", ")}${held.length > 20 ? " …" : ""}` : "none (data.held_out is 0)"],
    ["began", run.started_wall_s ? fmt.date(run.started_wall_s) : ""], ["computing", run.cpu_seconds ? `${fmt.seconds(run.cpu_seconds)} of processor time` : ""],
    ["code", el("span.mono", run.commit.slice(0, 12))], ["builds on", run.parent ? "a run inside of it (parent/)" : ""],
    ["libraries", Object.entries(run.versions).map(([k, v]) => `${k} ${v}`).join(", ")],
  ])]), folded("Its settings (config.yaml)", () => el("pre.command.long", run.config || "nothing")), run.wear ? folded("What practice cost", () => facts(Object.entries(run.wear).map(([k, v]) => [k.replaceAll("_", " "), fmt.number(v)]))) : "");
}

