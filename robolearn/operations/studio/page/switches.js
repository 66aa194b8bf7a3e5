// What a pointer does in a plot (uPlot), by keys: a curve is hidden or shown by its name.

/** Names of curves become switches; a class that uPlot gives says which of them are off. */
export function switches(place) {
  for (const row of place.querySelectorAll(".u-legend .u-series:not(.to-come)")) {
    // The first names the axis, which is always there.
    if (!row.previousElementSibling) continue;
    const name = row.querySelector("th"), told = () => name.setAttribute("aria-pressed", String(!row.classList.contains("u-off")));
    name.setAttribute("role", "button");
    name.tabIndex = 0;
    name.title = "hide or show";
    told();
    name.addEventListener("click", told);
    name.addEventListener("keydown", (e) => {
      if (![" ", "Enter"].includes(e.key)) return;
      e.preventDefault();
      name.click();
    });
  }
}

/** Part of a plot: `+` and `-` show less and more of it, arrows go along it, `Home` shows all. */
export function zooms(u, title) {
  const whole = () => { const xs = u.data[0]; return [xs[0], xs[xs.length - 1]]; };
  u.over.tabIndex = 0;
  u.over.setAttribute("role", "application");
  u.over.setAttribute("aria-label", `${title}: plus and minus zoom, arrows go along, Home shows all`);
  u.over.addEventListener("keydown", (e) => {
    const [share, by] = {"+": [0.5, 0], "-": [2, 0], ArrowLeft: [1, -0.25], ArrowRight: [1, 0.25], Home: [Infinity, 0]}[e.key] || [];
    if (!share || e.ctrlKey || e.altKey || e.metaKey || u.data[0].length < 2) return;
    e.preventDefault(); e.stopPropagation();
    const [first, last] = whole(), {min, max} = u.scales.x;
    const wide = Math.min(last - first, (max - min) * share), middle = share === Infinity ? (first + last) / 2 : (min + max) / 2 + by * wide;
    const low = Math.max(first, Math.min(last - wide, middle - wide / 2));
    u.setScale("x", {min: low, max: low + wide});
  });
}
