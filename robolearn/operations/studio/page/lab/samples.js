// What a policy would do at a recorded moment: chunks beside what was done there, with a slider.

import {getJson, of} from "../api.js";
import {el, colour, fmt} from "../dom.js";
import {oneAtATime, picker, problems, section} from "./parts.js";
import {plot} from "./plots.js";

const MOST_PLOTS = 8;

export function samples(app, run) {
  const stores = app.things.filter((t) => t.kind === "store");
  const body = el("div"), node = section("What the policy would do", body);
  const state = {store: "", episode: 0, tick: 0, count: 16, seed: 0, ticks: 1, episodes: 1, plots: new Map(), flat: new Map()};
  if (run.state !== "finished" || !stores.length) {
    const why = stores.length ? "Samples are drawn from a finished run." : "No episode store lies under these folders, so there is no recorded moment to ask it about.";
    body.append(el("p.muted", why));
    return {node, keys: [], end() {}};
  }
  const likely = stores.find((t) => run.commands.some((c) => c.command.includes(t.where))) || stores[0];
  state.store = likely.id;
  const said = el("div"), figures = el("div.plots"), line = el("p.muted.small.answer", {role: "status"});
  const moment = el("input.slider", {type: "range", min: 0, max: 1, value: "0", "aria-label": "Moment in the episode", oninput: () => { state.tick = Number(moment.value); ask(); }});
  const episode = el("input", {type: "number", min: 0, value: "0", "aria-label": "Episode", onchange: () => { state.episode = Math.max(0, Math.floor(Number(episode.value) || 0)); state.tick = 0; ask(); }});
  const count = el("select", {"aria-label": "Samples", onchange: () => { state.count = Number(count.value); ask(); }}, [1, 4, 16, 64].map((n) => el("option", {value: n, selected: n === 16}, `${n} samples`)));
  const again = el("button", {type: "button", onclick: () => { state.seed += 1; ask(); }}, "draw others");
  const start = el("button", {type: "button", onclick: () => { start.remove(); controls.hidden = false; figures.classList.add("sampled"); ask(); }}, "sample it on a recorded moment");
  const controls = el("div", {hidden: true},
    el("div.row", picker("store", stores, state.store, (id) => { state.store = id; state.episode = 0; state.tick = 0; episode.value = "0"; ask(); }), el("label.row", el("span.muted", "episode"), episode), count, again),
    el("label.row.stretch", el("span.muted", "moment"), moment), line, said, figures);
  body.append(el("p.muted.small", "Asks the policy at a moment of a recording for several chunks (thin lines) and shows them beside what was done from there on (thick line). Wide bundles: it is not sure; two bundles: it sees two ways."), start, controls);
  let ended = false;

  const ask = oneAtATime(async () => {
    const began = performance.now();
    // What was said before stays while it is asked: the plots do not jump at every moment.
    if (!line.textContent) line.textContent = "asking the policy …";
    line.setAttribute("aria-busy", "true");
    let d;
    try { d = await getJson(`${of(app.thing.id, "samples")}?store=${state.store}&episode=${state.episode}&tick=${state.tick}&count=${state.count}&seed=${state.seed}`); }
    catch (error) { if (!ended) { said.replaceChildren(el("div.problem", error.message)); line.textContent = ""; } return; }
    finally { line.removeAttribute("aria-busy"); }
    if (ended) return;
    said.replaceChildren(problems(d.problems, ""));
    if (d.problems.length) { line.textContent = ""; return; }
    state.ticks = d.ticks; state.episodes = d.episodes;
    moment.max = d.ticks - 1; moment.value = d.tick; episode.max = d.episodes - 1;
    line.textContent = `${d.episode} (of ${fmt.count(d.episodes, "episode")}), moment ${d.tick} of ${d.ticks - 1}, ${(d.tick / d.rate_hz).toFixed(2)} s; the first ${d.execute} actions of a chunk would be carried out; the policy took ${fmt.number(d.latency_ms)} ms, the answer ${Math.round(performance.now() - began)} ms. ${d.notes.join(" ")}`;
    draw(d);
  });

  function draw(d) {
    const wanted = new Set();
    for (const s of d.signals) {
      const [n, horizon, size] = s.samples.shape, at = (k, t, c) => s.samples.data[(k * horizon + t) * size + c];
      const done = (t, c) => s.recorded.data[t * size + c];
      const time = Array.from({length: horizon}, (_, t) => d.tick / d.rate_hz + t / d.chunk_rate_hz);
      if (size === 2) { wanted.add(`xy ${s.name}`); flat(d, s, n, horizon, at, done); }
      for (let c = 0; c < size && wanted.size < MOST_PLOTS; c++) {
        const name = `${s.name}${size > 1 ? ` ${c}` : ""}${s.unit ? ` [${s.unit}]` : ""}`;
        wanted.add(name);
        if (!state.plots.has(name)) {
          const fresh = plot(name, {x: "seconds", height: 170});
          state.plots.set(name, fresh);
          figures.append(fresh.node);
        }
        const lines = Array.from({length: n}, (_, k) => ({label: `sample ${k}`, x: time, y: time.map((_, t) => at(k, t, c)), tone: 0, thin: true}));
        lines.push({label: "recorded", x: time, y: time.map((_, t) => done(t, c)), tone: 1, wide: true});
        state.plots.get(name).draw(lines);
      }
    }
    for (const [name, p] of state.plots) if (!wanted.has(name)) { p.end(); p.node.remove(); state.plots.delete(name); }
  }

  function flat(d, s, n, horizon, at, done) {
    if (!state.flat.has(s.name)) {
      const canvas = el("canvas", {width: 480, height: 440, role: "img", "aria-label": `${s.name} in the plane: samples and what was recorded`});
      state.flat.set(s.name, canvas);
      figures.prepend(el("figure.plot", el("figcaption", `${s.name} in the plane${s.unit ? ` [${s.unit}]` : ""}: samples, and what was recorded (thick)`), canvas));
    }
    const canvas = state.flat.get(s.name), g = canvas.getContext("2d"), {width, height} = canvas, points = [];
    for (let k = 0; k < n; k++) for (let t = 0; t < horizon; t++) points.push([at(k, t, 0), at(k, t, 1)]);
    for (let t = 0; t < horizon; t++) if (Number.isFinite(done(t, 0))) points.push([done(t, 0), done(t, 1)]);
    const range = (i) => [Math.min(...points.map((p) => p[i])), Math.max(...points.map((p) => p[i]))];
    const [x0, x1] = range(0), [y0, y1] = range(1), span = Math.max(x1 - x0, y1 - y0, 1e-9) * 1.12, cx = (x0 + x1) / 2, cy = (y0 + y1) / 2;
    const place = (x, y) => [width / 2 + (x - cx) / span * Math.min(width, height), height / 2 - (y - cy) / span * Math.min(width, height)];
    g.clearRect(0, 0, width, height);
    const trace = (value, stroke, wide, alpha) => {
      g.beginPath(); g.strokeStyle = stroke; g.lineWidth = wide; g.globalAlpha = alpha;
      for (let t = 0; t < horizon; t++) { const [x, y] = value(t); if (Number.isFinite(x)) g.lineTo(...place(x, y)); }
      g.stroke(); g.globalAlpha = 1;
    };
    for (let k = 0; k < n; k++) trace((t) => [at(k, t, 0), at(k, t, 1)], colour("--s0"), 1.5, 0.8);
    trace((t) => [done(t, 0), done(t, 1)], colour("--s1"), 3.5, 1);
    if (s.now.data.length === 2) { const [x, y] = place(s.now.data[0], s.now.data[1]); g.fillStyle = colour("--ink"); g.beginPath(); g.arc(x, y, 4, 0, 7); g.fill(); }
  }

  const step = (by) => { if (controls.hidden) return; state.tick = Math.max(0, Math.min(state.ticks - 1, state.tick + by)); moment.value = state.tick; ask(); };
  const recolour = () => { if (!controls.hidden) ask(); };
  addEventListener("themechange", recolour);
  return {
    node,
    keys: [
      {key: "s", does: "sample the policy on a recorded moment", run: () => { if (controls.hidden) start.click(); moment.focus(); }},
      {key: ",", does: "a moment earlier", run: () => step(-1)}, {key: ".", does: "a moment later", run: () => step(1)},
    ],
    end() { ended = true; removeEventListener("themechange", recolour); for (const p of state.plots.values()) p.end(); },
  };
}
