// A deployment: success, how punctual the loop was, what the supervisor did, every trial.

import {getJson, of} from "../api.js";
import {el, fmt, refill} from "../dom.js";
import {facts, folded, problems, section, tag, words} from "./parts.js";
import {rates} from "./results.js";
import {dots, player} from "./trials.js";

export async function show(main, place, app) {
  app.title(app.thing.name);
  const play = player(app), strip = dots(app, app.thing.id, play);
  async function look() {
    const d = await getJson(of(app.thing.id, "deployment")), trials = await strip.load();
    const causes = Object.entries(d.interventions);
    strip.draw(trials);
    refill(main, () => [
      el("h1", d.name), el("p.muted", [d.policy, d.robot, d.suite, fmt.count(d.trials, "trial")].filter(Boolean).join(" · ")), problems(d.problems),
      d.rates.length ? section("Success", rates(d.rates)) : "",
      section("Trials", strip.node),
      d.times.length ? section("Times of the control loop [ms]", words(["", "median", "90 %", "99 %", "longest", "n"], d.times.map((t) => [t.name, ...[t.p50, t.p90, t.p99, t.max].map((v) => fmt.number(v)), fmt.number(t.n, 9)]), 1)) : "",
      section("What the supervisor did", causes.length ? el("div.row", causes.map(([cause, n]) => tag(`${cause.replaceAll("_", " ")}: ${n}`, "warn"))) : el("p.muted", "Nothing was noted."),
        d.events.some((e) => e.aborted || Object.keys(e.interventions).length) ? words(["trial", "interventions", "cut short"], d.events.map((e, k) => [e.condition || `trial ${k + 1}`, Object.entries(e.interventions).map(([c, n]) => `${c.replaceAll("_", " ")} ${n}`).join(", "), e.aborted])) : ""),
      Object.keys(d.permission).length ? section("Why the policy was let drive", facts(Object.entries(d.permission).map(([k, v]) => [k.replaceAll("_", " "), v]))) : "",
      d.figures.length ? folded("All figures", () => facts(d.figures)) : ""]);
  }
  await look();
  app.live(look);
  app.keys([{key: "t", does: "go to the trials (arrow keys, Enter plays)", run: () => strip.focus()}]);
  return () => play.end();
}
