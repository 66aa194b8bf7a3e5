// The wall: one tile per episode, only those in sight exist. Pictures come in sheets of 64.

import {el} from "../dom.js";
import {of} from "../api.js";

const TILE = {width: 128, height: 96, caption: 24, gap: 8}, SHEET = 64, COLUMNS = 8, KEPT = 48, AT_ONCE = 3;

export class Wall {
  /** `open(k)`, `pick(k, event)`: what a click does; `host` scrolls. */
  constructor(host, episodes, {pick}) {
    this.host = host; this.m = episodes; this.pick = pick;
    this.field = el("div.field", {role: "list", "aria-label": "Episodes"});
    host.replaceChildren(this.field);
    this.tiles = new Map(); this.spare = []; this.sheets = new Map(); this.wanted = []; this.loading = 0;
    this.at = 0; this.drawn = 0;
    this.onScroll = () => { if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); }); };
    host.addEventListener("scroll", this.onScroll, {passive: true});
    this.resize = new ResizeObserver(() => this.layout());
    this.resize.observe(host);
    this.field.addEventListener("click", (event) => {
      const tile = event.target.closest("a");
      if (!tile) return;
      this.pick(Number(tile.dataset.at), event);
    });
    this.field.addEventListener("focusin", (event) => this.mark(Number(event.target.closest("a").dataset.at)));
    this.layout();
  }

  end() { this.host.removeEventListener("scroll", this.onScroll); this.resize.disconnect(); cancelAnimationFrame(this.frame); this.m = null; }

  /** The order or what is known of episodes changed. */
  refresh(newOrder) {
    // A longer list most often begins like the shorter one did: those pictures stay.
    if (newOrder) for (const [block, sheet] of this.sheets) if (sheet.rows !== this.rows(block)) this.drop(block, sheet);
    for (const [at, tile] of this.tiles) {
      if (at < this.m.order.length) this.fill(tile, at);
      else { this.tiles.delete(at); this.spare.push(tile); tile.hidden = true; }
    }
    this.layout();
  }

  layout() {
    if (!this.m) return;
    const width = this.host.clientWidth - 4;
    this.columns = Math.max(1, Math.floor((width + TILE.gap) / (TILE.width + TILE.gap)));
    this.pitch = TILE.height + TILE.caption + TILE.gap;
    const rows = Math.ceil(this.m.order.length / this.columns);
    this.field.style.height = `${rows * this.pitch}px`;
    for (const [at, tile] of this.tiles) this.put(tile, at);
    this.draw();
  }

  put(tile, at) {
    const x = (at % this.columns) * (TILE.width + TILE.gap) + 2, y = Math.floor(at / this.columns) * this.pitch + 2;
    tile.style.transform = `translate(${x}px, ${y}px)`;
  }

  draw() {
    if (!this.m) return;
    const top = this.host.scrollTop, bottom = top + this.host.clientHeight;
    const first = Math.max(0, Math.floor(top / this.pitch) - 1) * this.columns;
    const last = Math.min(this.m.order.length, (Math.ceil(bottom / this.pitch) + 1) * this.columns);
    for (const [at, tile] of this.tiles) {
      if (at < first || at >= last) { this.tiles.delete(at); this.spare.push(tile); tile.hidden = true; }
    }
    for (let at = first; at < last; at++) {
      if (!this.tiles.has(at)) this.tiles.set(at, this.fill(this.spare.pop() || this.blank(), at));
    }
    // One stop of Tab among thousands: the tile that the arrows move from, or one that is in sight.
    const stop = this.tiles.has(this.at) ? this.at : Math.min(last - 1, Math.ceil(top / this.pitch) * this.columns);
    for (const [at, tile] of this.tiles) { const order = at === stop ? 0 : -1; if (tile.tabIndex !== order || !tile.hasAttribute("tabindex")) tile.tabIndex = order; }
    const blocks = new Set();
    for (let at = first; at < last; at++) blocks.add(Math.floor(at / SHEET));
    this.wanted = [...blocks].filter((b) => !this.sheets.has(b));
    this.fetch();
    this.drawn++;
  }

  blank() {
    const tile = el("a.tile", {role: "listitem"}, el("span.picture"), el("span.caption", el("span.mark"), el("span.what"), el("span.more")));
    return tile;
  }

  fill(tile, at) {
    const m = this.m, t = m.table, k = m.order[at], number = t.number.data[k], problem = t.problems[number];
    tile.hidden = false;
    tile.dataset.at = at;
    tile.href = m.link(number);
    const good = t.success.data[k];
    const [mark, what, more] = tile.lastChild.children;
    mark.textContent = problem ? "!" : good ? "✓" : "✗";
    mark.className = `mark ${problem ? "bad" : good ? "good" : "bad"}`;
    what.textContent = number;
    const labels = m.word("labels", k);
    more.textContent = problem ? "damaged" : labels || (t.notes.data[k] ? "note" : "");
    tile.title = problem || `${m.name(k)}: ${good ? "success" : "no success"}, score ${t.score.data[k].toFixed(2)}, ${t.duration_s.data[k].toFixed(1)} s${labels ? `, ${labels}` : ""}`;
    tile.setAttribute("aria-label", tile.title);
    tile.classList.toggle("picked", m.chosen.has(number));
    tile.classList.toggle("here", at === this.at);
    this.paint(tile, at);
    this.put(tile, at);
    if (!tile.isConnected) this.field.append(tile);
    return tile;
  }

  paint(tile, at) {
    const sheet = this.sheets.get(Math.floor(at / SHEET)), picture = tile.firstChild;
    if (!sheet || !sheet.ready) { picture.style.backgroundImage = ""; return; }
    const place = at % SHEET;
    picture.style.backgroundImage = `url("${sheet.url}")`;
    picture.style.backgroundPosition = `-${(place % COLUMNS) * TILE.width}px -${Math.floor(place / COLUMNS) * TILE.height}px`;
  }

  rows(block) { return this.m.order.slice(block * SHEET, (block + 1) * SHEET).map((k) => this.m.table.number.data[k]).join(","); }

  drop(block, sheet) { this.sheets.delete(block); if (sheet.url) URL.revokeObjectURL(sheet.url); }

  fetch() {
    while (this.loading < AT_ONCE && this.wanted.length) {
      const block = this.wanted.shift();
      if (this.sheets.has(block)) continue;
      const rows = this.rows(block);
      const url = `${of(this.m.id, "thumbnails")}?rows=${rows}&of=${this.m.table.uuid.slice(0, 8)}`;
      const sheet = {url: "", ready: false, rows};
      this.sheets.set(block, sheet);
      this.loading++;
      this.get(url, sheet, block).catch(() => { if (this.sheets.get(block) === sheet) this.sheets.delete(block); }).finally(() => {
        this.loading--;
        if (!this.m) return;
        for (const [old, gone] of this.sheets) { if (this.sheets.size <= KEPT) break; if (gone.ready) { URL.revokeObjectURL(gone.url); this.sheets.delete(old); } }
        this.fetch();
      });
    }
  }

  /** A sheet; one that was not finished in time is asked for again while it is in sight. */
  async get(url, sheet, block) {
    for (let whole = false; !whole;) {
      const response = await fetch(url, {credentials: "same-origin"});
      if (!response.ok) throw new Error(response.statusText);
      whole = response.status !== 206;
      const image = new Image(), old = sheet.url;
      sheet.url = URL.createObjectURL(await response.blob());
      image.src = sheet.url;
      await image.decode();
      Object.assign(sheet, {image, ready: true});
      let seen = false;
      if (!this.m) return;
      for (const [at, tile] of this.tiles) if (Math.floor(at / SHEET) === block) { this.paint(tile, at); seen = true; }
      if (old) setTimeout(() => URL.revokeObjectURL(old), 1000);
      if (!seen && !whole) throw new Error("nobody looks");
    }
  }

  /** Move to tile `at`, in sight. */
  go(at) {
    if (!this.m.order.length) return;
    this.mark(Math.max(0, Math.min(this.m.order.length - 1, at)));
    const y = Math.floor(this.at / this.columns) * this.pitch;
    if (y < this.host.scrollTop) this.host.scrollTop = y;
    if (y + this.pitch > this.host.scrollTop + this.host.clientHeight) this.host.scrollTop = y + this.pitch - this.host.clientHeight;
    this.draw();
    const tile = this.tiles.get(this.at);
    if (tile) tile.focus({preventScroll: true});
  }

  /** Keys are about tile `at` from now on. */
  mark(at) {
    const place = (on) => { const tile = this.tiles.get(this.at); if (tile) { tile.classList.toggle("here", on); tile.tabIndex = on ? 0 : -1; } };
    for (const tile of this.tiles.values()) tile.tabIndex = -1;
    place(false);
    this.at = at;
    place(true);
  }
}
