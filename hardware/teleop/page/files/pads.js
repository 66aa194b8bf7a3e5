"use strict";
// Pads that a finger, a pen or the mouse deflects; all spring back to zero when they are let go.
const SVG = "http://www.w3.org/2000/svg";

class Pad {
  // `read(x, y)` gives what a place on the drawing [-90, 90] means, `place(value)` where its thumb is.
  constructor(svg, wells, read, place) {
    this.svg = svg; this.read = read; this.place = place; this.pointer = null; this.value = [0, 0];
    for (const well of wells) svg.append(this.shape(...well));
    this.thumb = svg.appendChild(this.shape("circle", { class: "thumb", r: 15 }));
    this.onmove = () => {};
    svg.addEventListener("pointerdown", (event) => this.take(event));
    svg.addEventListener("pointermove", (event) => { if (event.pointerId === this.pointer) this.deflect(event); });
    for (const kind of ["pointerup", "pointercancel", "lostpointercapture"])
      svg.addEventListener(kind, (event) => { if (event.pointerId === this.pointer) this.release(); });
    svg.addEventListener("contextmenu", (event) => event.preventDefault());
    this.draw();
  }
  shape(kind, attributes) {
    const made = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  }
  take(event) {
    if (this.pointer !== null || event.button !== 0 || !link.driving) return;
    const [x, y] = this.at(event);
    if (this.read(x, y, true) === null) return;
    event.preventDefault();
    this.pointer = event.pointerId;
    this.svg.setPointerCapture(event.pointerId);
    this.svg.classList.add("held");
    this.deflect(event);
  }
  at(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    return [point.x, point.y];
  }
  deflect(event) {
    this.value = this.read(...this.at(event), false);
    this.draw(); this.onmove(false);
  }
  release() {
    if (this.pointer === null) return;
    this.pointer = null; this.value = [0, 0];
    this.svg.classList.remove("held");
    this.draw(); this.onmove(true);
  }
  draw() {
    const [x, y] = this.place(this.value);
    this.thumb.setAttribute("transform", `translate(${x} ${y})`);
  }
}

const pads = {
  R: 68, all: [], axes: [],
  clip: (value) => Math.max(-1, Math.min(1, value)),
  disc(x, y, R) {
    const far = Math.max(1, Math.hypot(x, y) / R);
    return [x / R / far, y / R / far];
  },
  // `free`: which of the six axes the arm is moved along and about.
  make(free) {
    const R = this.R, add = (pad, axes) => { this.all.push(pad); this.axes.push(axes); };
    const cross = ["path", { class: "mark", d: `M-${R - 8} 0H${R - 8}M0-${R - 8}V${R - 8}` }];
    const well = (r) => ["circle", { class: "well", r }];
    const shown = (id, on) => { $(id).hidden = !on; return on; };
    if (shown("move", free[0] || free[1]))
      add(new Pad($("move").firstElementChild, [well(R), cross],
        (x, y) => this.disc(x, y, R), ([right, down]) => [R * right, R * down]),
      ([right, down]) => [-down, -right, 0, 0, 0, 0]);
    if (shown("lift", free[2]))
      add(new Pad($("lift").firstElementChild, [["rect", { class: "well", x: -20, y: -88, width: 40, height: 176, rx: 20 }]],
        (x, y) => [0, this.clip(y / R)], ([, down]) => [0, R * down]),
      ([, down]) => [0, 0, -down, 0, 0, 0]);
    const tilts = free[3] || free[4];
    $("turn-label").innerHTML = "";
    $("turn-label").append(tilts ? "tilt, turn " : "turn ", Object.assign(document.createElement("kbd"), { textContent: "J L" }));
    if (!shown("turn", tilts || free[5])) return;
    const svg = $("turn").firstElementChild, OUT = 74, IN = 50;
    // The ring first: it is below the pad that tilts, and each takes what begins on it.
    if (free[5])
      add(new Pad(svg, [["circle", { class: "well", r: 89 }], ["circle", { class: "well", r: tilts ? 59 : 54 }]],
        (x, y, first) => (first && Math.hypot(x, y) < 56 ? null : [this.clip(Math.atan2(x, -y) / (Math.PI / 2)), 0]),
        ([right]) => [OUT * Math.sin(right * Math.PI / 2), -OUT * Math.cos(right * Math.PI / 2)]),
      ([right]) => [0, 0, 0, 0, 0, -right]);
    if (tilts)
      add(new Pad(svg, [["path", { class: "mark", d: `M-${IN - 8} 0H${IN - 8}M0-${IN - 8}V${IN - 8}` }]],
        (x, y, first) => (first && Math.hypot(x, y) >= 56 ? null : this.disc(x, y, IN)),
        ([right, down]) => [IN * 0.7 * right, IN * 0.7 * down]),
      ([right, down]) => [0, 0, 0, right, -down, 0]);
  },
  twist() {
    const sum = [0, 0, 0, 0, 0, 0];
    this.all.forEach((pad, i) => this.axes[i](pad.value).forEach((value, axis) => { sum[axis] += value; }));
    return sum;
  },
  release() { for (const pad of this.all) pad.release(); },
};
