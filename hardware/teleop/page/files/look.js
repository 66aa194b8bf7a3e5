"use strict";
// The attempt that is over, in small: what moved, and what the cameras saw from its start to its end.
const look = {
  W: 120, H: 22,
  show({ curves, strips }) {
    $("curves").replaceChildren(...curves.map((curve) => this.row(curve)));
    $("strips").replaceChildren(...strips.filter(({ pictures }) => pictures.length).map((strip) => this.strip(strip)));
    $("look").hidden = !curves.length && !strips.length;
  },
  make(kind, attributes, ...inside) {
    const made = document.createElement(kind);
    Object.assign(made, attributes); made.append(...inside);
    return made;
  },
  row({ name, values }) {
    const known = values.filter((value) => value !== null);
    const low = Math.min(...known), high = Math.max(...known), range = high - low;
    const span = !known.length ? "no number" : range < 0.005 ? `${low.toFixed(2)}, still` : `${low.toFixed(2)} to ${high.toFixed(2)}`;
    const svg = document.createElementNS(SVG, "svg"), path = document.createElementNS(SVG, "path");
    svg.setAttribute("viewBox", `0 0 ${this.W} ${this.H}`); svg.setAttribute("preserveAspectRatio", "none"); svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${name}: ${span}`);
    const at = (value, i) => [this.W * (values.length > 1 ? i / (values.length - 1) : 0.5), this.H - 2 - (this.H - 4) * (range > 0 ? (value - low) / range : 0.5)];
    // A line that begins anew where a number is missing; each part is as long as a point at least.
    let d = "", before = false;
    values.forEach((value, i) => {
      if (value !== null) { const [x, y] = at(value, i); d += before ? `L${x} ${y}` : `M${x} ${y}h0.1`; }
      before = value !== null;
    });
    path.setAttribute("d", d); svg.append(path);
    return this.make("div", {}, this.make("span", { textContent: name }), svg, this.make("span", { textContent: span }));
  },
  strip({ camera, pictures }) {
    const shown = pictures.map((data, i) => this.make("img", { alt: `${camera}, ${i + 1} of ${pictures.length}`, src: `data:image/jpeg;base64,${data}` }));
    return this.make("figure", {}, this.make("figcaption", { textContent: `${camera}, from start to end` }), this.make("div", {}, ...shown));
  },
};
