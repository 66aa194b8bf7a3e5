"use strict";
// Joins the parts: what the hands do is told at every beat, and at once when they let go.
const hands = {
  away: document.hidden, inside: false, xy: [0, 0], keyed: false,
  // How fast held keys lead a point [m/s].
  SPEED: 0.2,
  state() {
    const away = this.away;
    if (link.scene.control === "point") return { held: (this.inside || this.keyed) && !away, away, xy: this.xy };
    if (tilt.driving) return { held: !away, away, turn: tilt.pose() };
    const pad = pads.twist(), key = keys.twist(), stick = gamepad.twist();
    const twist = pad.map((value, i) => (link.scene.free[i] ? pads.clip(value + key[i] + stick[i]) : 0));
    return { held: !away && !gamepad.quiet, away, twist };
  },
  beat() { gamepad.poll(this.away || !link.driving); panel.put("gamepad", gamepad.text()); this.lead(link.scene.beat_ms / 1e3); this.tell(false); },
  // Held keys lead the point on from where the pointer is, or from the tool, for so long.
  lead(seconds) {
    const { scene, view } = link;
    if (!scene || scene.control !== "point") return;
    const [ahead, left] = keys.twist(), keyed = !this.away && !!view && !!view.tool && (ahead !== 0 || left !== 0);
    if (keyed && !this.keyed && !this.inside) this.xy = view.tool.at.slice(0, 2);
    if (keyed) {
      const step = drawing.placed([-left * this.SPEED * seconds, ahead * this.SPEED * seconds]);
      this.xy = this.xy.map((value, i) => Math.min(scene.high[i], Math.max(scene.low[i], value + step[i])));
    }
    if (keyed || this.keyed) drawing.pointer = keyed || this.inside ? this.xy : null;
    this.keyed = keyed;
  },
  tell(urgent) { if (link.scene) link.hand(this.state(), urgent); },
  // Whatever was held is let go of: a key whose release goes elsewhere must not go on moving the arm.
  release() { this.inside = this.keyed = false; drawing.pointer = null; keys.release(); pads.release(); tilt.release(); gamepad.release(); this.tell(true); panel.show(); },
  leave() { this.away = true; this.release(); },
  back() { if (this.away && !document.hidden) { this.away = false; panel.show(); } },
  move(event) {
    if (!link.scene || link.scene.control !== "point" || !drawing.scale) return;
    this.xy = drawing.point(event.clientX, event.clientY); this.inside = true; drawing.pointer = this.xy;
    this.tell(false);
  },
  listen() {
    const canvas = drawing.canvas;
    for (const kind of ["pointermove", "pointerdown"]) canvas.addEventListener(kind, (event) => this.move(event));
    for (const kind of ["pointerleave", "pointercancel"]) canvas.addEventListener(kind, () => { if (this.inside) this.release(); });
    window.addEventListener("blur", () => this.leave());
    window.addEventListener("pagehide", () => { this.leave(); });
    document.addEventListener("visibilitychange", () => { if (document.hidden) this.leave(); else this.back(); });
    // Capturing: whoever touches the page is there before what was touched hears of it.
    for (const kind of ["focus", "pointerdown", "keydown"]) window.addEventListener(kind, () => this.back(), true);
  },
};

const say = (key) => { if (panel.allowed(key)) link.send({ type: "key", key }); };
const grip = () => {
  const { view, scene } = link;
  if (scene && scene.gripper && view && view.gripper !== null) link.send({ type: "gripper", opening: view.gripper <= 0.5 ? 1 : 0 });
};
link.onscene = () => {
  document.body.classList.add(link.scene.control);
  drawing.make(link.scene); pictures.make(link.scene.cameras);
  $("pads").hidden = link.scene.control !== "rate";
  $("grip").hidden = !link.scene.gripper;
  if (link.scene.control === "rate") { pads.make(link.scene.free); tilt.make(link.scene.free); gamepad.on = true; }
  $("gamepad").hidden = !gamepad.on;
  for (const pad of pads.all) pad.onmove = (urgent) => hands.tell(urgent);
  setInterval(() => hands.beat(), link.scene.beat_ms);
  setInterval(() => pictures.age(!!link.view && link.view.phase !== "done", link.view ? link.view.cameras : []), 500);
};
link.onview = () => drawing.take(link.view, link.before);
link.onpicture = (camera, data) => pictures.draw(camera, data);
link.onlook = (message) => look.show(message);
link.onchange = () => panel.show();
gamepad.onsaid = say; gamepad.onmove = () => hands.tell(true);
gamepad.onopening = (opening) => { if (link.scene.gripper) link.send({ type: "gripper", opening }); };
keys.onsaid = say; keys.ongrip = grip; keys.onmove = () => { hands.lead(0); hands.tell(true); }; keys.onstop = () => hands.release();
for (const button of document.querySelectorAll("button")) {
  // The focus stays where it was: space starts, it does not press the last button again.
  button.addEventListener("mousedown", (event) => event.preventDefault());
  if (button.dataset.key) button.addEventListener("click", () => say(button.dataset.key));
}
$("grip").addEventListener("click", grip);
$("claim").addEventListener("click", () => link.send({ type: "claim" }));
keys.listen(); hands.listen();
(function frame() {
  requestAnimationFrame(frame);
  if (link.scene && link.view) drawing.draw(link.scene, link.view, link.before, link.arrived);
})();
panel.show();
link.open();
