// A reconstructed scene's objects, moved by hand in the photographs. Nothing is written: what was
// done stands there as commands.

import {getJson, of} from "../api.js";
import {command, el, fmt} from "../dom.js";
import {oneAtATime, picker, words} from "./parts.js";

const AXES = ["x", "y", "z", "about x", "about y", "about z"], STEPS = ["0.1", "0.5", "1", "5", "20"];

/** `captures()`: those that photographs may be of; `chosen`: the id of the scene's own. */
export function placer(app, captures, chosen) {
  const state = {capture: chosen, picture: 0, moves: {}, name: "", before: {}, d: null, dragged: null};
  const start = el("button", {type: "button", onclick: () => begin()}, "move its objects in the photographs");
  const place = el("div.placing"), photo = el("img", {alt: "photograph with the scene's outlines", draggable: "false"}), over = el("img.over", {alt: "the scene, drawn", draggable: "false"});
  const stage = el("div.pair.stage", {tabindex: "0", role: "application", "aria-label": "Photograph: drag an object over the table; arrow keys move the chosen one, Page Up and Page Down lift and lower it, comma and full stop turn it",
    onpointerdown: (e) => down(e), onpointermove: (e) => move(e), onpointerup: (e) => up(e), onpointercancel: (e) => up(e), onkeydown: (e) => key(e)}, photo, over);
  const share = el("input", {type: "range", min: 0, max: 100, value: "0", "aria-label": "Photograph or scene", oninput: () => { over.style.opacity = share.value / 100; }});
  const picture = el("select", {"aria-label": "picture", onchange: () => { state.picture = Number(picture.value); state.before = {}; look(); }});
  const object = el("select", {"aria-label": "object", onchange: () => { state.name = object.value; filled(); }});
  const step = el("select", {"aria-label": "millimetres or degrees per key"}, STEPS.map((s) => el("option", {value: s, selected: s === "1"}, s)));
  const fields = AXES.map((axis, k) => el("input", {type: "number", step: "any", min: k < 3 ? -2000 : -180, max: k < 3 ? 2000 : 180, value: "0", "aria-label": `${axis} ${k < 3 ? "mm" : "degrees"}`, onchange: () => typed()}));
  const line = el("p.small.two-lines", {role: "status"}), told = el("div");
  let ended = false, generation = 0;
  over.style.opacity = 0;

  async function begin() {
    start.hidden = true;
    place.classList.add("awaited");
    place.replaceChildren(
      el("div.row", el("label.row", el("span.muted", "picture"), picture), el("label.row", el("span.muted", "object"), object), el("label.row", el("span.muted", "step"), step, el("span.muted", "mm, degrees")),
        el("button", {type: "button", onclick: () => { delete state.moves[state.name]; filled(); look(); }}, "as it was")),
      stage, el("label.row", el("span.muted", "photograph"), share, el("span.muted", "scene")),
      el("div.row", AXES.map((axis, k) => el("label.row", el("span.muted", `${axis} ${k < 3 ? "[mm]" : "[°]"}`), fields[k]))), line, told);
    await look();
  }

  const look = oneAtATime(async () => {
    const mine = ++generation;
    line.textContent = state.d ? "measuring …" : "rendering the scene …";
    const query = new URLSearchParams({capture: state.capture, picture: state.picture, moves: JSON.stringify(state.moves)});
    let d;
    try { d = await getJson(`${of(app.thing.id, "placed")}?${query}`); }
    catch (error) { line.textContent = error.message; return; }
    if (ended || mine !== generation) return;
    state.d = d;
    if (picture.childElementCount !== d.pictures.length) picture.replaceChildren(...d.pictures.map((name, k) => el("option", {value: k, selected: k === state.picture}, name)));
    if (object.childElementCount !== d.objects.length) {
      object.replaceChildren(...d.objects.map((o) => el("option", {value: o.name}, o.name)));
      state.name = d.objects[0].name;
      filled();
    }
    for (const img of [photo, over]) { img.width = d.width; img.height = d.height; }
    photo.src = d.outlined; over.src = d.drawn;
    if (!Object.keys(state.moves).length) state.before = Object.fromEntries(d.objects.map((o) => [o.name, o.iou]));
    line.textContent = `In this picture outlines lie ${fmt.number(d.edge_px, 2)} px from edges, depth ${fmt.number(d.depth_mm, 2)} mm off.`;
    const moved = d.objects.filter((o) => o.command);
    told.replaceChildren(
      words(["object", "silhouette here", "before", "x [mm]", "y [mm]", "z [mm]"], d.objects.map((o) => [el("b", o.name), fmt.number(o.iou, 3), o.name in state.before ? fmt.number(state.before[o.name], 3) : "", ...o.pose.slice(0, 3).map((v) => (1e3 * v).toFixed(1))]), 1),
      ...(moved.length ? [el("p.small", "Nothing is written yet. This writes it, and makes another scene of it:"), ...moved.map((o) => command(o.command))] : []));
  });

  const six = () => state.moves[state.name] || [0, 0, 0, 0, 0, 0];
  function put(values) {
    if (values.some((v) => v)) state.moves[state.name] = values.map((v) => Math.round(v * 100) / 100); else delete state.moves[state.name];
    filled();
    look();
  }
  function filled() { fields.forEach((f, k) => { f.value = six()[k]; }); }
  function typed() {
    if (fields.every((f) => f.value !== "" && f.validity.valid)) put(fields.map((f) => Number(f.value)));
    else line.textContent = "Numbers up to 2,000 mm and 180 degrees.";
  }

  function key(e) {
    const by = Number(step.value), moves = {ArrowRight: [0, by], ArrowLeft: [0, -by], ArrowUp: [1, by], ArrowDown: [1, -by], PageUp: [2, by], PageDown: [2, -by], ".": [5, by], ",": [5, -by]};
    if (!(e.key in moves) || !state.d || e.ctrlKey || e.altKey || e.metaKey) return;
    e.preventDefault(); e.stopPropagation();
    const values = [...six()], [axis, much] = moves[e.key];
    values[axis] += much;
    put(values);
  }

  /** Where the line through a pixel meets the plane at a height over the table [m]; null: it does not. */
  function at(e, height) {
    const d = state.d, box = photo.getBoundingClientRect(), T = d.T_table_camera;
    const a = ((e.clientX - box.left) / box.width * d.width - d.centre_px[0]) / d.focal_px[0], b = ((e.clientY - box.top) / box.height * d.height - d.centre_px[1]) / d.focal_px[1];
    const ray = [0, 1, 2].map((r) => T[4 * r] * a + T[4 * r + 1] * b + T[4 * r + 2]), far = (height - T[11]) / ray[2];
    return Number.isFinite(far) && far > 0 ? [T[3] + far * ray[0], T[7] + far * ray[1]] : null;
  }

  function down(e) {
    if (!state.d || e.button) return;
    let best = null;
    for (const o of state.d.objects) {
      const p = at(e, o.pose[2]), away = p ? Math.hypot(p[0] - o.pose[0], p[1] - o.pose[1]) : Infinity;
      if (!best || away < best.away) best = {o, away, p};
    }
    if (!best || !best.p) return;
    state.name = object.value = best.o.name;
    filled();
    state.dragged = {from: best.p, height: best.o.pose[2], values: [...six()]};
    stage.setPointerCapture(e.pointerId);
  }
  function move(e) {
    const g = state.dragged, p = g && at(e, g.height);
    if (!p) return;
    put([g.values[0] + 1e3 * (p[0] - g.from[0]), g.values[1] + 1e3 * (p[1] - g.from[1]), ...g.values.slice(2)]);
  }
  function up() { state.dragged = null; }

  const node = el("div", el("p.muted.small", "Drags objects over the table until the outlines fit. Nothing is written: what you did stands there as a command."),
    el("div.row", picker("capture", captures, chosen, (id) => { Object.assign(state, {capture: id, picture: 0, before: {}}); picture.replaceChildren(); if (start.hidden) look(); }), start), place);
  return {node, end() { ended = true; }};
}
