// A thing that has no view of its own: what is known of it.

import {el, fmt} from "./dom.js";

export async function show(main, place, app) {
  const t = app.thing;
  app.title(t.name);
  main.append(el("h1", t.name), el("p.muted", app.words[t.kind][0], " · ", t.where, " · changed ", fmt.ago(t.changed_s)));
  if (t.problem) main.append(el("div.problem", t.problem));
}
