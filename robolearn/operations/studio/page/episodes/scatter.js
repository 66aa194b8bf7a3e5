// Episodes as points: any two figures against each other; drag to choose, click to open.

import {colour, el, fmt} from "../dom.js";

const AXES = {
  number: ["number", (m, k) => m.table.number.data[k]],
  score: ["score", (m, k) => m.table.score.data[k]],
  length: ["length [s]", (m, k) => m.table.duration_s.data[k]],
  date: ["date", (m, k) => (m.table.started_s.data[k] < 0 ? NaN : m.table.epoch_s + m.table.started_s.data[k])],
  novelty: ["novelty (1: usual)", (m, k) => m.novelty.get(m.table.number.data[k]) ?? NaN],
  operator: ["operator", (m, k) => m.table.operator.index.data[k] + spread(k)],
  outcome: ["outcome", (m, k) => m.table.success.data[k] + spread(k)],
};
const EDGE = {left: 62, right: 14, top: 12, bottom: 40};

// Points of a category lie beside each other, always in the same place.
function spread(k) { return (((k * 2654435761) % 1000) / 1000 - 0.5) * 0.5; }

export class Scatter {
  constructor(host, m, app, told, measure) {
    Object.assign(this, {host, m, app, told, measure, x: Scatter.x || "length", y: Scatter.y || "score"});
    this.canvas = el("canvas", {role: "img", tabindex: "0", "aria-label": "Episodes as points; left and right go from one to the next, Enter opens it, x chooses it"});
    this.tip = el("div.tip", {hidden: true, role: "status"});
    this.surface = el("div.surface", this.canvas, this.tip);
    const choose = (name) => el("select", {"aria-label": `${name} axis`, onchange: (e) => this.turn(name, e.target.value)}, Object.entries(AXES).map(([key, [words]]) => el("option", {value: key, selected: this[name] === key}, words)));
    this.twins = el("button", {type: "button", onclick: () => this.chooseTwins()}, "choose near-duplicates");
    this.odd = el("button", {type: "button", onclick: () => this.chooseOdd()}, "choose outliers");
    host.replaceChildren(el("div.scatter", el("div.row", "across ", choose("x"), " up ", choose("y"), this.twins, this.odd, el("span.muted.small", "drag to choose, click to open")), this.surface));
    this.resize = new ResizeObserver(() => this.refresh());
    this.resize.observe(this.surface);
    this.onTheme = () => this.refresh();
    addEventListener("themechange", this.onTheme);
    this.canvas.addEventListener("pointerdown", (e) => { this.from = [e.offsetX, e.offsetY]; this.to = null; this.canvas.setPointerCapture(e.pointerId); });
    this.canvas.addEventListener("pointermove", (e) => this.move(e));
    this.canvas.addEventListener("pointerup", (e) => this.up(e));
    this.canvas.addEventListener("pointerleave", () => { this.tip.hidden = true; });
    if ([this.x, this.y].includes("novelty") && !m.novelty.size) this.turn("x", this.x);
  }

  end() { this.resize.disconnect(); removeEventListener("themechange", this.onTheme); this.gone = true; }

  async turn(name, value) {
    this[name] = Scatter[name] = value;
    if (value === "novelty" && !this.m.novelty.size) await this.measure();
    if (!this.gone) this.refresh();
  }

  async chooseTwins() {
    if (!this.m.alike || this.m.alike.missing) await this.measure();
    if (this.gone) return;
    for (const [, later] of this.m.alike.twins) this.m.chosen.add(later);
    this.app.say(this.m.alike.twins.length ? `${fmt.count(this.m.alike.twins.length, "pair")} nearly the same: the later one of each is chosen` : "no two episodes are nearly the same");
    this.told(); this.refresh();
  }

  async chooseOdd() {
    if (!this.m.novelty.size) await this.measure();
    if (this.gone) return;
    const odd = [...this.m.novelty].filter(([, v]) => v > 3).map(([n]) => n);
    for (const n of odd) this.m.chosen.add(n);
    this.app.say(odd.length ? `${fmt.count(odd.length, "episode")} more than 3 times as far from others as is usual` : "no episode is far from all others");
    this.told(); this.refresh();
  }

  refresh() {
    const {canvas, m} = this, wide = this.surface.clientWidth, high = this.surface.clientHeight, scale = devicePixelRatio || 1;
    if (!wide || !high) return;
    canvas.width = wide * scale; canvas.height = high * scale;
    const pen = this.pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    const [fx, fy] = [AXES[this.x][1], AXES[this.y][1]];
    const points = m.order.map((k) => [fx(m, k), fy(m, k), k]).filter(([a, b]) => Number.isFinite(a) && Number.isFinite(b));
    const range = (i) => { let low = Infinity, up = -Infinity; for (const p of points) { low = Math.min(low, p[i]); up = Math.max(up, p[i]); } const pad = (up - low || 1) * 0.04; return [low - pad, up + pad]; };
    const [x0, x1] = range(0), [y0, y1] = range(1);
    const px = (v) => EDGE.left + ((v - x0) / (x1 - x0)) * (wide - EDGE.left - EDGE.right), py = (v) => high - EDGE.bottom - ((v - y0) / (y1 - y0)) * (high - EDGE.top - EDGE.bottom);
    this.axis(wide, high, [x0, x1], [y0, y1], px, py);
    this.places = points.map(([a, b, k]) => [px(a), py(b), k]);
    const good = colour("--good"), bad = colour("--bad"), accent = colour("--accent");
    pen.globalAlpha = points.length > 2000 ? 0.7 : 0.85;
    for (const [x, y, k] of this.places) {
      const chosen = m.chosen.has(m.table.number.data[k]);
      pen.fillStyle = m.table.success.data[k] ? good : bad;
      // Success is a dot, anything else a square: colours alone do not tell everybody.
      if (m.table.success.data[k]) { pen.beginPath(); pen.arc(x, y, 3.2, 0, 7); pen.fill(); } else pen.fillRect(x - 3, y - 3, 6, 6);
      if (chosen) { pen.strokeStyle = accent; pen.lineWidth = 2; pen.strokeRect(x - 5, y - 5, 10, 10); }
    }
    pen.globalAlpha = 1;
    const here = this.places.find((p) => p[2] === this.here);
    if (here) { pen.strokeStyle = colour("--ink"); pen.lineWidth = 2; pen.beginPath(); pen.arc(here[0], here[1], 9, 0, 7); pen.stroke(); }
    if (!points.length) { pen.fillStyle = colour("--muted"); pen.fillText("Nothing is known of these figures.", EDGE.left + 10, high / 2); }
    if (this.from && this.to) { pen.strokeStyle = accent; pen.lineWidth = 1; pen.strokeRect(...this.from, this.to[0] - this.from[0], this.to[1] - this.from[1]); }
  }

  axis(wide, high, xs, ys, px, py) {
    const {pen} = this;
    pen.font = "12px system-ui, sans-serif"; pen.fillStyle = colour("--muted"); pen.strokeStyle = colour("--line");
    const say = (name, v) => {
      if (name === "date") return fmt.date(v).slice(0, 10);
      if (name === "operator") return Number.isInteger(v) ? this.m.table.operator.words[v] || "" : "";
      if (name === "outcome") return v === 0 ? "no success" : v === 1 ? "success" : "";
      return fmt.number(v);
    };
    const ticks = (name, [low, up]) => {
      const step = ["operator", "outcome"].includes(name) ? 1 : nice((up - low) / 5), out = [];
      for (let v = Math.ceil(low / step) * step; v <= up; v += step) out.push(Number(v.toPrecision(10)));
      return out.slice(0, 20);
    };
    pen.textAlign = "center";
    for (const v of ticks(this.x, xs)) { pen.beginPath(); pen.moveTo(px(v), EDGE.top); pen.lineTo(px(v), high - EDGE.bottom); pen.stroke(); pen.fillText(say(this.x, v), px(v), high - EDGE.bottom + 16); }
    pen.textAlign = "right";
    for (const v of ticks(this.y, ys)) { pen.beginPath(); pen.moveTo(EDGE.left, py(v)); pen.lineTo(wide - EDGE.right, py(v)); pen.stroke(); pen.fillText(say(this.y, v), EDGE.left - 6, py(v) + 4); }
    pen.textAlign = "center";
    pen.fillText(AXES[this.x][0], (EDGE.left + wide) / 2, high - 6);
    pen.save(); pen.translate(12, high / 2); pen.rotate(-Math.PI / 2); pen.fillText(AXES[this.y][0], 0, 0); pen.restore();
  }

  near(x, y) {
    let best = null, distance = 144;
    for (const p of this.places || []) { const d = (p[0] - x) ** 2 + (p[1] - y) ** 2; if (d < distance) { distance = d; best = p; } }
    return best;
  }

  move(e) {
    if (this.from && e.buttons) { this.to = [e.offsetX, e.offsetY]; this.refresh(); return; }
    this.tell(this.near(e.offsetX, e.offsetY));
  }

  /** What the tip says: of which point. */
  tell(p) {
    const t = this.m.table;
    this.tip.hidden = !p;
    if (!p) return;
    const k = p[2];
    this.tip.textContent = `${this.m.name(k)}: ${t.success.data[k] ? "success" : "no success"}, score ${fmt.number(t.score.data[k])}, ${fmt.seconds(t.duration_s.data[k])}`;
    this.tip.style.left = `${Math.min(p[0] + 10, this.surface.clientWidth - 200)}px`; this.tip.style.top = `${p[1] + 10}px`;
  }

  /** By keys, from left to right: the point that is told of. */
  step(by) {
    const line = [...this.places].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    if (!line.length) return;
    const now = line.findIndex((p) => p[2] === this.here), next = now < 0 ? (by > 0 ? 0 : line.length - 1) : Math.max(0, Math.min(line.length - 1, now + by));
    this.here = line[next][2];
    this.canvas.focus({preventScroll: true});
    this.refresh();
    this.tell(line[next]);
  }

  up(e) {
    const [from, to] = [this.from, this.to];
    this.from = this.to = null;
    if (from && to && Math.abs(to[0] - from[0]) + Math.abs(to[1] - from[1]) > 8) {
      const [a, b] = [Math.min(from[0], to[0]), Math.max(from[0], to[0])], [c, d] = [Math.min(from[1], to[1]), Math.max(from[1], to[1])];
      for (const [x, y, k] of this.places) if (x >= a && x <= b && y >= c && y <= d) this.m.chosen.add(this.m.table.number.data[k]);
      this.told(); this.refresh();
      return;
    }
    const p = this.near(e.offsetX, e.offsetY);
    if (p) { this.m.last = this.m.table.number.data[p[2]]; this.app.go(this.m.link(this.m.last)); }
    this.refresh();
  }
}

function nice(step) { const ten = 10 ** Math.floor(Math.log10(step || 1)), m = step / ten; return (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10) * ten; }
