// One episode: all cameras at one moment, signals and commands on one time axis, who drove, what
// happened, and what people say of it.

import {getJson, of} from "../api.js";
import {colour, el, fmt} from "../dom.js";
import {linePlot} from "../plot.js";
import {Fan, curves as strands} from "./fan.js";
import {Frames} from "./frames.js";
import {deliver, model, say, undo} from "./model.js";
import {dialog, labels} from "./store_view.js";

const DRIVERS = {policy: "--s0", human: "--s1", operator: "--s2", scripted: "--s2", play: "--s2", replay: "--s3", hold: "--s7"};
const SPEEDS = [0.25, 0.5, 1, 2, 4, 8];

export async function show(main, place, app) {
  const number = Number(place.rest[1]), m = model(app.thing.id);
  if (!m.table) { m.adopt(place.query); await m.load(); try { await m.apply(); } catch { m.filter = ""; await m.apply(); } }
  m.last = number;
  const name = `ep_${String(number).padStart(6, "0")}`;
  app.title(name, [name]);
  const d = await getJson(of(app.thing.id, "episodes", number));
  return new EpisodeView(main, app, m, d, Number(place.query.get("t")) || 0).start();
}

class EpisodeView {
  constructor(main, app, m, d, t) {
    Object.assign(this, {main, app, m, d, tick: 0, speed: 1, playing: false, plots: [], named: new Map(), frames: [], wants: null});
    this.tick = this.tickAt(t);
  }

  start() {
    const {d} = this;
    const at = this.m.order.findIndex((k) => this.m.table.number.data[k] === d.number);
    const nth = (by) => at >= 0 ? this.m.table.number.data[this.m.order[at + by]] : by < 0 ? d.before : d.after;
    [this.before, this.after] = [nth(-1), nth(1)];
    const step = (number, text, title) => (number === undefined || number === null) ? el("button", {type: "button", disabled: true}, text) : el("a.button", {href: this.m.link(number), title}, text);
    this.slider = el("input", {type: "range", min: 0, max: d.steps - 1, step: 1, value: this.tick, "aria-label": "Time"});
    this.clock = el("span.clock");
    this.button = el("button", {type: "button", title: "space", onclick: () => this.play(!this.playing)}, "▶ play");
    this.rate = el("button", {type: "button", title: "< and >", onclick: () => this.faster(1)}, "1×");
    this.strip = el("canvas.strip", {title: "who drove, interventions, events, cuts: click to go there"});
    this.legend = el("div.legend");
    this.side = el("aside.side");
    const where = at >= 0 ? `${at + 1} of ${this.m.order.length}${this.m.filter.trim() ? " in this filter" : ""}` : `${d.place + 1} of ${d.total}`;
    this.outcome = el("span");
    this.stageHost = d.world ? el("figure.stagebox", el("div.stage"), el("figcaption.small.muted", "the scene …")) : null;
    const pictures = el("div.cameras", d.cameras.map((c, k) => this.camera(c, k)), this.stageHost);
    const plots = el("div.signals");
    this.fan = new Fan(this.app, this.m, d, (found) => this.want(found));
    this.main.replaceChildren(
      el("div.row", el("h1", d.id), this.outcome, el("span.muted", where), el("span.spring"), step(this.before, "← before", "p"), step(this.after, "next →", "n")),
      el("div.episode",
        el("div", pictures,
          el("div.transport", this.button, this.rate, this.slider, this.clock),
          this.strip, this.legend, this.fan.node, plots),
        this.side));
    this.slider.addEventListener("input", () => this.go(Number(this.slider.value)));
    this.strip.addEventListener("click", (e) => this.goTime((e.offsetX / this.strip.clientWidth) * this.end_s));
    this.resize = new ResizeObserver(() => this.drawStrip());
    this.resize.observe(this.strip);
    this.onTheme = () => this.drawStrip();
    addEventListener("themechange", this.onTheme);
    this.describe();
    this.app.keys(this.keys());
    this.app.live(() => this.refresh());
    this.curves(plots);
    this.go(this.tick, false);
    if (this.stageHost) this.stage();
    deliver();
    return () => this.end();
  }

  get end_s() { return Math.max(this.d.t_s.data.at(-1), 1e-3); }

  end() {
    this.ended = true;
    this.play(false);
    this.resize.disconnect();
    removeEventListener("themechange", this.onTheme);
    this.fan.end();
    for (const p of this.plots) p.destroy();
    for (const f of this.frames) f.end();
    if (this.scene) this.scene.end();
    clearTimeout(this.linked);
  }

  camera(c, k) {
    const canvas = el("canvas", {role: "img", "aria-label": `camera ${c.name}`}), words = el("span.nowrap");
    this.frames.push(new Frames(canvas, this.app.thing.id, this.d.number, k, c, (text, bad) => { words.textContent = text; words.className = bad ? "bad" : ""; }));
    // A tall picture leaves room for the curves below it.
    const figure = el("figure.camera", canvas, el("figcaption", el("span", c.name, c.missing ? el("span.warn", ` ${c.missing} missing`) : ""), words));
    figure.style.maxWidth = `${Math.round(Math.min(560, (400 * c.size[1]) / c.size[0]))}px`;
    return figure;
  }

  /** The scene in three dimensions where it is known; why not in one line where it is not. */
  async stage() {
    const [box, words] = this.stageHost.children;
    try {
      const [made, {Stage}] = await Promise.all([getJson(of(this.app.thing.id, "episodes", this.d.number, "stage")), import("./stage.js")]);
      if (this.ended) return;
      this.scene = new Stage(box, made);
      this.scene.show(this.tick);
      if (this.wants) this.scene.fan(this.wants.signals);
      words.textContent = `scene ${made.scene}, as recorded${made.words ? ` (${made.words})` : ""} · drag turns, Shift moves, the wheel zooms`;
    } catch (error) {
      if (this.ended) return;
      // Its room stays: what lies below does not move.
      box.replaceChildren(el("p.muted.small", `No scene in three dimensions: ${error.message}`));
      words.textContent = "";
    }
  }

  curves(host) {
    const {d} = this, spans = d.drivers.filter((s, k) => k && s.what.startsWith("human") && d.drivers.some((o) => o.what.startsWith("policy"))).map((s) => ({begin: s.begin_s, end: s.end_s}));
    const marks = [...d.events.map((e) => ({at: e.begin_s, ink: "--bad"})), ...d.markers_s.map((at) => ({at, ink: "--warn"}))];
    const common = {x: d.t_s.data, xLabel: "time [s]", xRange: [0, this.end_s], spans, marks, onSeek: (t) => this.goTime(t), height: 170};
    const add = (title, series, unit, closed, name = "") => {
      const inside = el("div"), box = el("details", {open: !closed}, el("summary", el("strong", title), el("span.muted.small", unit ? ` [${unit}]` : "")), inside);
      host.append(box);
      const draw = () => { if (box.open && !box.drawn) { box.drawn = true; const p = linePlot(inside, {...common, series}); this.plots.push(p); p.at(d.t_s.data[this.tick]); if (name) { this.named.set(name, p); this.drawWanted(name); } } };
      box.addEventListener("toggle", draw);
      draw();
    };
    const column = (a, k) => Float32Array.from({length: a.shape[0]}, (_, i) => a.data[i * a.shape[1] + k]);
    const same = d.progress.data.every((v, i) => v === d.reward.data[i]);
    add("task", [{name: same ? "progress = reward" : "progress", y: d.progress.data}, ...(same ? [] : [{name: "reward", y: d.reward.data}])], "");
    d.curves.forEach((c, place) => {
      const wide = c.value.shape[1], series = [];
      for (let k = 0; k < Math.min(wide, 8); k++) {
        const name = c.components[k] || String(k);
        series.push({name, y: column(c.value, k), x: c.t_s.data, ink: k});
        if (c.command) series.push({name: `${name} commanded`, y: column(c.command, k), x: d.t_s.data, ink: k, dash: true, width: 1});
        if (c.sent) series.push({name: `${name} sent`, y: column(c.sent, k), x: c.sent_s.data, ink: k + 4, width: 1});
      }
      const more = [wide > 8 ? `the first 8 of ${wide}` : "", c.thinned > 1 ? `every ${c.thinned}th sample` : ""].filter(Boolean).join(", ");
      add(c.name + (more ? ` (${more})` : ""), series, c.unit, place >= 3, c.name);
    });
  }

  /** Chunks at the playhead, into the plots of their signals and into the scene; null: none. */
  want(found) {
    this.wants = found;
    for (const name of this.named.keys()) this.drawWanted(name);
    if (this.scene) this.scene.fan(found ? found.signals : []);
  }

  drawWanted(name) {
    const plot = this.named.get(name), s = this.wants && this.wants.signals.find((x) => x.name === name || `${x.name} (commanded)` === name);
    if (!s) { if (plot.fanned) plot.fan([]); plot.fanned = false; return; }
    const t = this.d.t_s.data[this.wants.tick];
    plot.fan(Array.from({length: Math.min(8, s.samples.shape[2])}, (_, k) => strands(s, k, t, this.wants.chunk_rate_hz).map((c) => ({...c, ink: k}))).flat());
    plot.fanned = true;
  }

  describe() {
    const {d} = this;
    this.outcome.replaceChildren(el(d.success ? "strong.good" : "strong.bad", d.success ? "✓ success" : "✗ no success"), el("span.muted", ` best progress ${fmt.number(d.score)}${d.reason ? `, ${d.reason.replaceAll("_", " ")}` : ""}`));
    const fact = (name, value) => value ? [el("dt", name), el("dd", value)] : [];
    const act = (text, key, what) => el("button", {type: "button", title: `key ${key}`, onclick: () => this.tell(what)}, text);
    const events = [...d.events, ...d.markers_s.map((t) => ({what: "cut here", begin_s: t, end_s: t}))].sort((a, b) => a.begin_s - b.begin_s);
    this.side.replaceChildren(...[
      el("div.saying", act("✓ success", "1", {outcome: "success"}), act("✗ no success", "0", {outcome: "failure"}), act("keep", "+", {add: ["keep"], remove: ["discard"]}), act("discard", "-", {add: ["discard"], remove: ["keep"]}),
        el("button", {type: "button", title: "key l", onclick: () => this.ask("label")}, "label …"), el("button", {type: "button", title: "key t", onclick: () => this.ask("note")}, "note …"),
        el("button", {type: "button", title: "key m", onclick: () => this.cut()}, "cut here"), el("button", {type: "button", title: "key u", onclick: () => this.back()}, "take back")),
      d.labels.length ? el("p", d.labels.map((l) => [el("span.tag", l), " "])) : "",
      d.notes.map((n) => el("p.note", n)),
      el("dl.facts", fact("task", d.task_text || d.task), fact("kind", d.kind), fact("operator", d.operator), fact("agent", d.agent), fact("in", d.env), fact("world", d.world), fact("when", d.started_s ? fmt.date(d.started_s) : ""),
        fact("length", `${fmt.seconds(d.duration_s)}, ${d.steps} steps at ${fmt.number(d.rate_hz)} Hz`), fact("split", d.split)),
      events.length ? [el("h2", `Events (${events.length})`), el("ul.events", events.slice(0, 300).map((e) => el("li", el("button", {type: "button", onclick: () => this.goTime(e.begin_s)}, `${e.begin_s.toFixed(2)} s  ${e.what}`))))] : "",
      d.history.length ? [el("h2", "Said about it"), el("ul.events", d.history.map((h) => el("li.small", el("span.muted", `${h.author}, ${fmt.ago(h.wall_s)}: `), h.words)))] : ""].flat(3).filter(Boolean));
    this.drawStrip();
  }

  drawStrip() {
    const {d, strip} = this, wide = Math.max(1, strip.clientWidth), scale = devicePixelRatio || 1;
    strip.width = wide * scale; strip.height = 22 * scale;
    const pen = strip.getContext("2d");
    pen.scale(scale, scale);
    const ink = (what) => colour(DRIVERS[what.split(":")[0]] || "--s4"), x = (t) => (t / this.end_s) * wide, names = new Map();
    for (const s of d.drivers) { pen.fillStyle = ink(s.what); pen.fillRect(x(s.begin_s), 0, Math.max(1, x(s.end_s) - x(s.begin_s)), 13); names.set(s.what, pen.fillStyle); }
    pen.fillStyle = colour("--bad");
    for (const e of d.events) pen.fillRect(x(e.begin_s), 13, Math.max(2, x(e.end_s) - x(e.begin_s)), 9);
    pen.fillStyle = colour("--warn");
    for (const t of d.markers_s) pen.fillRect(x(t) - 1, 0, 3, 22);
    this.legend.replaceChildren(...[...names].slice(0, 8).map(([what, c]) => { const dot = el("i"); dot.style.background = c; return el("span", dot, what || "nobody"); }), ...(d.events.length ? [legend("--bad", "event")] : []), ...(d.markers_s.length ? [legend("--warn", "cut")] : []));
  }

  tickAt(t) {
    const times = this.d.t_s.data;
    let low = 0, high = times.length - 1;
    while (low < high) { const mid = (low + high + 1) >> 1; if (times[mid] <= t + 1e-6) low = mid; else high = mid - 1; }
    return low;
  }

  goTime(t) { this.go(this.tickAt(t)); }

  go(tick, link = true) {
    this.tick = Math.max(0, Math.min(this.d.steps - 1, tick));
    const t = this.d.t_s.data[this.tick];
    this.slider.value = this.tick;
    this.clock.textContent = `${t.toFixed(2)} / ${this.end_s.toFixed(2)} s`;
    for (const f of this.frames) f.show(this.tick);
    if (this.scene) this.scene.show(this.tick);
    this.fan.at(this.tick, this.playing);
    if (!this.lined) { this.lined = true; requestAnimationFrame(() => { this.lined = false; if (!this.ended) for (const p of this.plots) p.at(this.d.t_s.data[this.tick]); }); }
    if (link) { clearTimeout(this.linked); this.linked = setTimeout(() => this.app.replace(this.m.link(this.d.number, `t=${t.toFixed(3)}`)), 200); }
  }

  play(on) {
    this.playing = on;
    this.button.textContent = on ? "⏸ pause" : "▶ play";
    cancelAnimationFrame(this.turning);
    if (!on) { if (!this.ended) this.fan.at(this.tick, false); return; }
    if (this.tick >= this.d.steps - 1) this.go(0);
    let began = performance.now(), from = this.d.t_s.data[this.tick];
    const turn = (now) => {
      const t = from + ((now - began) / 1000) * this.speed, next = this.tickAt(t);
      if (next !== this.tick) this.go(next);
      if (next >= this.d.steps - 1) { this.play(false); return; }
      this.turning = requestAnimationFrame(turn);
    };
    this.restart = () => { began = performance.now(); from = this.d.t_s.data[this.tick]; };
    this.turning = requestAnimationFrame(turn);
  }

  faster(by) {
    const at = SPEEDS.indexOf(this.speed) + by;
    this.speed = SPEEDS[at >= SPEEDS.length ? 0 : Math.max(0, at)];
    this.rate.textContent = `${this.speed}×`;
    if (this.playing) this.restart();
  }

  async refresh() {
    const d = await getJson(of(this.app.thing.id, "episodes", this.d.number));
    if (this.ended) return;
    this.d = d;
    this.describe();
  }

  async tell(what) {
    try {
      const record = await say(this.m.id, {...what, episodes: [this.d.number]});
      this.app.say(`${record.record}: ${record.words} · u takes it back`);
      await this.refresh();
      this.m.table = null;
      await this.m.load(); await this.m.apply().catch(() => {});
    } catch (error) { this.app.say(error.message, true); }
  }

  async back() {
    try {
      const record = await undo(this.m.id);
      this.app.say(record ? record.words : "nothing was said here that could be taken back");
      if (record) { await this.refresh(); await this.m.load(); }
    } catch (error) { this.app.say(error.message, true); }
  }

  cut() {
    const t = Math.round(this.d.t_s.data[this.tick] * 1000) / 1000;
    const markers = [...new Set([...this.d.markers_s, t])].sort((a, b) => a - b);
    this.tell({markers});
  }

  ask(what) {
    const input = el("input", {type: "text", "aria-label": what, placeholder: what === "label" ? "good   or  -good to take it off" : "what you saw"});
    dialog(el("form", {onsubmit: () => { const text = input.value.trim(); if (text) this.tell(what === "note" ? {note: text} : labels(text)); }}, el("h2", what === "label" ? "Label" : "Note"), input, el("p", el("button.primary", "say"))), input);
  }

  keys() {
    const to = (number) => () => { if (number !== undefined && number !== null) this.app.go(this.m.link(number)); };
    return [
      {key: " ", does: "play or pause", run: () => this.play(!this.playing)},
      {key: "ArrowRight", does: "a step on", run: (e) => this.go(this.tick + (e.shiftKey ? 10 : 1))}, {key: "ArrowLeft", does: "a step back (10 with Shift)", run: (e) => this.go(this.tick - (e.shiftKey ? 10 : 1))},
      {key: "Home", does: "to the beginning", run: () => this.go(0)}, {key: "End", does: "to the end", run: () => this.go(this.d.steps - 1)},
      {key: "w", does: "what the policy wanted here", run: () => this.fan.toggle()},
      {key: ">", does: "faster", run: () => this.faster(1)}, {key: "<", does: "slower", run: () => this.faster(-1)},
      {key: "n", does: "next episode (of the filter)", run: to(this.after)}, {key: "p", does: "episode before", run: to(this.before)},
      {key: "1", does: "it succeeded", run: () => this.tell({outcome: "success"})}, {key: "0", does: "it did not", run: () => this.tell({outcome: "failure"})},
      {key: "+", does: "label keep", run: () => this.tell({add: ["keep"], remove: ["discard"]})}, {key: "-", does: "label discard", run: () => this.tell({add: ["discard"], remove: ["keep"]})},
      {key: "l", does: "label", run: () => this.ask("label")}, {key: "t", does: "note", run: () => this.ask("note")}, {key: "m", does: "cut here", run: () => this.cut()},
      {key: "u", does: "take back what was said last", run: () => this.back()},
      {key: "e", does: "to the next event", run: () => { const t = this.d.t_s.data[this.tick], next = this.d.events.find((e) => e.begin_s > t + 1e-6); if (next) this.goTime(next.begin_s); }},
    ];
  }
}

function legend(ink, text) { const dot = el("i"); dot.style.background = colour(ink); return el("span", dot, text); }
