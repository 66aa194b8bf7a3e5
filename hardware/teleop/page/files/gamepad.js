"use strict";
// A gamepad at this computer or tablet: sticks and buttons as of the program's own (devices/gamepad.py).
const gamepad = {
  // Buttons of the W3C Gamepad API's standard layout.
  HOLD: [4, 5], SHIFT: 6, CLOSE: 7,
  SAID: { 9: "start", 0: "keep", 1: "discard", 8: "quit", 3: "takeover", 2: "handback" },
  // While the left trigger is held: nothing of it is said by a slip of the thumb.
  SHIFTED: { 9: "redo", 0: "success", 1: "failure", 3: "marker" },
  // Deflections up to this do nothing; whoever lets go holds nothing for so long.
  REST: 0.1, QUIET_MS: 300,
  on: false, seen: null, down: false, pressed: [], opening: 1,
  // `held`: a bumper was pressed here; `rested`: and the sticks were at rest since.
  held: false, rested: false, sticks: [0, 0, 0, 0, 0, 0], since: -Infinity, why: "",
  onsaid: () => {}, onopening: () => {}, onmove: () => {},

  get quiet() { return performance.now() - this.since < this.QUIET_MS; },
  twist() { return this.held && this.rested ? this.sticks : [0, 0, 0, 0, 0, 0]; },
  all() {
    if (!window.isSecureContext) { this.why = "A gamepad needs a secure page: https, or a page on this computer."; return []; }
    if (!navigator.getGamepads) { this.why = "This browser does not tell of gamepads."; return []; }
    let found = [];
    try { found = [...navigator.getGamepads()].filter((pad) => pad && pad.connected); } catch { /* Forbidden here: there are none. */ }
    const known = found.filter((pad) => pad.mapping === "standard");
    this.why = found.length && !known.length ? "The browser does not know this gamepad's buttons: use --agent gamepad."
      : "A gamepad? Press one of its buttons.";
    return known;
  },
  find(all) {
    const same = all.find((pad) => pad.index === this.seen);
    // Who holds one pad is not disturbed by another.
    return this.held && same ? same : all.find((pad) => this.bumper(pad)) || same || all[0] || null;
  },
  bumper(pad) { return this.HOLD.some((button) => this.value(pad, button) > 0.5); },
  value(pad, button) { const at = pad.buttons[button], value = at ? at.value : 0; return value >= 0 ? Math.min(1, value) : 0; },
  axis(pad, number) { const value = pad.axes[number]; return Math.abs(value) > this.REST ? pads.clip(value) : 0; },
  // As the program's own has them: left stick forward and left, right stick up and turn, cross pitch and roll.
  read(pad) {
    const cross = (plus, minus) => this.value(pad, plus) - this.value(pad, minus);
    return [-this.axis(pad, 1), -this.axis(pad, 0), -this.axis(pad, 3), cross(15, 14), cross(13, 12), -this.axis(pad, 2)];
  },
  poll(away) {
    if (!this.on) return;
    const pad = this.find(this.all());
    const fresh = pad !== null && pad.index !== this.seen;
    this.seen = pad ? pad.index : null;
    const buttons = pad ? pad.buttons.map((_, k) => this.value(pad, k) > 0.5) : [];
    // What was down before it was seen, or while the page was left, is no press.
    const before = fresh ? buttons : this.pressed, was = fresh || this.down;
    this.pressed = buttons; this.down = pad !== null && this.bumper(pad);
    if (fresh || !pad || away || !this.down) this.release();
    if (!pad || away) return;
    if (this.down && !was) { this.held = true; this.rested = false; this.opening = this.opened(pad); }
    this.sticks = this.read(pad);
    if (this.sticks.every((value) => value === 0)) this.rested = true;
    const said = buttons[this.SHIFT] ? this.SHIFTED : this.SAID;
    buttons.forEach((pressed, k) => { if (pressed && !before[k] && k in said) this.onsaid(said[k]); });
    if (this.held && this.moved(this.opened(pad))) { this.opening = this.opened(pad); this.onopening(this.opening); }
  },
  opened(pad) { return 1 - this.value(pad, this.CLOSE); },
  moved(opening) { return Math.abs(opening - this.opening) > 0.02 || (opening !== this.opening && opening % 1 === 0); },
  release() {
    this.sticks = [0, 0, 0, 0, 0, 0];
    if (!this.held) return;
    this.held = false; this.since = performance.now();
    this.onmove();
  },
  text() {
    if (this.seen === null) return this.why;
    if (!link.driving) return "Gamepad: another page drives.";
    if (!this.held) return "Gamepad: hold a bumper to drive.";
    return this.rested ? "The gamepad drives." : "Gamepad: let go of the sticks first.";
  },
};
