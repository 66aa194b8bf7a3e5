// What a policy wanted at the playhead. Chunks are not recorded: a run is asked for them anew, at
// the observation that was.

import {getJson, of} from "../api.js";
import {el, fmt} from "../dom.js";
import {oneAtATime} from "../lab/parts.js";

const REST_MS = 150, CHUNKS = 8;

export class Fan {
  /** `show(answer)` draws what came, `show(null)` takes it away; `m.asked` outlives an episode. */
  constructor(app, m, d, show) {
    Object.assign(this, {app, m, d, show, tick: 0, shown: false, ended: false});
    const runs = app.things.filter((t) => t.kind === "run"), here = (id) => runs.some((t) => t.id === id);
    this.run = here(d.wanted.run) ? d.wanted.run : here(m.asked.run) ? m.asked.run : "";
    this.words = el("p.muted.small.wanted", {role: "status"});
    this.box = el("input", {type: "checkbox", checked: m.asked.on && Boolean(this.run), onchange: () => this.turned()});
    this.pick = el("select", {"aria-label": "Run that is asked what it wants", onchange: () => { this.run = m.asked.run = this.pick.value; if (this.run) this.box.checked = true; this.turned(); }},
      el("option", {value: ""}, "choose a run …"), runs.map((t) => el("option", {value: t.id, selected: t.id === this.run}, `${t.name} (${t.where})`)));
    this.node = el("div.fan", runs.length ? el("div.row", el("label.row", {title: "key w"}, this.box, "what the policy wanted"), this.pick) : "", this.words);
    this.ask = oneAtATime(() => this.asked());
    this.say(runs.length);
  }

  get on() { return this.box.checked && Boolean(this.run) && !this.ended; }
  get name() { const t = this.app.things.find((x) => x.id === this.run); return t ? t.name : "the run"; }

  say(runs) {
    const {wanted} = this.d;
    this.words.textContent = this.run ? `Chunks are not recorded; ${this.name}${wanted.run ? ", which drove it," : ""} can be asked for them at the recorded observation.`
      : `What the policy wanted is not recorded, and ${wanted.words || "nobody can be asked"}${runs ? "; choose a run to ask what it would want here" : ""}.`;
  }

  toggle() { if (this.pick.isConnected) { if (this.run) this.box.click(); else this.pick.focus(); } }

  turned() {
    this.m.asked.on = this.box.checked;
    if (this.on) { this.ask(); return; }
    this.clear();
    if (this.box.checked) this.pick.focus();
    this.say(true);
  }

  /** The playhead is at `tick`; while it moves nobody is asked. */
  at(tick, moving) {
    this.tick = tick;
    if (!this.on) return;
    this.clear();
    clearTimeout(this.resting);
    if (!moving) this.resting = setTimeout(() => this.ask(), REST_MS);
  }

  clear() { if (this.shown) { this.shown = false; this.show(null); } }

  async asked() {
    if (!this.on) return;
    const {tick, run} = this;
    this.words.setAttribute("aria-busy", "true");
    let found, why = "";
    try { found = await getJson(`${of(run, "samples")}?store=${this.app.thing.id}&episode=${this.d.place}&tick=${tick}&count=${CHUNKS}`); }
    catch (error) { why = error.message; }
    this.words.removeAttribute("aria-busy");
    if (!this.on) return;
    if (tick !== this.tick || run !== this.run) { this.words.textContent = ""; return; }
    why = why || found.problems.map((p) => p.words).join(" ") || (found.episode === this.d.id ? "" : "the store changed meanwhile: open the episode again");
    this.words.textContent = why ? `${this.name} cannot be asked here: ${why}` : told(this.name, found);
    this.shown = !why;
    this.show(why ? null : found);
  }

  end() { this.ended = true; clearTimeout(this.resting); }
}

function told(name, found) {
  const horizon = found.signals.length ? found.signals[0].samples.shape[1] : 0;
  const notes = found.notes.length ? ` (${found.notes.join("; ")})` : "";
  return `${fmt.count(CHUNKS, "chunk")} that ${name} proposes at this moment${notes}: drawn anew from what was observed, not recorded. Of the ${horizon} actions of each, ${found.execute} would be carried out.`;
}

/** The chunks of a signal's component `k` as curves over time. */
export function curves(signal, k, t, rate) {
  const [count, horizon, size] = signal.samples.shape;
  return Array.from({length: count}, (_, n) => ({
    x: Array.from({length: horizon}, (_, i) => t + i / rate),
    y: Array.from({length: horizon}, (_, i) => signal.samples.data[(n * horizon + i) * size + k]),
  }));
}
