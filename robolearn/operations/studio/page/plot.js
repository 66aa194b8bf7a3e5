// Draws curves over a common axis (uPlot), in the colours of the theme.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import {colour} from "./dom.js";
import {switches} from "./switches.js";

const INKS = 8;

/**
 * `linePlot(host, {x, series: [{name, y, x?, dash?, width?, ink?}], xLabel, xName, yLabel, height, spans, marks, onSeek, log})`.
 * A series with an `x` of its own has its own times. `spans`: [{begin, end, ink}]; `marks`: [{at, ink}].
 * Returns {destroy, at(x) moves the upright line, data(options), fan(curves)}: thin curves
 * [{x, y, ink}] over the others, that come and go.
 */
export function linePlot(host, options) {
  let plot = null, here = null, fan = [];
  // The upright line lies over the plot: to move it draws no curve anew.
  const line = document.createElement("div");
  line.className = "moment";
  const place = (u) => {
    const at = here === null ? NaN : u.valToPos(here, "x");
    line.hidden = !(at >= 0 && at <= u.over.clientWidth);
    if (!line.hidden) line.style.transform = `translateX(${at.toFixed(1)}px)`;
  };
  function make() {
    if (plot) plot.destroy();
    host.style.minHeight = `${options.height || 180}px`;
    plot = new uPlot(settings(host, {...options, fan: () => fan}, place, line), aligned(options), host);
    switches(host);
  }
  const resize = new ResizeObserver(() => { if (plot && host.clientWidth) plot.setSize({width: host.clientWidth, height: options.height || 180}); });
  make();
  resize.observe(host);
  addEventListener("themechange", make);
  return {
    destroy() { resize.disconnect(); removeEventListener("themechange", make); plot.destroy(); plot = null; },
    at(x) { here = x; if (plot) place(plot); },
    data(fresh) {
      const same = fresh.series.length === options.series.length;
      options = {...options, ...fresh};
      if (same) plot.setData(aligned(options)); else make();
    },
    fan(curves) {
      fan = curves;
      if (!plot) return;
      const values = curves.flatMap((c) => c.y).filter(Number.isFinite), {min, max} = plot.scales.y;
      const low = Math.min(min, ...values), high = Math.max(max, ...values);
      if (values.length && (low < min || high > max)) plot.setScale("y", {min: low, max: high}); else plot.redraw(false);
    },
    get plot() { return plot; },
  };
}

function aligned({x, series}) {
  if (series.every((s) => !s.x)) return [x, ...series.map((s) => s.y)];
  return uPlot.join(series.map((s) => [Array.from(s.x || x), Array.from(s.y, (v) => (Number.isFinite(v) ? v : null))]));
}

function settings(host, o, place, moment) {
  const ink = colour("--muted"), line = colour("--line");
  const axis = (label) => ({stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}, label, labelSize: label ? 20 : 0, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif"});
  return {
    width: Math.max(120, host.clientWidth), height: o.height || 180,
    scales: {x: {time: false, range: o.xRange ? () => o.xRange : undefined}, y: {distr: o.log ? 3 : 1}},
    axes: [{...axis(o.xLabel), size: 28}, {...axis(o.yLabel), size: 58}],
    series: [{label: o.xName || o.xLabel || "x"}, ...o.series.map((s, k) => ({
      label: s.name, stroke: colour(`--s${(s.ink ?? k) % INKS}`), width: s.width || 1.5, dash: s.dash ? [5, 4] : undefined,
      points: {show: s.y.length < 2}, spanGaps: Boolean(s.x) || o.series.some((other) => other.x),
      paths: s.step ? uPlot.paths.stepped({align: 1}) : undefined,
    }))],
    cursor: {points: {size: 5}, drag: {x: true, y: false}},
    legend: {show: o.legend !== false},
    hooks: {
      drawClear: [(u) => shade(u, o)],
      draw: [(u) => { strands(u, o.fan()); upright(u, o); place(u); }],
      ready: [(u) => { u.over.append(moment); place(u); if (o.onSeek) u.over.addEventListener("click", (e) => o.onSeek(u.posToVal(e.offsetX, "x"))); }],
    },
  };
}

function shade(u, o) {
  const {ctx} = u, {top, height} = u.bbox;
  for (const s of o.spans || []) {
    const left = u.valToPos(s.begin, "x", true), right = u.valToPos(s.end, "x", true);
    ctx.fillStyle = colour(s.ink || "--shade");
    ctx.fillRect(left, top, Math.max(1, right - left), height);
  }
}

function strands(u, fan) {
  if (!fan.length) return;
  const {ctx} = u, {top, height, left, width} = u.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  ctx.globalAlpha = 0.8;
  ctx.lineWidth = 1.25 * (devicePixelRatio || 1);
  for (const c of fan) {
    ctx.strokeStyle = colour(`--s${c.ink % INKS}`);
    ctx.beginPath();
    for (let i = 0; i < c.x.length; i++) ctx.lineTo(u.valToPos(c.x[i], "x", true), u.valToPos(c.y[i], "y", true));
    ctx.stroke();
  }
  ctx.restore();
}

function upright(u, o) {
  const {ctx} = u, {top, height, left, width} = u.bbox;
  const draw = (x, ink, wide) => {
    const at = u.valToPos(x, "x", true);
    if (at < left || at > left + width) return;
    ctx.fillStyle = ink;
    ctx.fillRect(at - wide / 2, top, wide, height);
  };
  for (const m of o.marks || []) draw(m.at, colour(m.ink || "--bad"), 1.5);
}
