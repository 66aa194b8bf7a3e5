// The episodes of a store as the page holds them: columns, the order that is shown, what is chosen.

import {getJson, of, postJson} from "../api.js";

const kept = new Map();

/** The one of a store; it stays while the page is open, so that a view finds what another chose. */
export function model(id) {
  if (!kept.has(id)) kept.set(id, new Model(id));
  return kept.get(id);
}

export const SORTS = {
  number: ["as recorded", (t, k) => t.number.data[k]],
  score: ["score", (t, k) => t.score.data[k]],
  length: ["length", (t, k) => t.duration_s.data[k]],
  outcome: ["outcome", (t, k) => t.success.data[k]],
  date: ["date", (t, k) => t.started_s.data[k]],
  operator: ["operator", (t, k) => t.operator.words[t.operator.index.data[k]] || t.agent.words[t.agent.index.data[k]]],
  novelty: ["novelty", (t, k, m) => m.novelty.get(t.number.data[k]) ?? -1],
};

class Model {
  constructor(id) {
    this.id = id;
    this.table = null;
    this.order = [];
    this.filter = "";
    this.sort = "number";
    this.down = false;
    this.chosen = new Set();
    this.taken = null;
    this.novelty = new Map();
    this.alike = null;
    // Which run is asked what it wants at the playhead; it outlives an episode.
    this.asked = {on: false, run: ""};
    this.loads = 0;
    this.loaded = 0;
  }

  async load() {
    const turn = ++this.loads, table = await getJson(of(this.id, "episodes"));
    // An answer that was overtaken by a later one says what was so before.
    if (turn < this.loaded) return this.table;
    this.loaded = turn;
    this.table = table;
    this.place = new Map(this.table.number.data.entries().map(([k, n]) => [n, k]));
    return this.table;
  }

  get partial() { return this.table.number.data.length < this.table.total; }

  /** Ask the server which episodes a filter takes, and put them in order. */
  async apply() {
    this.taken = null;
    if (this.filter.trim()) {
      const found = await getJson(`${of(this.id, "select")}?filter=${encodeURIComponent(this.filter)}`);
      if (found.problem) throw new Error(found.problem);
      this.taken = new Set(found.numbers.data);
    }
    this.arrange();
  }

  arrange() {
    const t = this.table, all = [...t.number.data.keys()];
    const rows = this.taken ? all.filter((k) => this.taken.has(t.number.data[k])) : all;
    if (this.sort !== "number" || this.down) {
      const key = SORTS[this.sort][1], values = new Map(rows.map((k) => [k, key(t, k, this)]));
      const sign = this.down ? -1 : 1;
      rows.sort((a, b) => {
        const x = values.get(a), y = values.get(b);
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return (x < y ? -1 : x > y ? 1 : a - b) * sign;
      });
    }
    this.order = rows;
  }

  word(column, k) { const c = this.table[column]; return c.words[c.index.data[k]]; }
  name(k) { return `ep_${String(this.table.number.data[k]).padStart(6, "0")}`; }

  link(number, more = "") {
    const query = this.query();
    return `#/store/${this.id}/episode/${number}${query || more ? "?" : ""}${[query, more].filter(Boolean).join("&")}`;
  }

  query() {
    const q = new URLSearchParams();
    if (this.filter.trim()) q.set("filter", this.filter.trim());
    if (this.sort !== "number") q.set("sort", this.sort);
    if (this.down) q.set("down", "1");
    return q.toString();
  }

  /** Take filter and order from an address; true where that changed something. */
  adopt(query) {
    const filter = query.get("filter") || "", sort = query.get("sort") in SORTS ? query.get("sort") : "number", down = query.has("down");
    const changed = filter !== this.filter || sort !== this.sort || down !== this.down;
    Object.assign(this, {filter, sort, down});
    return changed;
  }
}

// What a person says is kept in this browser until the server has written it down. Its key lets it
// be sent again: a record is never written twice.

const WAITING = "saying";
let sending = null;
const heard = new Map();

function waiting() { try { return JSON.parse(localStorage.getItem(WAITING) || "[]"); } catch { return []; } }
function keepWaiting(list) { localStorage.setItem(WAITING, JSON.stringify(list)); }

function key() { return [...crypto.getRandomValues(new Uint8Array(12))].map((b) => b.toString(16).padStart(2, "0")).join(""); }

/** Say something about episodes; resolves with the record when it is written. */
export function say(id, document_) {
  const entry = {id, document: {key: key(), ...document_}};
  keepWaiting([...waiting(), entry]);
  return new Promise((resolve, reject) => {
    heard.set(entry.document.key, {resolve, reject});
    deliver();
  });
}

/** How much was said and is not written yet. */
export function unwritten() { return waiting().length; }

export function deliver() {
  if (!sending) sending = sendAll().finally(() => { sending = null; });
  return sending;
}

async function sendAll() {
  for (let pause = 300; waiting().length;) {
    const [entry] = waiting(), who = heard.get(entry.document.key);
    try {
      const record = await postJson(of(entry.id, "annotations"), entry.document);
      remember(entry.id, record, entry.document);
      if (who) who.resolve(record);
    } catch (error) {
      // Not answered: the server may have written it or not, and is asked again with the same key.
      if (error.status === undefined || error.status >= 500 || /another|holds|lock/i.test(error.message)) {
        dispatchEvent(new CustomEvent("unwritten", {detail: error.message}));
        await new Promise((wake) => setTimeout(wake, pause));
        pause = Math.min(5000, pause * 1.6);
        continue;
      }
      if (who) who.reject(error);
    }
    keepWaiting(waiting().filter((e) => e.document.key !== entry.document.key));
    heard.delete(entry.document.key);
  }
}

const done = new Map();
function remember(id, record, said) {
  const list = done.get(id) || [];
  if (said.undo) { const at = list.indexOf(said.undo); if (at >= 0) list.splice(at, 1); }
  else list.push(record.record);
  done.set(id, list);
}

/** Take back the newest thing that was said here; null where there is none. */
export async function undo(id) {
  const last = (done.get(id) || []).at(-1);
  return last ? say(id, {undo: last}) : null;
}
