// The pictures of one camera of an episode: asked for ahead of time, drawn when they are there.

import {of} from "../api.js";
import {colour} from "../dom.js";

const KEPT = 240, AT_ONCE = 2, AHEAD = 12;

export class Frames {
  constructor(canvas, store, number, place, camera, tell) {
    Object.assign(this, {canvas, store, number, place, camera, tell});
    this.kept = new Map(); this.loading = new Set(); this.queue = []; this.want = -1; this.drawn = -1; this.way = 1;
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
    this.queue = [];
    for (let k = 0; k <= AHEAD; k++) {
      const next = row + k * this.way;
      if (next >= 0 && next < this.camera.frames && !this.kept.has(next) && !this.loading.has(next)) this.queue.push(next);
    }
    this.fetch();
  }

  fetch() {
    while (this.loading.size < AT_ONCE && this.queue.length) {
      const row = this.queue.shift();
      this.loading.add(row);
      this.get(row).then((image) => {
        this.loading.delete(row);
        if (this.ended) return;
        this.kept.set(row, image);
        while (this.kept.size > KEPT) { const [old] = this.kept.keys(); const gone = this.kept.get(old); if (gone && gone.close) gone.close(); this.kept.delete(old); }
        if (row === this.want) this.draw(row, image);
        this.fetch();
      });
    }
  }

  async get(row) {
    try {
      const response = await fetch(of(this.store, "episodes", this.number, "cameras", this.place, row), {credentials: "same-origin"});
      if (!response.ok) return (await response.json()).error;
      return await createImageBitmap(await response.blob());
    } catch { return "this picture did not come, or does not decode"; }
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

  end() { this.ended = true; this.queue = []; for (const image of this.kept.values()) if (image.close) image.close(); }
}
