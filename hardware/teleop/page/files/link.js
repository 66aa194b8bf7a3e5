"use strict";
// The socket: what the program told last, and what the page says. Messages: messages.py.
const VERSION = 1;
const $ = (id) => document.getElementById(id);

const link = {
  socket: null, scene: null, view: null, before: null, arrived: 0,
  driving: false, why: "", lost: false, reason: "", tries: 0, seq: 0,
  onscene: () => {}, onview: () => {}, onlook: () => {}, onpicture: () => {}, onchange: () => {},

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws${location.search}`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = (event) => this.hear(event.data);
    socket.onclose = (event) => this.closed(event);
    this.socket = socket;
  },
  hear(data) {
    if (data instanceof ArrayBuffer) {
      const head = new DataView(data);
      if (head.getUint8(0) === VERSION) this.onpicture(head.getUint8(1), data.slice(6));
      return;
    }
    const message = JSON.parse(data);
    if (message.v !== VERSION) { this.reason = "This page is of another version: reload it."; this.onchange(); return; }
    if (message.type === "scene") {
      this.lost = false; this.tries = 0; this.reason = "";
      const first = !this.scene;
      this.scene = message;
      if (first) this.onscene();
    } else if (message.type === "role") {
      this.driving = message.driving; this.why = message.why;
    } else if (message.type === "view") {
      this.before = this.view && message.step > this.view.step ? this.view : message;
      this.view = message; this.arrived = performance.now();
      this.send({ type: "seen" });
      this.onview();
    } else if (message.type === "look") {
      this.onlook(message);
    }
    this.onchange();
  },
  closed(event) {
    this.lost = true; this.driving = false; this.why = "";
    if (event.code === 1008 || event.code === 1013) this.reason = `This page was closed: ${event.reason}. Reload it.`;
    const over = this.reason || (this.view && this.view.phase === "done");
    if (!over) setTimeout(() => this.open(), Math.min(5000, 500 * 2 ** this.tries++));
    this.onchange();
  },
  get ready() { return this.socket !== null && this.socket.readyState === WebSocket.OPEN; },
  send(message) { if (this.ready) this.socket.send(JSON.stringify({ v: VERSION, ...message })); },
  // What the hand does; not when the network has not taken the last one: an old hand helps nobody.
  hand(state, urgent) {
    if (!this.driving || !this.ready || (this.socket.bufferedAmount && !urgent)) return;
    this.send({ type: "hand", seq: this.seq++, t_ms: performance.now(), ...state });
  },
};
