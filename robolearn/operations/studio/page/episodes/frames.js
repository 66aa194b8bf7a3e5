// The pictures of one camera of an episode: what is wanted first, what comes next while nothing is.

import {of} from "../api.js";
import {colour} from "../dom.js";

const KEPT = 240, AT_ONCE = 2, AHEAD = 12;

export class Frames {
  constructor(canvas, store, number, place, camera, tell) {
    Object.assign(this, {canvas, store, number, place, camera, tell});
    this.kept = new Map(); this.loading = new Map(); this.want = -1; this.drawn = -1; this.way = 1;
    canvas.width = camera.size[1]; canvas.height = camera.size[0];
    canvas.style.aspectRatio = `${camera.size[1]} / ${camera.size[0]}`;
    this.pen = canvas.getContext("2d");
  }

  /** Show what tick `tick` saw. */
  show(tick) {
    const row = this.camera.view.data[tick];
    if (row === this.want) return;
    this.way = row >= this.want ? 1 : -1;
    this.want = row;
    const image = this.kept.get(row);
    if (image !== undefined) this.draw(row, image);
    this.fetch();
  }

  /** The first row from the wanted one on, the way it goes, that is not here and not on its way. */
  next() {
    for (let k = 0; k <= AHEAD; k++) {
      const row = this.want + k * this.way;
      if (row >= 0 && row < this.camera.frames && !this.kept.has(row) && !this.loading.has(row)) return row;
    }
    return -1;
  }

  /** The wanted picture waits for none that was asked for ahead. The oldest that was wanted once is
   *  let through: who drags faster than pictures come sees at least some. */
  fetch() {
    if (this.ended) return;
    const ahead = (row) => (row - this.want) * this.way, mine = this.loading.get(this.want);
    if (mine) mine.wanted = true;
    for (const [row, it] of [...this.loading]) if (!it.wanted && (ahead(row) < 0 || ahead(row) > AHEAD)) this.breakOff(row);
    if (!mine && !this.kept.has(this.want) && this.loading.size >= AT_ONCE) {
      const early = [...this.loading].filter(([, it]) => !it.wanted).map(([row]) => row);
      this.breakOff(early.length ? early.reduce((a, b) => (ahead(b) > ahead(a) ? b : a)) : [...this.loading.keys()].at(-1));
    }
    for (let row = this.next(); row >= 0 && this.loading.size < AT_ONCE; row = this.next()) this.load(row);
  }

  breakOff(row) {
    this.loading.get(row).stop.abort();
    this.loading.delete(row);
  }

  async load(row) {
    const it = {stop: new AbortController(), wanted: row === this.want};
    this.loading.set(row, it);
    const image = await this.get(row, it.stop.signal);
    if (this.loading.get(row) === it) this.loading.delete(row);
    // One that came although it was broken off is as good.
    if (this.ended || image === null || this.kept.has(row)) { if (image && image.close) image.close(); return; }
    this.kept.set(row, image);
    this.forget();
    const nearer = !this.kept.has(this.want) && typeof image !== "string" && Math.abs(row - this.want) < Math.abs(this.drawn - this.want);
    if (row === this.want || nearer) this.draw(row, image);
    this.fetch();
  }

  /** The oldest make room, but not the one that is wanted. */
  forget() {
    for (const [old, gone] of this.kept) {
      if (this.kept.size <= KEPT) return;
      if (old === this.want) continue;
      if (gone.close) gone.close();
      this.kept.delete(old);
    }
  }

  /** A picture, or why there is none in words; null: it was broken off. */
  async get(row, signal) {
    try {
      const response = await fetch(of(this.store, "episodes", this.number, "cameras", this.place, row), {credentials: "same-origin", signal});
      if (!response.ok) return (await response.json()).error;
      return await createImageBitmap(await response.blob());
    } catch (error) { return error.name === "AbortError" ? null : "this picture did not come, or does not decode"; }
  }

  draw(row, image) {
    this.drawn = row;
    if (typeof image === "string") {
      this.pen.fillStyle = colour("--panel");
      this.pen.fillRect(0, 0, this.canvas.width, this.canvas.height);
      this.tell(image, true);
      return;
    }
    this.pen.drawImage(image, 0, 0, this.canvas.width, this.canvas.height);
    this.tell(`frame ${row} of ${this.camera.frames}`, false);
  }

  end() {
    this.ended = true;
    for (const row of [...this.loading.keys()]) this.breakOff(row);
    for (const image of this.kept.values()) if (image.close) image.close();
  }
}
