// Policies of several folders, compared under the declared rule.

import {getJson} from "../api.js";
import {command, el, refill} from "../dom.js";
import {problems} from "./parts.js";
import {comparison, sentence} from "./results.js";
import {interval, intervalText, section, words} from "./parts.js";

export async function show(main, place, app) {
  const ids = place.id.split(","), names = ids.map((id) => app.things.find((t) => t.id === id));
  if (names.some((t) => !t)) throw new Error("One of these is not here (any more).");
  const title = `compare ${names.map((t) => t.name).join(", ")}`;
  app.title(title, [title]);
  const state = {world: "", a: "", b: ""};
  async function look() {
    const d = await getJson(`/api/comparison?of=${ids.join(",")}`);
    const entries = d.comparison ? d.comparison.worlds.flatMap((w) => w.entries.map((e) => [el("b", e.name), w.world, interval(e.success), el("span.nowrap", intervalText(e.success)), e.letters, e.n])) : [];
    refill(main, () => [
      el("h1", "Policies side by side"), el("p.muted", names.map((t) => t.where).join(" and ")), problems(d.problems),
      entries.length ? section("Success", words(["policy", "world", "success", "", "alike", "n"], entries, 5), el("p.muted.small", "Policies that share a letter are not separated.")) : "",
      comparison(d.comparison, d.rule, d.standings, state),
      d.comparison && d.comparison.apart.length ? el("div", d.comparison.apart.map((w) => el("p.muted.small", sentence(w)))) : "",
      section("The same in a terminal", command(d.command))]);
  }
  await look();
  app.live(look);
}
