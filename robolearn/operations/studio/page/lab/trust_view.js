// How far a simulator may be trusted: the verdict, and simulated and real trials side by side.

import {getJson} from "../api.js";
import {command, el, fmt, refill} from "../dom.js";
import {interval, percent, picker, problems, section, tag, words} from "./parts.js";
import {sentence} from "./results.js";
import {player} from "./trials.js";

const TRIED = ["evaluation", "deployment", "trial_session"];
const TONES = {"ranks reliably": "good", "ranks wrongly": "bad"};

export async function show(main, place, app) {
  const [real, sim] = place.id.split(","), known = (id) => app.things.find((t) => t.id === id);
  if (!known(real) || !known(sim)) throw new Error("One of these is not here (any more).");
  const name = `trust in ${known(sim).name}`;
  app.title(name, [name]);
  const play = player(app), asked = {real_world: place.query.get("real_world") || "", sim_world: place.query.get("sim_world") || ""};
  const body = el("div.apart"), tried = app.things.filter((t) => TRIED.includes(t.kind));
  const go = (r, s) => app.go(`#/trust/${r},${s}`);
  const world = (name, words) => el("select", {"aria-label": words, disabled: true, onchange: (e) => { asked[name] = e.target.value; app.replace(`#/trust/${real},${sim}?${new URLSearchParams(asked)}`); look(); }}, el("option", "…"));
  const worlds = [world("real_world", "World of the real trials"), world("sim_world", "World of the simulated trials")];
  const chosen = [["reality", real, (id) => go(id, sim)], ["simulator", sim, (id) => go(real, id)]].map(([words, id, to], k) => el("div.row.chosen-world", picker(words, tried, id, to), el("label.row", el("span.muted", "world"), worlds[k])));
  // At once: the first answer waits for a process that starts.
  body.append(el("p.waiting", {role: "status"}, "drawing trials anew …"));
  main.append(el("h1", "How far may this simulator be trusted?"), ...chosen, body);
  const there = await Promise.all([real, sim].map(async (id) => [...new Set((await getJson(`/api/things/${id}/evaluation`)).rates.map((r) => r.world))]));
  ["real_world", "sim_world"].forEach((name, k) => {
    if (!there[k].includes(asked[name])) asked[name] = there[k][real === sim ? Math.min(k, there[k].length - 1) : 0] || "";
    worlds[k].replaceChildren(...there[k].map((w) => el("option", {value: w, selected: w === asked[name]}, w)));
    worlds[k].disabled = there[k].length < 2;
  });

  async function look() {
    const query = new URLSearchParams({real, sim, ...asked});
    const d = await getJson(`/api/trust?${query}`);
    refill(body, () => [problems(d.problems), ...(d.report ? d.report.tasks.map((t) => task(t, d.rates.filter((r) => r.task === t.table.task))) : []), pairs(d), d.lines.length ? el("details.folded", el("summary", "The whole report"), el("pre.command.long", d.lines.join("\n"))) : "", section("The same in a terminal", command(d.command))]);
  }

  function task(t, rates) {
    const j = t.judgement;
    const measures = Object.entries(t.measures).map(([name, m]) => [name, m.value === null ? el("span.muted", m.why) : fmt.number(m.value, 3), span(m.over_trials), span(m.over_policies)]);
    return section(t.table.task,
      el("p.verdict", tag(j.verdict, TONES[j.verdict] || "warn"), " ", sentence(j.why || "")),
      t.calibration ? el("p", sentence(t.calibration)) : "",
      words(["policy", "real (95 % interval)", "", "simulated (95 % interval)", ""], rates.map((r) => [el("b", r.policy), interval(r.real), rate(r.real), interval(r.sim), rate(r.sim)])),
      el("details.folded", el("summary", "Measures"), words(["measure", "value", "if the trials were done again", "with other policies"], measures)),
      t.agreement.length ? el("details.folded", el("summary", "Start by start"), words(["policy", "starts", "correlation", "what reality has with itself", "what a perfect simulator reaches"], t.agreement.map((a) => [a.policy || "all", a.conditions, estimate(a.correlation), a.ceiling === null ? "not repeated" : estimate(a.ceiling), a.reachable === null ? "not known" : estimate(a.reachable)]))) : "");
  }

  const rate = (e) => el("span.nowrap", percent(e.value), e.low === null ? el("span.muted", " (interval not known)") : ` [${percent(e.low)}, ${percent(e.high)}]`);
  const estimate = (e) => (e.value === null ? "not defined" : `${fmt.number(e.value, 2)} ${ends(e.low, e.high)}`);
  const span = (s) => (s ? ends(...s) : "–");
  const ends = (low, high) => `[${fmt.number(low, 2)}, ${fmt.number(high, 2)}]`;

  function pairs(d) {
    if (!d.pairs.length) return "";
    const odd = el("input", {type: "checkbox", onchange: () => list.replaceChildren(rows())});
    const list = el("div");
    const agree = (p) => p.real.some((t) => t.success) === p.sim.some((t) => t.success);
    const trial = (at, p) => (t) => el(`button.dot.${t.success ? "good" : "fail"}${t.plays === "nothing" ? "" : ".plays"}`, {type: "button", "aria-label": `${at === real ? "real" : "simulated"}: ${t.success ? "success" : "no success"}, score ${fmt.number(t.score)}`, title: `score ${fmt.number(t.score)}`, onclick: async () => {
      const found = await getJson(`/api/things/${at}/trials?offset=${t.row - 1}&limit=1`);
      if (found.trials.length) play.open(at, found.trials[0]);
    }});
    const rows = () => words(["policy", "start", "real", "simulated", ""], d.pairs.filter((p) => !odd.checked || !agree(p)).slice(0, 500).map((p) => [p.policy, el("span.mono", p.condition), el("span.dot-line", p.real.slice(0, 20).map(trial(real, p))), el("span.dot-line", p.sim.slice(0, 20).map(trial(sim, p))), agree(p) ? "" : tag("differs", "warn")]));
    list.append(rows());
    const differ = d.pairs.filter((p) => !agree(p)).length;
    return section("Simulated and real trials, side by side", el("p", `From ${fmt.count(d.pairs.length, "start of a policy", "starts of policies")}, ${differ} ended differently. A filled dot is a success, a ring is none.`), el("label.row", odd, "only those that differ"), list, d.pairs.length > 500 ? el("p.muted", "The first 500 are shown.") : "");
  }

  await look();
  app.live(look);
  return () => play.end();
}
