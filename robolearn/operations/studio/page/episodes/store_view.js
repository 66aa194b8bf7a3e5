// A store: the wall of its episodes, a filter that reads like the command line's, what is chosen.

import {getJson, of} from "../api.js";
import {command, el, fmt, table} from "../dom.js";
import {deliver, model, say, SORTS, undo, unwritten} from "./model.js";
import {Wall} from "./wall.js";
import {weighed} from "./weight.js";

const SHOWN = 500;

export async function show(main, place, app) {
  if (place.rest[0] === "episode") return (await import("./episode_view.js")).show(main, place, app);
  const m = model(app.thing.id);
  app.title(app.thing.name);
  const fresh = !m.table;
  if (fresh) main.append(el("p.waiting", "reading the list of episodes …"));
  const changed = m.adopt(place.query) || fresh;
  await m.load();
  const view = ["wall", "table", "scatter"].includes(place.query.get("view")) ? place.query.get("view") : "wall";
  return new StoreView(main, app, m, view).start(changed);
}

class StoreView {
  constructor(main, app, m, view) {
    Object.assign(this, {main, app, m, view, body: null, timer: 0});
    this.head = el("p.muted.small.ellipsis");
    this.wrong = el("p.bad.small", {role: "alert"});
    this.count = el("span.muted.small.nowrap", {role: "status"});
    this.input = el("input#filter.mono", {type: "search", spellcheck: "false", autocomplete: "off", value: m.filter, "aria-label": "Filter, in the words of robolearn data filter", placeholder: "--outcome failure --min-score 0.5 --label good", list: "filter-words"});
    this.sort = el("select", {"aria-label": "Order"}, Object.entries(SORTS).map(([name, [words]]) => el("option", {value: name}, words)));
    this.down = el("button", {type: "button", "aria-label": "Turn the order round"});
    this.views = ["wall", "table", "scatter"].map((name) => el("button", {type: "button", onclick: () => this.turn(name)}, name));
    this.host = el("div.viewport", {tabindex: "-1"});
    this.bar = el("div.chosenbar", {hidden: true});
  }

  async start(changed) {
    this.main.classList.add("filled");
    this.main.replaceChildren(
      el("div.storehead", el("h1", this.app.thing.name), this.head),
      el("form.row.tools", {onsubmit: (e) => { e.preventDefault(); this.refilter(); }}, this.input, words(this.m), this.sort, this.down, el("span.row.group", this.views), this.count),
      this.wrong, this.host, this.bar);
    this.input.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.refilter(), 250); });
    this.sort.addEventListener("change", () => this.resort(this.sort.value, this.m.down));
    this.down.addEventListener("click", () => this.resort(this.m.sort, !this.m.down));
    this.app.keys(this.keys());
    this.app.live(() => this.reload());
    this.sort.value = this.m.sort;
    await this.order(changed);
    this.draw();
    this.partly();
    deliver();
    this.saw = (e) => this.app.say(`${fmt.count(unwritten(), "annotation")} not written yet: ${e.detail}`, true);
    addEventListener("unwritten", this.saw);
    return () => this.end();
  }

  end() {
    clearTimeout(this.timer); clearTimeout(this.later);
    removeEventListener("unwritten", this.saw);
    this.main.classList.remove("filled");
    if (this.body && this.body.end) this.body.end();
    this.ended = true;
  }

  async order(changed) {
    this.wrong.textContent = "";
    try { if (changed || !this.m.order.length) await this.m.apply(); else this.m.arrange(); }
    catch (error) { this.wrong.textContent = error.message; this.m.arrange(); }
    this.said();
  }

  said() {
    const {m} = this, t = m.table, shown = m.order.length, there = t.number.data.length;
    const good = m.order.reduce((n, k) => n + t.success.data[k], 0);
    this.count.textContent = `${shown === there ? "" : `${shown.toLocaleString("en")} of `}${fmt.count(t.total, "episode")}${shown ? ` · ${good.toLocaleString("en")} succeeded (${percent(good, shown)})` : ""}${m.partial ? ` · read so far: ${there.toLocaleString("en")}` : ""}`;
    const hours = t.duration_s.data.reduce((a, b) => a + (Number.isFinite(b) ? b : 0), 0) / 3600;
    const problems = Object.keys(t.problems).length;
    this.head.replaceChildren(`${t.path} · ${t.remark ? `${t.remark} · ` : ""}${hours < 1 ? fmt.seconds(hours * 3600) : `${hours.toFixed(1)} h`} · ${t.task.words.filter(Boolean).slice(0, 4).join(", ")}${t.total ? " · choose with x, or Ctrl or Shift and a click: to label, to copy, to weigh" : ""}`);
    if (t.damage || problems) this.wrong.textContent = this.wrong.textContent || t.damage || `${fmt.count(problems, "episode")} cannot be read; 'robolearn data check ${t.quoted}' says more. The rest works.`;
    this.down.textContent = m.down ? "↓" : "↑";
    this.down.title = m.down ? "largest first" : "smallest first";
    this.views.forEach((b) => b.setAttribute("aria-pressed", String(b.textContent === this.view)));
    this.chosen();
  }

  draw() {
    const {m, host} = this;
    if (this.body && this.body.end) this.body.end();
    this.body = null;
    host.replaceChildren();
    if (!m.order.length) {
      host.append(el("p.note", m.table.total ? "No episode fits this filter." : "The store is empty. Episodes appear here by themselves when they are recorded."));
    } else if (this.view === "wall") {
      this.body = new Wall(host, m, {pick: (at, event) => this.clicked(at, event)});
      const back = m.order.findIndex((k) => m.table.number.data[k] === m.last);
      if (back >= 0) this.body.go(back);
    } else if (this.view === "scatter") {
      import("./scatter.js").then(({Scatter}) => { if (this.view === "scatter" && !this.ended) this.body = new Scatter(host, m, this.app, () => this.said(), () => this.measure()); });
    } else host.append(this.rows());
  }

  rows() {
    const {m} = this, t = m.table;
    const columns = [
      {name: "", cell: (k) => el("input", {type: "checkbox", "aria-label": `choose ${m.name(k)}`, checked: m.chosen.has(t.number.data[k]), onchange: () => this.toggle(t.number.data[k])})},
      {name: "episode", cell: (k) => [el("a", {href: m.link(t.number.data[k])}, m.name(k)), t.problems[t.number.data[k]] ? el("div.bad.small", t.problems[t.number.data[k]]) : ""]},
      {name: "outcome", cell: (k) => el(t.success.data[k] ? "span.good" : "span.bad", t.success.data[k] ? "success" : "no success")},
      {name: "score", right: true, cell: (k) => fmt.number(t.score.data[k])},
      {name: "length", right: true, cell: (k) => fmt.seconds(t.duration_s.data[k])},
      {name: "labels", cell: (k) => [m.word("labels", k), m.word("split", k) ? el("span.muted", ` ${m.word("split", k)}`) : ""]},
      {name: "kind", cell: (k) => m.word("kind", k), wide: true},
      {name: "by", cell: (k) => m.word("operator", k) || m.word("agent", k), wide: true},
      {name: "when", cell: (k) => el("span.nowrap", t.started_s.data[k] < 0 ? "unknown" : fmt.date(t.epoch_s + t.started_s.data[k])), wide: true},
    ];
    const more = m.order.length - SHOWN;
    return el("div", table(columns, m.order.slice(0, SHOWN)), more > 0 ? el("p.muted", `${more.toLocaleString("en")} more: filter, or look at the wall.`) : "");
  }

  link() {
    const q = this.m.query();
    const parts = [q, this.view === "wall" ? "" : `view=${this.view}`].filter(Boolean).join("&");
    this.app.replace(`#/store/${this.m.id}${parts ? `?${parts}` : ""}`);
  }

  async refilter() {
    clearTimeout(this.timer);
    this.m.filter = this.input.value;
    await this.order(true);
    this.link();
    this.draw();
  }

  async resort(sort, down) {
    Object.assign(this.m, {sort, down});
    if (sort === "novelty" && !this.m.novelty.size) await this.measure();
    this.m.arrange();
    this.said(); this.link(); this.draw();
  }

  turn(view) { this.view = view; this.said(); this.link(); this.draw(); }

  async reload() {
    const before = this.m.table.number.data.length;
    await this.m.load();
    if (this.ended) return;
    await this.order(Boolean(this.m.filter) || before !== this.m.table.number.data.length);
    if (this.ended) return;
    if (this.view === "wall" && this.body) this.body.refresh(before !== this.m.table.number.data.length);
    else if (this.view === "table" || !this.body) this.draw();
    else this.body.refresh();
  }

  /** The list is still being read: look again until it is whole. */
  partly() {
    if (!this.m.partial) return;
    this.later = setTimeout(async () => { if (!this.ended) { await this.reload(); this.partly(); } }, 700);
  }

  async measure() {
    this.app.say("comparing the episodes …");
    for (;;) {
      const found = await getJson(of(this.m.id, "likeness"));
      if (this.ended) return;
      this.m.alike = found;
      this.m.novelty = new Map(found.number.data.entries().map(([k, n]) => [n, found.novelty.data[k]]));
      if (!found.missing) break;
      this.app.say(`comparing the episodes … ${found.number.data.length.toLocaleString("en")} of ${(found.number.data.length + found.missing).toLocaleString("en")}`);
      await new Promise((wake) => setTimeout(wake, 500));
    }
    this.app.say("");
  }

  clicked(at, event) {
    const number = this.m.table.number.data[this.m.order[at]];
    if (event.shiftKey) {
      event.preventDefault();
      const [a, b] = [Math.min(this.anchor ?? at, at), Math.max(this.anchor ?? at, at)];
      for (let i = a; i <= b; i++) this.m.chosen.add(this.m.table.number.data[this.m.order[i]]);
      this.chosen(); this.body.refresh();
    } else if (event.ctrlKey || event.metaKey) { event.preventDefault(); this.anchor = at; this.toggle(number); }
    else this.m.last = number;
  }

  toggle(number) {
    if (!this.m.chosen.delete(number)) this.m.chosen.add(number);
    this.chosen();
    if (this.body && this.body.refresh && this.view !== "table") this.body.refresh();
  }

  chosen() {
    const n = this.m.chosen.size;
    this.bar.hidden = !n;
    if (!n) return;
    const act = (text, run, title) => el("button", {type: "button", title, onclick: run}, text);
    this.bar.replaceChildren(
      el("strong.nowrap", `${n.toLocaleString("en")} chosen`),
      act("✓ success", () => this.tell({outcome: "success"}), "key 1"), act("✗ no success", () => this.tell({outcome: "failure"}), "key 0"),
      act("keep", () => this.tell({add: ["keep"], remove: ["discard"]}), "key +"), act("discard", () => this.tell({add: ["discard"], remove: ["keep"]}), "key -"),
      act("label …", () => this.ask("label"), "key l"), act("note …", () => this.ask("note"), "key n"),
      act("as a store …", () => this.asStore(), "the command that copies them"), act("as a weight", () => this.weight(), "labels them, and shows the lines of a config that draw them more often"), act("take back", () => this.back(), "key u"), act("clear", () => { this.m.chosen.clear(); this.chosen(); this.draw(); }, "key c"));
  }

  /** Say it about what is chosen, or else about the tile that has the focus. */
  async tell(what) {
    const {m} = this, here = this.body instanceof Wall ? m.order[this.body.at] : undefined;
    const episodes = m.chosen.size ? [...m.chosen] : here === undefined ? [] : [m.table.number.data[here]];
    if (!episodes.length) { this.app.say("choose episodes first (x, or click with Ctrl)"); return; }
    await this.change(async () => {
      const record = await say(m.id, {...what, episodes});
      await this.reload();
      this.app.say(`${record.record}: ${record.words} · ${fmt.count(episodes.length, "episode")} · u takes it back`);
    });
  }

  back() {
    return this.change(async () => {
      const record = await undo(this.m.id);
      if (record) await this.reload();
      this.app.say(record ? record.words : "nothing was said here that could be taken back");
    });
  }

  /** One after the other: each begins with the table as the one before has left it. */
  change(run) {
    this.changes = (this.changes || Promise.resolve()).then(run).catch((error) => this.app.say(error.message, true));
    return this.changes;
  }

  ask(what) {
    const input = el("input", {type: "text", "aria-label": what, placeholder: what === "label" ? "good   or  -good to take it off" : "what you saw"});
    dialog(el("form", {onsubmit: () => { const text = input.value.trim(); if (text) this.tell(what === "note" ? {note: text} : labels(text)); }},
      el("h2", what === "label" ? "Label" : "Note"), input, el("p", el("button.primary", "say"))), input);
  }

  asStore() {
    const {m} = this, t = m.table, ids = [...m.chosen].sort((a, b) => a - b).map((n) => `ep_${String(n).padStart(6, "0")}`);
    const all = m.filter.trim() && m.order.length === m.chosen.size && m.order.every((k) => m.chosen.has(t.number.data[k]));
    const out = outside(t.quoted);
    dialog(el("div", el("h2", "As a new store"), el("p", `This copies ${fmt.count(ids.length, "episode")}, every hash verified, with what was said about them:`),
      command(`robolearn data filter ${t.quoted} --out ${out} ${all ? m.filter.trim() : `--episodes ${ids.join(" ")}`}`),
      ids.length > 50 && !all ? [el("p.small.muted", "Shorter: label what is chosen, and filter by the label."), command(`robolearn data filter ${t.quoted} --out ${out} --label picked`), el("button", {type: "button", onclick: () => this.tell({add: ["picked"]})}, "label them 'picked'")] : ""));
  }

  async weight() {
    if (this.m.partial) { this.app.say("the store is still being listed: what else there is to weigh it against is not known yet", true); return; }
    await this.change(async () => {
      const shown = await weighed(this.m, [...this.m.chosen].sort((a, b) => a - b), () => this.back());
      // Before it is shown: who clicks again finds the label that was just given.
      await this.reload();
      dialog(shown);
    });
  }

  keys() {
    const wall = (run) => () => { if (this.body instanceof Wall) run(this.body); };
    const move = (by) => wall((w) => w.go(w.at + by(w)));
    // In the scatter left and right go from point to point; x and Enter are about the one told of.
    const aside = (by) => () => { if (this.view === "scatter" && this.body) this.body.step(by); else move(() => by)(); };
    const here = (run) => () => {
      const k = this.body instanceof Wall ? this.m.order[this.body.at] : this.view === "scatter" && this.body ? this.body.here : undefined;
      if (k !== undefined) run(this.m.table.number.data[k]);
    };
    return [
      {key: "/", does: "filter", run: () => { this.input.focus(); this.input.select(); }},
      {key: "ArrowRight", does: "move", show: ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"], run: aside(1)},
      {key: "ArrowLeft", run: aside(-1)}, {key: "ArrowDown", run: move((w) => w.columns)}, {key: "ArrowUp", run: move((w) => -w.columns)},
      {key: "PageDown", run: move((w) => w.columns * Math.floor(w.host.clientHeight / w.pitch))}, {key: "PageUp", run: move((w) => -w.columns * Math.floor(w.host.clientHeight / w.pitch))},
      {key: "Home", run: wall((w) => w.go(0))}, {key: "End", run: wall((w) => w.go(Infinity))},
      {key: "Enter", does: "open the episode", run: here((number) => { this.m.last = number; this.app.go(this.m.link(number)); })},
      {key: "x", does: "choose it, or not (also: click with Ctrl; a range with Shift)", run: here((number) => this.toggle(number))},
      {key: "a", does: "choose all that are shown", run: () => { for (const k of this.m.order) this.m.chosen.add(this.m.table.number.data[k]); this.chosen(); this.draw(); }},
      {key: "c", does: "choose none", run: () => { this.m.chosen.clear(); this.chosen(); this.draw(); }},
      {key: "1", does: "it succeeded", run: () => this.tell({outcome: "success"})}, {key: "0", does: "it did not", run: () => this.tell({outcome: "failure"})},
      {key: "+", does: "label keep", run: () => this.tell({add: ["keep"], remove: ["discard"]})}, {key: "-", does: "label discard", run: () => this.tell({add: ["discard"], remove: ["keep"]})},
      {key: "l", does: "label", run: () => this.ask("label")}, {key: "n", does: "note", run: () => this.ask("note")},
      {key: "u", does: "take back what was said last", run: () => this.back()},
      {key: "w", does: "wall", run: () => this.turn("wall")}, {key: "t", does: "table", run: () => this.turn("table")}, {key: "s", does: "scatter", run: () => this.turn("scatter")},
    ];
  }
}

/** `"good -slip"`: labels to add and to take off. */
export function labels(text) {
  const found = text.split(/[\s,]+/).filter(Boolean);
  return {add: found.filter((w) => !w.startsWith("-")), remove: found.filter((w) => w.startsWith("-")).map((w) => w.slice(1))};
}

/** A dialog that closes by Escape, its button, or what is sent in it. */
export function dialog(inside, focus) {
  const box = el("dialog", el("div", inside), el("p.right", el("button", {type: "button", onclick: () => box.close()}, "close")));
  box.addEventListener("submit", (e) => { e.preventDefault(); setTimeout(() => box.close()); });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  if (focus) focus.focus();
}

function percent(good, all) {
  const share = (100 * good) / all;
  return `${share > 0 && share < 100 ? share.toFixed(share < 1 || share > 99 ? 1 : 0) : share} %`;
}

function outside(quoted) { return quoted.endsWith("'") ? `${quoted.slice(0, -1)}_selected'` : `${quoted}_selected`; }

function words(m) {
  const t = m.table, all = ["--outcome success", "--outcome failure", "--min-score 0.5", "--max-score 0.5", "--min-steps 100"];
  const add = (option, column) => column.words.filter(Boolean).slice(0, 20).forEach((w) => all.push(`${option} ${/\s/.test(w) ? `'${w}'` : w}`));
  add("--kind", t.kind); add("--task", t.task); add("--split", t.split);
  new Set(t.labels.words.flatMap((w) => w.split(","))).forEach((w) => { if (w) all.push(`--label ${w}`, `--without-label ${w}`); });
  return el("datalist#filter-words", all.map((w) => el("option", {value: w})));
}
