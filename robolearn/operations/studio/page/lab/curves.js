// Follows the logs of runs while they grow: asks for what came since, by byte.

import {getJson, of} from "../api.js";

/** What is known of one run's log; `pull` asks for more and says whether something came. */
export class Log {
  constructor(id) {
    this.id = id;
    this.columns = new Map();
    this.lines = 0;
    this.next = 0;
    this.mark = 0;
    this.damaged = 0;
    this.problem = "";
    this.gone = false;
  }

  async pull() {
    let grown = false, part;
    // What is not here any more is not asked for again and again.
    if (this.gone) return false;
    do {
      try { part = await getJson(`${of(this.id, "curves")}?since=${this.next}&mark=${this.mark}`); this.problem = ""; }
      catch (error) { this.gone = error.status === 404; grown = grown || this.problem !== error.message; this.problem = error.message; return grown; }
      grown = grown || part.fresh && this.lines > 0;
      if (part.fresh) { this.columns.clear(); this.lines = 0; this.damaged = 0; }
      this.damaged += part.damaged;
      grown = this.take(part) || grown;
      this.next = part.next;
      this.mark = part.mark;
    } while (part.more);
    return grown;
  }

  take(part) {
    const names = Object.keys(part.columns);
    if (!names.length) return false;
    const count = part.columns[names[0]].data.length;
    for (const name of names) if (!this.columns.has(name)) this.columns.set(name, new Array(this.lines).fill(NaN));
    for (const [name, column] of this.columns) {
      const more = part.columns[name];
      for (let i = 0; i < count; i++) column.push(more ? more.data[i] : NaN);
    }
    this.lines += count;
    return true;
  }

  /** Steps and values of a figure where it was logged. */
  curve(name) {
    const steps = this.columns.get("step"), values = this.columns.get(name), x = [], y = [];
    if (!steps || !values) return {x, y};
    for (let i = 0; i < steps.length; i++) if (!Number.isNaN(values[i])) { x.push(steps[i]); y.push(values[i]); }
    return {x, y};
  }

  names() { return [...this.columns.keys()]; }

  last(name) {
    const column = this.columns.get(name);
    return column && column.length ? column[column.length - 1] : null;
  }
}
