// Keys of the view that is shown, and the overlay that lists them.

import {el} from "./dom.js";

const ALWAYS = [
  {key: "?", does: "show or hide this list", run: () => toggle()},
  {key: "g", does: "go to the list of everything", run: () => { location.hash = "#/"; }},
  {key: "Escape", does: "close, or go up one level", run: () => up()},
];
let own = [];
const dialog = document.getElementById("keys");

/** Replace the keys of the view. */
export function setKeys(keys) { own = keys; }

function up() {
  const hash = location.hash.split("?")[0].replace(/\/$/, "");
  const parts = hash.split("/");
  if (parts.length > 3) location.hash = parts.slice(0, 3).join("/");
  else location.hash = "#/";
}

export function toggle() {
  if (dialog.open) { dialog.close(); return; }
  const lines = (keys) => keys.flatMap((k) => [el("span", (k.show || [k.key]).map((n) => [el("kbd", shown(n)), " "])), el("span", k.does)]);
  dialog.replaceChildren(
    el("h2#keys-title", "Keys"),
    own.length ? el("div.keys", lines(own.filter((k) => k.does))) : "",
    el("h2", "Everywhere"), el("div.keys", lines(ALWAYS)),
    el("p", el("button", {type: "button", onclick: () => dialog.close()}, "close")),
  );
  dialog.showModal();
}

function shown(name) {
  return {ArrowLeft: "←", ArrowRight: "→", ArrowUp: "↑", ArrowDown: "↓", " ": "space", Escape: "Esc"}[name] || name;
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const writing = event.target.closest("input:not([type=checkbox]), textarea, select, video, [contenteditable]");
  if (writing) {
    if (event.key === "Escape") writing.blur();
    return;
  }
  // What lies over the page has its own keys, and Escape closes it.
  const over = document.querySelector("dialog[open]");
  if (over && !(over === dialog && event.key === "?")) return;
  const pressed = event.target.closest("button, a, summary, input, [role=button]") && [" ", "Enter"].includes(event.key);
  if (pressed) return;
  const found = [...own, ...ALWAYS].find((k) => k.key === event.key);
  if (!found) return;
  event.preventDefault();
  found.run(event);
});
