// Results of policies: rates with intervals, comparisons pair by pair, failures.

import {el, fmt} from "../dom.js";
import {interval, intervalText, percent, section, tag, words} from "./parts.js";

/** Rates by policy and world. */
export function rates(found) {
  if (!found.length) return "";
  return words(["policy", "world", "success", "", "n"], found.map((r) => [
    el("b", r.policy), [r.world, r.kind === "sim" ? "" : el("span.muted", ` (${r.kind === "lab" ? "virtual lab" : "robot"})`)],
    interval(r.success), el("span.nowrap", `${percent(r.success.value)} [${percent(r.success.low)}, ${percent(r.success.high)}]`), fmt.number(r.trials, 9)]), 4);
}

/** Results of an evaluation: success and score. */
export function results(rows) {
  return words(["policy", "world", "success (95 % interval)", "", "mean score", "n"], rows.map((r) => [
    el("b", r.policy), r.world, interval(r.success), el("span.nowrap", `${r.successes} of ${r.n}: ${intervalText(r.success)}`), el("span.nowrap", intervalText(r.score)), r.n]), 5);
}

/** Any two policies, under the declared rule, and all pairs in a table. */
export function comparison(found, rule, standings, state) {
  if (!found || !found.worlds.length) return "";
  const worlds = found.worlds.filter((w) => w.effects.length);
  // Of a world without a pair its notes say why there is none.
  const alone = found.worlds.filter((w) => !w.effects.length && w.notes.length).map((w) => el("p.muted.small", `${w.world}: ${w.notes.map(sentence).join(" ")}`));
  if (!worlds.length) return alone.length ? section("Compare two policies", alone) : "";
  const body = el("div", {"aria-live": "polite"});
  const world = el("select", {"aria-label": "World", onchange: () => { state.world = world.value; fill(); }}, worlds.map((w) => el("option", {value: w.world, selected: w.world === state.world}, w.world)));
  const a = el("select", {"aria-label": "One policy", onchange: () => { state.a = a.value; answer(); }}), b = el("select", {"aria-label": "The other policy", onchange: () => { state.b = b.value; answer(); }});
  const chosen = () => worlds.find((w) => w.world === world.value) || worlds[0];
  function fill() {
    const names = chosen().entries.map((e) => e.name);
    const option = (n, on) => el("option", {value: n, selected: n === on}, n);
    const first = names.includes(state.a) ? state.a : names[0], second = names.includes(state.b) && state.b !== first ? state.b : names.find((n) => n !== first);
    a.replaceChildren(...names.map((n) => option(n, first)));
    b.replaceChildren(...names.map((n) => option(n, second)));
    a.value = first; b.value = second;
    answer();
  }
  function answer() {
    const w = chosen();
    if (a.value === b.value) { body.replaceChildren(el("p.muted", "Choose two different policies.")); return; }
    const e = w.effects.find((x) => (x.a === a.value && x.b === b.value) || (x.a === b.value && x.b === a.value));
    if (!e) { body.replaceChildren(el("p.muted", "These two were not compared here."), ...w.notes.map((n) => el("p.muted.small", sentence(n)))); return; }
    body.replaceChildren(el("div",
      el("p.verdict", e.decision ? tag(`${e.decision} is better`, "good") : tag("not separated", "warn"), " ", `${e.words}.`.replace(/\.\.$/, ".")),
      words(["", `${e.b} minus ${e.a}`, "", "p", "starts"], [
        ["success", interval(e.success, {from: -1, to: 1}), el("span.nowrap", intervalText(e.success)), fmt.number(found.rule.by === "success" ? e.p : e.other_p, 2), e.n],
        ["score", interval(e.score, {from: -1, to: 1}), el("span.nowrap", intervalText(e.score)), fmt.number(found.rule.by === "score" ? e.p : e.other_p, 2), e.n]], 3),
      e.only_a === null ? "" : el("p.muted.small", `Only ${e.a} solved ${e.only_a} of the starts, only ${e.b} ${e.only_b}.`),
      w.notes.map((n) => el("p.muted.small", sentence(n)))));
  }
  fill();
  const every = worlds.flatMap((w) => w.effects.map((e) => [w.world, e.a, e.b, el("span.nowrap", intervalText(e.success)), fmt.number(e.p, 2), e.decision ? tag(e.decision, "good") : el("span.muted", "not separated")]));
  return section("Compare two policies", el("div.row", worlds.length > 1 ? world : el("span.muted", worlds[0].world), a, el("span", "and"), b), body,
    el("p.muted.small", `Rule: ${rule}.`), standings.map((s) => el("p.muted.small", sentence(s))), alone,
    every.length > 1 ? el("details.folded", el("summary", `All ${every.length} pairs`), words(["world", "a", "b", "success, b minus a", "p", "better"], every, 6)) : "");
}

export function sentence(text) { return text ? text[0].toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".") : ""; }

export function failures(rows) {
  const lost = rows.filter((r) => r.count);
  if (!lost.length) return "";
  return section("How it goes wrong", words(["policy", "world", "ended by", "share of trials", "count", "mean score then", "for example"],
    lost.map((r) => [el("b", r.policy), r.world, r.reason.replaceAll("_", " "), interval(r.share), `${r.count} of ${r.n}`, fmt.number(r.score, 2), el("span.mono.small", r.examples.join(", "))]), 4));
}

export function variants(rows) {
  if (!rows.length) return "";
  return section("Perturbed worlds, against the world as it is", words(["policy", "variant", "success", "difference", "", "n"],
    rows.map((r) => [el("b", r.policy), r.variant, interval(r.success), interval(r.success_difference, {from: -1, to: 1}), el("span.nowrap", intervalText(r.success_difference)), r.n]), 5));
}

export function generalisation(rows, without) {
  if (!rows.length && !without.length) return "";
  return section("Starts and worlds it was not trained on", rows.length ? words(["policy", "world", "over", "success: seen", "unseen", "gap"],
    rows.map((g) => [el("b", g.policy), g.world, g.over, intervalText(g.success.seen), intervalText(g.success.unseen), el("span.nowrap", intervalText(g.success.gap))])) : "", without.map((w) => el("p.muted.small", sentence(w))));
}

export function agreement(rows, without) {
  if (!rows.length && !without.length) return "";
  return section("Do the worlds agree, start by start?", rows.length ? words(["policy", "compared", "correlation of progress", "of success (phi)", "n"],
    rows.map((r) => [el("b", r.policy), r.kind === "world" ? `${r.world} with ${r.source}` : `${r.source} with itself, ${r.kind === "moved" ? "starts moved a little" : "other noise"}`, el("span.nowrap", intervalText(r.pearson)), el("span.nowrap", intervalText(r.phi)), r.n]), 4) : "", without.map((w) => el("p.muted.small", sentence(w))));
}
