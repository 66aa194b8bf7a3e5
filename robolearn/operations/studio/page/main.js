// The shell: reads the address, shows a view in the page, tells it of changes.

import {getJson, listen, moveOn} from "./api.js";
import {el} from "./dom.js";
import {setKeys, toggle} from "./keys.js";
import {EXTRA, VIEWS, WORDS} from "./views.js";

let main = document.getElementById("main-content");
const crumbs = document.getElementById("crumbs");
const line = document.getElementById("line");
let listing = null, end = null, live = null, missed = null, shown = "", turn = 0, ours = "";

function place() {
  const [path, query] = location.hash.replace(/^#/, "").split("?");
  const [kind, id, ...rest] = path.split("/").filter(Boolean).map(decodeURIComponent);
  return {kind: kind || "", id: id || "", rest, query: new URLSearchParams(query || "")};
}

function say(text, bad = false) {
  line.textContent = text;
  line.classList.toggle("bad", bad);
}

async function look() {
  listing = await getJson("/api/things");
  return listing;
}

// What a view that is no longer shown says comes to nothing: its answers may arrive late.
function app(thing, mine) {
  const now = (fn) => (...args) => { if (mine === turn) fn(...args); };
  return {
    thing,
    get things() { return listing.things; },
    get listing() { return listing; },
    words: WORDS,
    look,
    go: now((hash) => { location.hash = hash; }),
    replace: now((hash) => { ours = hash; history.replaceState(null, "", hash); }),
    title: now((text, trail = []) => { title(thing, text, trail); }),
    keys: now(setKeys),
    live: now((fn) => { live = fn; }),
    say: now(say),
  };
}

// Every view has an element of its own: one that is still waiting writes into what nobody sees.
function blank() {
  const fresh = main.cloneNode(false), focused = document.activeElement === main;
  fresh.className = "";
  main.replaceWith(fresh);
  main = fresh;
  if (focused) main.focus({preventScroll: true});
}

function title(thing, text, trail) {
  document.title = `${text} · studio`;
  const parts = [];
  if (thing) {
    parts.push(el("a", {href: `#/?kind=${thing.kind}`}, WORDS[thing.kind] ? WORDS[thing.kind][1] : thing.kind));
    parts.push(el("a", {href: `#/${thing.kind}/${thing.id}`}, thing.name));
  }
  parts.push(...trail.map((t) => el("span", t)));
  crumbs.replaceChildren(...parts.flatMap((p) => [" / ", p]));
}

async function route() {
  const mine = ++turn;
  moveOn();
  if (end) { const stop = end; end = null; stop(); }
  live = missed = null;
  setKeys([]);
  blank();
  const at = place();
  try {
    if (!listing) await look();
    const module_ = await load(at);
    const found = () => listing.things.find((t) => t.id === at.id);
    // A link to what is new may come before the news of it.
    if (at.id && !(at.kind in EXTRA) && !found()) await look();
    const thing = at.id ? found() : undefined;
    if (at.kind && !(at.kind in EXTRA) && !thing) {
      throw new Error("This is not here (any more). It may have been moved, or studio looks into other folders now.");
    }
    if (mine !== turn) return;
    const stop = await module_.show(main, at, app(thing, mine));
    if (mine !== turn) { if (stop) stop(); return; }
    end = stop || null;
    shown = location.hash;
    // What came while the view was being made may be news to it.
    if (missed && live) {
      const news = missed;
      missed = null;
      await changed(news);
    }
  } catch (error) {
    if (mine !== turn) return;
    failed(error);
  }
}

function failed(error) {
  main.replaceChildren(
    el("div.problem", {role: "alert"}, error.message),
    el("p", el("a", {href: "#/"}, "Everything found"), " · ", el("button", {type: "button", onclick: route}, "try again")),
  );
}

async function load(at) {
  if (!at.kind) return import("./list_view.js");
  if (at.kind in EXTRA) return EXTRA[at.kind].load();
  if (at.kind in VIEWS) return VIEWS[at.kind]();
  if (at.kind in WORDS) return import("./plain_view.js");
  throw new Error(`There is no view '${at.kind}'.`);
}

async function changed(news) {
  const at = place();
  try { await look(); } catch (error) { say(error.message, true); return; }
  if (!live) {
    missed = missed ? {...news, all: missed.all || news.all, ids: [...missed.ids, ...news.ids]} : news;
    return;
  }
  if (!at.kind || news.all || at.id.split(",").some((id) => news.ids.includes(id))) await shownAnew(news);
}

/** What is shown, as it is now; where that cannot be told any more, over what was told last. */
async function shownAnew(news) {
  const mine = turn;
  let why = "";
  try { await live(news); } catch (error) { why = error.message; }
  if (mine !== turn) return;
  for (const old of main.querySelectorAll(":scope > .outdated")) old.remove();
  if (why) main.append(el("div.problem.outdated", {role: "alert"}, `What is shown is what was read last: ${why}`));
}

function themes() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const words = {"": "◐ auto", light: "☀ light", dark: "☾ dark"};
  const show = () => { button.textContent = words[root.dataset.theme || ""]; };
  button.addEventListener("click", () => {
    const order = ["", "light", "dark"];
    const next = order[(order.indexOf(root.dataset.theme || "") + 1) % 3];
    if (next) { root.dataset.theme = next; localStorage.setItem("theme", next); }
    else { delete root.dataset.theme; localStorage.removeItem("theme"); }
    show();
    dispatchEvent(new Event("themechange"));
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("themechange")));
  show();
}

themes();
document.getElementById("help").addEventListener("click", toggle);
addEventListener("hashchange", () => { if (location.hash !== ours || location.hash !== shown) route(); });
addEventListener("unhandledrejection", (event) => { if (event.reason && event.reason.name !== "AbortError") say(event.reason.message || String(event.reason), true); });
let lost = false;
listen(changed, (there) => {
  if (there === !lost) return;
  lost = !there;
  say(lost ? "the server does not answer" : "", lost);
});
route();

