// A capture: its sets and pictures, and what its checks find.

import {getJson, of} from "../api.js";
import {command, el, fmt, refill} from "../dom.js";
import {facts, problems, section, tag, words} from "./parts.js";

const PAGE = 60;

export async function show(main, place, app) {
  app.title(app.thing.name);
  const checked = el("div"), wall = el("div.pictures"), pager = el("div.row");
  const state = {offset: 0, frames: [], figures: new Map()};
  const start = el("button", {type: "button", onclick: check}, "check every picture");

  async function look() {
    const d = await getJson(of(app.thing.id, "capture"));
    state.frames = d.frames;
    draw();
    refill(main, () => [
      el("h1", d.name), el("p.muted", [fmt.count(d.frames.length, "picture"), d.made_by].filter(Boolean).join(" · ")), problems(d.problems),
      d.sets.length ? section("Sets", words(["set", "for", "camera", "pictures", "with depth", "with a pose"], d.sets.map((s) => [el("b", s.name), s.purpose, s.camera, s.pictures, s.with_depth, s.with_pose]), 3)) : "",
      d.frames.length ? section("Pictures", wall, pager) : "",
      d.cameras.length ? section("Cameras", words(["camera", "carried by", "size", "lens", "depth"], d.cameras.map((c) => [el("b", c.name), c.mount, `${c.width} × ${c.height}`, c.calibrated ? "calibrated" : tag("not calibrated", "warn"), c.depth ? "yes" : "no"]))) : "",
      section("What it is", facts([["folder", el("span.mono", d.path)], ["objects", d.objects.join(", ")], ["board", d.board]]), d.commands.map((c) => command(c))),
      d.frames.length ? section("What its checks find", start, checked) : ""]);
  }

  function draw() {
    const shown = state.frames.slice(state.offset, state.offset + PAGE);
    // A picture that is shown stays: a capture that grows does not load the others anew.
    const figures = new Map(shown.map((f) => { const key = `${f.number} ${f.name} ${f.there}`; return [key, state.figures.get(key) || figure(f)]; }));
    state.figures = figures;
    const now = [...figures.values()];
    if (now.length !== wall.childElementCount || now.some((node, k) => node !== wall.children[k])) wall.replaceChildren(...now);
    pager.replaceChildren(...state.frames.length > PAGE ? [
      el("button", {type: "button", disabled: !state.offset, onclick: () => { state.offset -= PAGE; draw(); }}, "earlier"), el("span", `${state.offset + 1} to ${Math.min(state.frames.length, state.offset + PAGE)} of ${state.frames.length}`),
      el("button", {type: "button", disabled: state.offset + PAGE >= state.frames.length, onclick: () => { state.offset += PAGE; draw(); }}, "later")] : []);
  }

  function figure(f) {
    return el("figure", f.there ? el("img", {src: of(app.thing.id, "pictures", f.number), alt: f.name, loading: "lazy", width: 160, height: 120}) : el("div.gone", "missing"), el("figcaption.small", f.name));
  }

  async function check() {
    start.disabled = true;
    checked.replaceChildren(el("p.waiting", {role: "status"}, "opening every picture …"));
    try {
      const d = await getJson(of(app.thing.id, "checked"));
      checked.replaceChildren(...[problems(d.problems), el("p", `${d.usable} of ${d.pictures} pictures can be used.`), d.findings.length ? words(["", "what", "pictures"], d.findings.map((f) => [tag(f.level, f.level === "error" ? "bad" : "warn"), f.what, f.frames.length || ""])) : el("p.good", "Nothing is wrong with them.")].filter(Boolean));
    } catch (error) { checked.replaceChildren(el("div.problem", error.message)); }
    finally { start.disabled = false; }
  }

  await look();
  app.live(look);
}
