// Builds elements. Text is always text: nothing that was found in a folder becomes markup.

/** `el("div.panel#id", {title: "..."}, child, ...)`: attributes, `on...` listeners, children. */
export function el(what, ...rest) {
  const [, name, tail] = what.match(/^([a-z0-9-]*)(.*)$/i);
  const node = document.createElement(name || "div");
  for (const [, sign, word] of tail.matchAll(/([.#])([^.#]+)/g)) {
    if (sign === "#") node.id = word; else node.classList.add(word);
  }
  for (const part of rest.flat(3)) {
    if (part === null || part === undefined || part === false) continue;
    if (part instanceof Node) node.append(part);
    else if (typeof part === "object") attributes(node, part);
    else node.append(String(part));
  }
  return node;
}

function attributes(node, given) {
  for (const [name, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2).toLowerCase(), value);
    else if (name === "value" || name === "checked" || name === "disabled") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
}

/** A table: `columns`: [{name, cell: row => node or text, right, wide}]; `link(row)`: its address. */
export function table(columns, rows, {link, chosen} = {}) {
  const classes = (c) => [c.right && "right", c.wide && "wide"].filter(Boolean).join(" ");
  const head = el("tr", columns.map((c) => el("th", {class: classes(c), scope: "col"}, c.name)));
  const body = rows.map((row) => {
    const cells = columns.map((c) => el("td", {class: classes(c)}, c.cell(row)));
    const address = link && link(row);
    const line = el("tr", {class: [address && "link", chosen && chosen(row) && "chosen"].filter(Boolean).join(" ")}, cells);
    if (address) line.addEventListener("click", (e) => {
      if (!e.target.closest("a, button, input")) location.hash = address;
    });
    return line;
  });
  return el("div.scroll", el("table", el("thead", head), el("tbody", body)));
}

/**
 * Puts what `made()` gives in the place of what is in `host`. What somebody has unfolded stays so,
 * the focus stays where it was, and where nothing differs nothing is touched.
 */
export function refill(host, made) {
  const unfolded = new Set([...host.querySelectorAll("details[open] > summary")].map((s) => s.textContent));
  const active = document.activeElement, held = active !== host && host.contains(active) ? [active.localName, called(active)] : null;
  const fresh = [made()].flat(3).filter(Boolean);
  if (fresh.length === host.childNodes.length && fresh.every((node, k) => node.isEqualNode(host.childNodes[k]))) return;
  host.replaceChildren(...fresh);
  for (const s of host.querySelectorAll("details:not([open]) > summary")) if (unfolded.has(s.textContent)) { s.parentNode.open = true; s.parentNode.dispatchEvent(new Event("toggle")); }
  if (!held || active.isConnected && document.activeElement === active) return;
  const again = [...host.querySelectorAll(held[0])].find((n) => called(n) === held[1]);
  if (again) again.focus({preventScroll: true});
}

const called = (n) => n.dataset.row || n.getAttribute("href") || n.getAttribute("aria-label") || n.textContent;

export const fmt = {
  number(value, digits = 3) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    return Number(value.toPrecision(digits)).toLocaleString("en", {maximumFractionDigits: 6});
  },
  seconds(value) {
    if (!Number.isFinite(value)) return "–";
    return value < 90 ? `${value.toFixed(1)} s` : `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  },
  date(unix) {
    if (!(unix > 0)) return "unknown";
    const d = new Date(unix * 1000), two = (n) => String(n).padStart(2, "0");
    return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}`;
  },
  ago(unix) {
    const s = Date.now() / 1000 - unix;
    if (!(unix > 0)) return "unknown";
    if (s < 90) return "just now";
    if (s < 5400) return `${Math.round(s / 60)} min ago`;
    if (s < 129600) return `${Math.round(s / 3600)} h ago`;
    return `${Math.round(s / 86400)} days ago`;
  },
  count(n, one, many = `${one}s`) { return `${n.toLocaleString("en")} ${n === 1 ? one : many}`; },
};

/** A command with a button that copies it. */
export function command(text) {
  const copy = el("button", {type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = "copied"; }
    catch { copy.textContent = "select and copy"; getSelection().selectAllChildren(shown); }
  }}, "copy");
  const shown = el("pre.command", text);
  return el("div.commanded", shown, copy);
}

/** The colour of a token of page.css, as canvases need it. */
export function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
