// An evaluation: rates, comparisons, failures, and every trial as a dot; live while trials run.

import {getJson, of} from "../api.js";
import {command, el, fmt, refill} from "../dom.js";
import {facts, folded, oneAtATime, picker, problems, section, tag} from "./parts.js";
import {agreement, comparison, failures, generalisation, rates, results, sentence, variants} from "./results.js";
import {dots, player} from "./trials.js";

const STILL_LIVE_MS = 61e3;
const TRIED = ["evaluation", "deployment", "trial_session"];

export async function show(main, place, app) {
  app.title(app.thing.name);
  const play = player(app), strip = dots(app, app.thing.id, play), state = {world: "", a: place.query.get("a") || "", b: place.query.get("b") || ""};
  let drawn = "", timer = 0;

  const look = oneAtATime(async () => {
    const d = await getJson(of(app.thing.id, "evaluation")), trials = await strip.load();
    clearTimeout(timer);
    // That trials came within the last minute is not so for ever.
    if (d.live) timer = setTimeout(look, STILL_LIVE_MS);
    const now = JSON.stringify([d.trials, d.live, d.data && d.data.missing, d.rates, d.problems, trials]);
    if (now === drawn) return;
    drawn = now;
    strip.draw(trials);
    refill(main, () => [
      el("h1", d.name, " ", d.live ? tag("trials came within the last minute", "good") : ""),
      el("p.muted", fmt.count(d.trials, "trial"), d.data ? ` · suite ${d.data.asked.suite} · ${fmt.count(d.data.asked.policies.length, "policy", "policies")}, ${fmt.count(d.data.asked.worlds.length, "world")}` : ""),
      d.data && d.data.missing ? progress(d.data) : "", problems(d.problems),
      parts(d)]);
  });

  function progress(data) {
    const wanted = Object.values(data.asked.conditions).reduce((a, b) => a + b, 0) * data.asked.policies.length, done = wanted - data.missing;
    return el("div.row", el("progress", {max: wanted, value: done, "aria-label": "Trials done"}), el("span", `${done} of ${wanted} trials; figures below are of these, and say less until all are there`));
  }

  function parts(d) {
    const x = d.data;
    const trials = section("Trials", el("p.muted.small", "Each dot is a trial."), strip.node);
    if (!x && d.problems.some((p) => p.where === "trials")) return [];
    if (!x) return [d.rates.length ? section("Success", rates(d.rates)) : "", trials, elsewhere()];
    return [
      section("Results", results(x.results), x.apart.map((w) => el("p.muted.small", sentence(w)))),
      comparison(x.comparison, d.rule, d.standings, state), trials, failures(x.failures), variants(x.variants), generalisation(x.generalisation, x.not_generalised), agreement(x.agreement, x.not_agreed), elsewhere(),
      folded("What was asked", () => [facts([["protocol", x.asked.protocol], ["suite", x.asked.suite], ["worlds", x.asked.worlds.map((w) => `${w.name} (${w.engine})`).join("; ")],
        ["policies", x.asked.policies.map((p) => `${p.name}${p.run ? ` (${p.run})` : ""}`).join("; ")], ["code", x.asked.code], ["commit", x.asked.commit], ["judge", x.asked.judge], ["libraries", x.asked.libraries]]),
        x.asked.command ? command(x.asked.command) : ""]),
    ];
  }

  function elsewhere() {
    const others = app.things.filter((t) => TRIED.includes(t.kind) && t.id !== app.thing.id);
    const worlds = el("p.small", el("a", {href: `#/trust/${app.thing.id},${app.thing.id}`}, "How far do its worlds agree about policies?"));
    return section("Beside other trials", worlds,
      others.length ? el("div.row", picker("real trials to judge this simulator by", others, "", (id) => id && app.go(`#/trust/${id},${app.thing.id}`), "choose …")) : "",
      others.length ? el("div.row", picker("compare its policies with those of", others, "", (id) => id && app.go(`#/compare/${app.thing.id},${id}`), "choose …")) : "");
  }

  await look();
  app.live(look);
  app.keys([{key: "t", does: "go to the trials (arrow keys, Enter plays)", run: () => strip.focus()}]);
  return () => { clearTimeout(timer); play.end(); };
}
