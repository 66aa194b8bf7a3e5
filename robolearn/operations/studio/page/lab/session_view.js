// Blinded trials: where they stand; what they came to only when they are unblinded.

import {getJson, of} from "../api.js";
import {command, el, refill} from "../dom.js";
import {facts, problems, section, tag, words} from "./parts.js";
import {rates, sentence} from "./results.js";
import {dots, player} from "./trials.js";

export async function show(main, place, app) {
  app.title(app.thing.name);
  const play = player(app), strip = dots(app, app.thing.id, play);
  async function look() {
    const d = await getJson(of(app.thing.id, "session")), r = d.report, p = d.plan;
    const state = d.unblinded ? tag("unblinded") : r && r.complete ? tag("complete: can be unblinded", "good") : tag("blinded", "warn");
    if (d.unblinded) strip.draw(await strip.load());
    refill(main, () => [
      el("h1", d.name, " ", state), problems(d.problems),
      r ? el("div.row", el("progress", {max: r.slots, value: r.done, "aria-label": "Trials done"}), el("span", `${r.done} of ${r.slots} trials are done`)) : "",
      d.unblinded ? "" : el("div.note", "Nobody sees what these trials came to before all are done: who knows it while placing objects or judging success cannot help to favour one of the policies."),
      d.lines.length ? section("Where they stand", el("ul", d.lines.map((l) => el("li", sentence(l))))) : "",
      d.unblinded ? section("Success", rates(d.rates), words(["called", "was"], Object.entries(d.names).map(([a, b]) => [a, el("b", b)]))) : "",
      d.unblinded ? section("Trials", strip.node) : "",
      p ? section("What was fixed before the first trial", facts([["plan", el("span.mono", p.hash)], ["written", p.written], ["suite", p.suite], ["cells", p.cells.join(", ")], ["policies, as they are called", p.aliases.join(", ")], ["who says how a trial went", p.score], ["in pairs", p.pairs ? "yes" : ""], ["rule", p.rule], ["rubric", p.rubric.join("; ")], ["what is tried again", p.requeue]])) : "",
      section("In a terminal", d.commands.map((c) => command(c)))]);
  }
  await look();
  app.live(look);
  return () => play.end();
}
