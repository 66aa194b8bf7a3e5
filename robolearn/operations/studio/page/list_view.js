// Everything found: one table per kind, filtered by words.

import {el, fmt, refill, table} from "./dom.js";

const MINUTE_MS = 60e3;
const ORDER = ["store", "run", "evaluation", "trial_session", "deployment", "scene", "capture", "certificate"];

export async function show(main, place, app) {
  app.title("Everything found");
  const kind = place.query.get("kind") || "";
  const input = el("input#find", {type: "search", placeholder: "find by name or folder", "aria-label": "Find by name or folder", value: place.query.get("find") || ""});
  const counts = el("div.row"), body = el("div");
  main.append(el("h1", "Everything found"), el("p.muted.small", "under ", app.listing.roots.join(", ")), el("div.row", input, counts), body);

  function draw() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (t) => words.every((w) => `${t.where} ${t.kind}`.toLowerCase().includes(w));
    const found = app.things.filter(fits);
    refill(counts, () => [["", "all"], ...ORDER.filter((k) => app.listing.counts[k]).map((k) => [k, app.words[k][1]])].map(([k, text]) =>
      el("a.button", {href: `#/${k ? `?kind=${k}` : ""}`, "aria-current": k === kind ? "true" : null}, `${text} ${k ? app.listing.counts[k] : app.things.length}`)));
    const parts = [];
    for (const k of ORDER) {
      const rows = found.filter((t) => t.kind === k && (!kind || k === kind)).sort((a, b) => b.changed_s - a.changed_s);
      if (!rows.length) continue;
      parts.push(el("section", el("h2", app.words[k][1], " ", el("span.muted.small", rows.length)), things(rows, app)));
    }
    if (!parts.length) parts.push(empty(app, words.length));
    if (app.listing.left_out) parts.push(el("div.problem", `${fmt.count(app.listing.left_out, "thing")} more are there and not listed: name folders further down.`));
    refill(body, () => parts);
  }

  input.addEventListener("input", () => {
    const query = new URLSearchParams(kind ? {kind} : {});
    if (input.value) query.set("find", input.value);
    app.replace(`#/?${query}`);
    draw();
  });
  app.keys([
    {key: "/", does: "find", run: () => input.focus()},
    {key: "j", does: "next row", show: ["j"], run: () => step(1)},
    {key: "k", does: "row before", show: ["k"], run: () => step(-1)},
  ]);
  function step(by) {
    const links = [...body.querySelectorAll("td a")], at = links.indexOf(document.activeElement);
    const next = links[Math.max(0, Math.min(links.length - 1, at + by))];
    if (next) next.focus();
  }
  app.live(draw);
  draw();
  // "Just now" is not so for ever.
  const timer = setInterval(draw, MINUTE_MS);
  return () => clearInterval(timer);
}

function things(rows, app) {
  return table([
    {name: "name", cell: (t) => [el("a", {href: `#/${t.kind}/${t.id}`}, t.name), t.problem ? el("div.bad.small", t.problem) : ""]},
    {name: "folder", cell: (t) => el("span.muted.mono", t.where), wide: true},
    {name: "changed", right: true, cell: (t) => el("span.nowrap", {title: fmt.date(t.changed_s)}, fmt.ago(t.changed_s))},
  ], rows, {link: (t) => `#/${t.kind}/${t.id}`});
}

function empty(app, filtered) {
  if (filtered) return el("p.note", "Nothing fits these words.");
  return el("div.note", el("p", "Nothing is here yet. What appears is shown by itself: an episode store that 'robolearn collect' or 'robolearn data import' makes, a run of 'robolearn train', an evaluation, a scene."),
    el("p.small.muted", `Looked into: ${app.listing.roots.join(", ")} (links are not followed).`));
}
