// A certificate: what it vouches for, and what has made it stale, or would.

import {getJson, of} from "../api.js";
import {el, fmt, refill} from "../dom.js";
import {facts, interval, intervalText, problems, section, tag, words} from "./parts.js";
import {sentence} from "./results.js";

const TONES = {holds: "good", stale: "bad", "not known": "warn"};

export async function show(main, place, app) {
  app.title(app.thing.name);
  async function look() {
    const d = await getJson(of(app.thing.id, "certificate")), c = d.issued && d.issued.certificate;
    refill(main, () => [
      el("h1", `Certificate of ${c ? c.policy.name : d.name} `, tag(d.standing, TONES[d.standing])), problems(d.problems),
      c ? el("p", sentence(d.assured)) : "",
      c && !c.passes ? el("div.note", "It is not enough by its own rule: ", c.lacking.join("; ")) : "",
      d.relies.length ? section("What it relies on", words(["", "now", "", "made stale by"], d.relies.map((r) => [el("b", r.what), tag(r.standing, TONES[r.standing]), r.words, el("span.muted", r.breaks)]))) : "",
      c ? section("What was counted", words(["", "success", "", "n"], [["in the scene", c.simulated], ["in reality", c.real]].filter(([, x]) => x).map(([name, x]) => [name, interval({value: x.rate, low: x.low, high: x.high}), `${x.successes} of ${x.trials}: ${intervalText({value: x.rate, low: x.low, high: x.high})}`, x.trials]), 3)) : "",
      c ? section("What it says", facts([["policy", `${c.policy.name} (${c.policy.hash})`], ["scene", `${c.scene.where} (${c.scene.world.engine})`], ["cell", c.trust.real.name], ["suite", c.suite], ["starts", fmt.count(c.limits.conditions.length, "start")], ["trust in the simulator", `${c.trust.verdict}: ${c.trust.why}`], ["flattered by", `${fmt.number(c.trust.overrated, 2)} at most${c.trust.most_overrated ? ` (${c.trust.most_overrated})` : ""}`], ["issued", c.issued], ["expires", c.expires], ["wanted", `real success of at least ${c.rule.least_success}`], ["signed by", d.issued.signature ? el("span.mono", d.issued.signature.key.slice(0, 16)) : "nobody"], ["digest", el("span.mono", d.issued.digest.slice(0, 16))]])) : "",
      c && c.remarks.length ? section("What else to know", c.remarks.map((r) => el("div.note", sentence(r)))) : "",
      run(app)]);
  }
  await look();
  app.live(look);
}

function run(app) {
  const folder = app.thing.where.replace(/\/?certificate\.json$/, "");
  const found = app.things.find((t) => t.kind === "run" && t.where === folder);
  return found ? el("p", el("a", {href: `#/run/${found.id}`}, "The run that it lies in")) : "";
}
