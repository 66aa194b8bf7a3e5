// A scene package: parameters with intervals, residuals, drift; photographs beside renderings.

import {getJson, of} from "../api.js";
import {command, el, fmt, refill} from "../dom.js";
import {facts, picker, problems, section, tag, words} from "./parts.js";
import {placer} from "./placing.js";
import {sentence} from "./results.js";

const VERDICTS = {use: "good", "use with care": "warn", refuse: "bad", unmoved: "good", "not told": "warn", moved: "bad"};

export async function show(main, place, app) {
  app.title(app.thing.name);
  const verified = verifier(app);
  async function look() {
    const d = await getJson(of(app.thing.id, "scene"));
    const moved = Object.entries(d.drift);
    refill(main, () => [
      el("h1", d.name, " ", tag(d.made || "hand-made")), el("p", d.description), problems(d.problems),
      d.parameters.length ? section("Parameters", words(["parameter", "value", "95 % interval", "", "before", "unit", ""], d.parameters.map((p) => [p.name, el("b", fmt.number(p.value, 4)), p.low === null ? el("span.muted", "not known") : el("span.nowrap", `[${fmt.number(p.low, 4)}, ${fmt.number(p.high, 4)}]`), around(p), p.before === null ? "" : fmt.number(p.before, 4), p.unit, p.status && p.status !== "fitted" ? tag(p.status, "warn") : ""]))) : "",
      d.residuals.length ? section("What is left over", words(["", "before", "after"], d.residuals.map((r) => [r.name, r.before === null ? "" : fmt.number(r.before, 4), el("b", fmt.number(r.after, 4))]), 1)) : "",
      d.objects.length ? section("Objects", words(["object", "size [mm]", "mass [kg]", "between", "known by", "collision", "never seen"], d.objects.map((o) => [el("b", o.name), o.size_mm.map((v) => v.toFixed(0)).join(" × "), fmt.number(o.mass_kg), o.mass_low_kg === null ? "" : `${fmt.number(o.mass_low_kg)} to ${fmt.number(o.mass_high_kg)}`, o.mass_source, o.collision, o.unseen_share === null ? "" : `${(100 * o.unseen_share).toFixed(0)} %`]))) : "",
      d.made === "reconstructed" ? section("Photograph and scene", verified.node(d)) : "",
      d.made === "reconstructed" && d.objects.length ? section("By hand", verified.byHand(d)) : "",
      section("Is the real table still so?", moved.length ? words(["", "", "moved [mm]", "turned [degrees]", "", "looked at"], moved.map(([name, p]) => [el("b", name), tag(p.verdict, VERDICTS[p.verdict]), within(p.moved_mm, p.moved_mm_within), within(p.turned_deg, p.turned_deg_within), p.said, `${p.checked_at}, ${p.source}`])) : el("p.muted", d.made === "hand-made" ? "A hand-made scene stands for no particular table." : "Nobody looked since the scene was made, or the scene was changed since.")),
      d.assumed.length ? section("What nobody measured", words(["what", "assumed", "why"], d.assumed.map((a) => [a.what, a.value, a.why]))) : "",
      d.said.length ? section("What was noted when it was made", el("ul", d.said.map((s) => el("li", sentence(s))))) : "",
      section("What it is", facts([["folder", el("span.mono", d.path)], ["robot", d.robot], ["task", d.task], ["cameras", d.cameras.join(", ")], ["signals", d.signals.join(", ")], ["source", d.source], ["capture", d.capture], ["kept from it to judge it by", d.held_out.length ? fmt.count(d.held_out.length, "picture") : ""], ["hash", el("span.mono", d.content_hash)]])),
      section("Commands", d.commands.map((c) => command(c)))]);
  }
  await look();
  app.live(look);
  return () => verified.end();
}

function within(value, half) { return value === null ? "" : el("span.nowrap", fmt.number(value, 3), half === null ? "" : ` ± ${fmt.number(half, 2)}`); }

/** Where the value lies in its interval, on a line that is twice as wide as that. */
function around(p) {
  if (p.low === null || !(p.high > p.low)) return "";
  const middle = (p.low + p.high) / 2, half = p.high - p.low, share = (v) => Math.max(0, Math.min(100, 50 + 50 * (v - middle) / half));
  const range = el("span.range"), point = el("span.point"), before = p.before !== null ? el("span.zero", {title: `before: ${p.before}`}) : "";
  range.style.left = `${share(p.low)}%`;
  range.style.width = `${share(p.high) - share(p.low)}%`;
  point.style.left = `${share(p.value)}%`;
  if (before) before.style.left = `${share(p.before)}%`;
  return el("span.interval", {role: "img", "aria-label": "the value in its interval; a line marks the value before"}, before, range, point);
}

/** Sliders between photographs and the scene, made when somebody asks. */
function verifier(app) {
  const captures = () => app.things.filter((t) => t.kind === "capture");
  const body = el("div");
  let ended = false, hand = null;

  const its = (d, found) => found.find((t) => t.name === d.capture || t.where.split("/").includes(d.capture)) || found[0];

  function byHand(d) {
    const found = captures();
    if (!hand && found.length) hand = placer(app, found, its(d, found).id);
    return hand ? hand.node : el("p.muted", `Its capture '${d.capture}' is not under the folders that studio looks into.`);
  }

  function node(d) {
    if (body.childElementCount) return body;
    const found = captures();
    if (!found.length) { body.append(el("p.muted", `Its capture '${d.capture}' is not under the folders that studio looks into.`)); return body; }
    let chosen = its(d, found).id;
    const start = el("button", {type: "button", onclick: () => draw(chosen, start)}, "render it where the pictures were taken");
    body.append(el("p.muted.small", "Renders the scene from where photographs were taken, and measures the difference. It takes some seconds; nothing is written."),
      el("div.row", picker("capture", found, chosen, (id) => { chosen = id; }), start), el("div.result"));
    return body;
  }

  async function draw(capture, start) {
    const place = body.querySelector(".result");
    start.disabled = true;
    place.classList.add("awaited");
    place.replaceChildren(el("p.waiting", {role: "status"}, "rendering …"));
    try {
      const v = await getJson(`${of(app.thing.id, "verified")}?capture=${capture}`);
      if (ended) return;
      place.replaceChildren(...[
        problems(v.problems),
        v.verdict ? el("p.verdict", tag(v.verdict, VERDICTS[v.verdict]), ` by ${fmt.count(v.pictures, "picture")}, ${v.held_out ? "kept back when it was made" : "not kept back when it was made: not independent"}`) : "",
        v.measures.length ? words(["measure", "value", "use", "use with care", ""], v.measures.map((m) => [m.worst ? `${m.name} (${m.worst})` : m.name, m.value, m.good, m.bearable, tag(m.verdict, VERDICTS[m.verdict])])) : "",
        v.advice.length ? el("ul", v.advice.map((a) => el("li", a))) : "",
        el("div.views", v.views.map(slider))].filter(Boolean));
    } catch (error) { place.classList.remove("awaited"); place.replaceChildren(el("div.problem", error.message)); }
    finally { start.disabled = false; }
  }

  return {node, byHand, end() { ended = true; if (hand) hand.end(); }};
}

function slider(view) {
  const over = el("img.over", {src: view.drawn, alt: `${view.name}, the scene`, width: view.width, height: view.height});
  const known = Object.values(view.iou).filter((n) => n !== null), iou = known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
  const move = el("input", {type: "range", min: 0, max: 100, value: "50", "aria-label": `Photograph or scene, ${view.name}`});
  const set = () => { over.style.clipPath = `inset(0 0 0 ${move.value}%)`; };
  move.addEventListener("input", set);
  set();
  const outlined = el("img", {src: view.outlined, alt: `${view.name}, outlines of the scene in the photograph`, width: view.width, height: view.height, loading: "lazy"});
  return el("figure.view", el("div.pair", el("img", {src: view.photo, alt: `${view.name}, photograph`, width: view.width, height: view.height}), over), move,
    el("figcaption.small", `${view.name}: photograph left, scene right. Silhouettes ${fmt.number(iou, 3)}, outlines ${fmt.number(view.edge_px, 2)} px, depth ${fmt.number(view.depth_mm, 2)} mm off`),
    el("details.folded", el("summary", "Outlines in the photograph"), outlined));
}
