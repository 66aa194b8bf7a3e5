"use strict";
// The orientation of a phone or tablet turns the tool while its button is held.
const tilt = {
  button: $("tilt"), angles: null, held: false, heading: 0, refused: false,
  // Where the person must allow it first (iOS).
  get asks() { return this.angles === null && typeof DeviceOrientationEvent.requestPermission === "function"; },
  // alpha about z, then beta about x, then gamma about y (W3C, Device Orientation); forward is x.
  times([a, b, c, d], [e, f, g, h]) {
    return [a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g, a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e];
  },
  turned(angle, axis) { const q = [Math.cos(angle / 2), 0, 0, 0]; q[axis] = Math.sin(angle / 2); return q; },
  earth() { const [a, b, c] = this.angles; return this.times(this.times(this.turned(a, 3), this.turned(b, 1)), this.turned(c, 2)); },
  // Where the person looks: along the upper edge of what lies flat, through what stands upright.
  forward(q) {
    const inverse = [q[0], -q[1], -q[2], -q[3]], [, x, y] = this.times(this.times(q, [0, 0, 1, -1]), inverse);
    return Math.atan2(y, x);
  },
  pose() { return this.times(this.turned(-this.heading, 3), this.earth()); },
  get driving() { return this.held && this.angles !== null; },
  make(free) {
    const wanted = free[3] || free[4] || free[5];
    // Without a secure context (TLS, or this computer) there are no sensors.
    this.button.hidden = !(wanted && window.isSecureContext && "DeviceOrientationEvent" in window && matchMedia("(pointer: coarse)").matches);
    if (this.button.hidden) return;
    window.addEventListener("deviceorientation", ({ alpha, beta, gamma }) => {
      if (alpha === null || beta === null || gamma === null) return;
      const first = this.angles === null;
      this.angles = [alpha, beta, gamma].map((value) => value * Math.PI / 180);
      if (first) this.say();
    });
    // A tap allows to ask, the beginning of a touch does not.
    this.button.addEventListener("click", () => { if (this.asks) this.ask(); });
    this.say();
    this.button.addEventListener("pointerdown", (event) => this.take(event));
    for (const kind of ["pointerup", "pointercancel", "lostpointercapture"]) this.button.addEventListener(kind, () => this.release());
    this.button.addEventListener("contextmenu", (event) => event.preventDefault());
  },
  take(event) {
    if (this.angles === null || !link.driving) return;
    this.button.setPointerCapture(event.pointerId);
    this.heading = this.forward(this.earth()); this.held = true;
    this.button.classList.add("next"); hands.tell(true);
  },
  ask() {
    DeviceOrientationEvent.requestPermission()
      .then((answer) => { this.refused = answer !== "granted"; }, () => { this.refused = true; })
      .then(() => this.say());
  },
  say() {
    const text = this.refused ? "Not allowed: let this page use motion and orientation in the browser's settings, then reload it"
      : this.asks ? "Tap to let this page know how the device is turned" : "Hold to turn the tool with this device";
    panel.put("tilt", text);
  },
  release() {
    if (!this.held) return;
    this.held = false;
    this.button.classList.remove("next"); hands.tell(true);
  },
};
