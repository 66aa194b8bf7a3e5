"use strict";
// Keys that are held are speeds, as in the terminal; places on the keyboard, not letters, count.
const keys = {
  // Axis and direction: x forward, y left, z up, then about them.
  MOVES: {
    KeyW: [0, 1], ArrowUp: [0, 1], KeyS: [0, -1], ArrowDown: [0, -1],
    KeyA: [1, 1], ArrowLeft: [1, 1], KeyD: [1, -1], ArrowRight: [1, -1],
    KeyR: [2, 1], KeyF: [2, -1],
    KeyO: [3, 1], KeyU: [3, -1], KeyK: [4, 1], KeyI: [4, -1], KeyJ: [5, 1], KeyL: [5, -1],
  },
  SAID: {
    Space: "start", Enter: "keep", NumpadEnter: "keep", Backspace: "discard", KeyX: "discard", KeyQ: "quit", KeyB: "redo",
    Digit1: "success", Digit0: "failure", KeyT: "takeover", KeyH: "handback", KeyM: "marker",
  },
  // A fifth of the full speed, by the mapping's dead zone and power.
  FINE: 0.1 + 0.9 * 0.2 ** (1 / 1.5),
  held: new Map(),
  onsaid: () => {}, ongrip: () => {}, onstop: () => {}, onmove: () => {},

  twist() {
    const twist = [0, 0, 0, 0, 0, 0];
    for (const [code, size] of this.held) twist[this.MOVES[code][0]] += this.MOVES[code][1] * size;
    return twist;
  },
  release() { this.held.clear(); },
  down(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) { this.release(); this.onmove(); return; }
    const onButton = event.target instanceof HTMLButtonElement;
    // A button that has the focus is pressed by these, as everywhere.
    if (onButton && (event.code === "Space" || event.code === "Enter")) return;
    if (event.code in this.MOVES) {
      event.preventDefault();
      if (!event.repeat) { this.held.set(event.code, event.shiftKey ? this.FINE : 1); this.onmove(); }
    } else if (event.code in this.SAID) {
      event.preventDefault();
      if (!event.repeat) this.onsaid(this.SAID[event.code]);
    } else if (event.code === "KeyG" && !event.repeat) this.ongrip();
    else if (event.code === "Period" || event.code === "Escape") {
      this.onstop();
      // Of an arm: at once, and latched.
      if (event.code === "Escape" && !event.repeat) this.onsaid("stop");
    }
  },
  up(event) {
    // While a command key is held some systems tell no other key's release.
    if (event.key === "Meta") this.release(); else this.held.delete(event.code);
    this.onmove();
  },
  listen() {
    window.addEventListener("keydown", (event) => this.down(event));
    window.addEventListener("keyup", (event) => this.up(event));
  },
};
