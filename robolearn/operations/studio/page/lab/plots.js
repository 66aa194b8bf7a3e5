// Curves over training: several runs in one plot, with the values under the pointer.

import {colour, el, fmt} from "../dom.js";
import {switches, zooms} from "../switches.js";
import uPlot from "../vendor/uplot/uPlot.esm.js";

const MOST = 3000, MOST_NAMED = 8;
const WHOLE = Array.from({length: 10}, (_, k) => [1, 2, 5].map((n) => n * 10 ** k)).flat();

function roomy(_, low, high) {
  const room = Math.max(0.5, 0.03 * (high - low));
  return [low - room, high + room];
}

/** Thinned so that peaks stay: of every group of points the least and the most. */
function thinned(x, y) {
  if (x.length <= MOST) return [x, y];
  const group = Math.ceil(2 * x.length / MOST), xs = [], ys = [];
  for (let i = 0; i < x.length; i += group) {
    let low = -1, high = -1;
    for (let k = i; k < Math.min(x.length, i + group); k++) {
      if (Number.isNaN(y[k])) continue;
      if (low < 0 || y[k] < y[low]) low = k;
      if (high < 0 || y[k] > y[high]) high = k;
    }
    if (low < 0) continue;
    for (const k of low < high ? [low, high] : low === high ? [low] : [high, low]) { xs.push(x[k]); ys.push(y[k]); }
  }
  return [xs, ys];
}

/** A running mean that forgets: `share` of what was, per point. */
export function smoothed(y, share) {
  if (!share) return y;
  let mean = NaN;
  return Array.from(y, (v) => { if (!Number.isNaN(v)) mean = Number.isNaN(mean) ? v : share * mean + (1 - share) * v; return Number.isNaN(v) ? NaN : mean; });
}

function joined(series) {
  const parts = series.map((s) => thinned(s.x, s.y));
  const x = [...new Set(parts.flatMap(([xs]) => Array.from(xs)))].sort((a, b) => a - b);
  const at = new Map(x.map((v, i) => [v, i]));
  const columns = parts.map(([xs, ys]) => {
    const column = new Array(x.length).fill(undefined);
    for (let i = 0; i < xs.length; i++) column[at.get(xs[i])] = Number.isNaN(ys[i]) ? undefined : ys[i];
    return column;
  });
  return [x, ...columns];
}

/**
 * A plot that is redrawn by `draw(series)`: [{label, x, y, tone: 0.., dash, wide}]. Its size is that
 * of its place and does not change with what it shows. A series with `bars: {low, high, shift}` is
 * drawn as points with intervals, `shift` pixels beside their place, and as no line. `whole`: only
 * whole numbers are marked on the axis, and points at its ends have room for their intervals.
 * `named`: how many series it may come to show, whose names have their room from the first on.
 */
export function plot(title, {x = "updates", height = 220, log = false, whole = false, yLimits = null, named = 0} = {}) {
  const place = el("div.plot-body"), node = el("figure.plot", el("figcaption", title), place);
  place.style.minHeight = `${height}px`;
  let made = null, shape = "", last = [];

  function build(series) {
    if (made) made.destroy();
    const ink = colour("--muted"), line = colour("--line");
    const axis = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {stroke: line, width: 1}, font: "11px system-ui"};
    made = new uPlot({
      width: Math.max(200, place.clientWidth || 400), height,
      scales: {x: {time: false, ...(whole ? {range: roomy} : {})}, y: {distr: log ? 3 : 1, ...(yLimits ? {range: yLimits} : {})}},
      axes: [{...axis, size: 30, ...(whole ? {incrs: WHOLE} : {}), label: x, labelSize: 16, labelGap: 0, labelFont: axis.font, values: (_, v) => v.map((n) => (n === null ? "" : short(n)))}, {...axis, size: 56, values: (_, v) => v.map((n) => (n === null ? "" : short(n)))}],
      legend: {live: true},
      series: [{label: x, value: (_, v) => (v === null ? "–" : fmt.number(v, 6))}, ...series.map((s) => ({
        label: s.label, stroke: colour(`--s${s.tone % 8}`), width: s.wide ? 2.5 : s.thin ? 1 : 1.75, dash: s.dash ? [6, 4] : undefined,
        alpha: s.thin ? 0.8 : 1, spanGaps: true, points: {show: !s.bars && s.x.length < 25, size: 5}, ...(s.bars ? {paths: () => null} : {}), value: (_, v) => (v === null || v === undefined ? "–" : fmt.number(v, 4)),
      }))],
      cursor: {drag: {x: true, y: false}},
      hooks: {draw: [(u) => { for (const s of last) if (s.bars) bars(u, s); }]},
    }, joined(series), place);
    switches(place);
    zooms(made, title);
    const legend = place.querySelector(".u-legend");
    if (series.length > MOST_NAMED) { legend.remove(); return; }
    // Hidden ones hold the place of series that are not there yet.
    for (let k = series.length; k < Math.min(named, MOST_NAMED); k++) legend.tBodies[0].append(el("tr.u-series.to-come", {"aria-hidden": "true"}, el("th", "–")));
  }

  function draw(series, force = false) {
    last = series;
    if (!series.length && !named) return;
    const now = series.map((s) => `${s.label}|${s.tone}|${s.dash}|${s.x.length < 25}`).join("\n");
    if (force || now !== shape || !made) { shape = now; build(series); }
    else made.setData(joined(series));
  }

  const again = () => { if (made) draw(last, true); };
  const fit = new ResizeObserver(() => { if (made && Math.abs(place.clientWidth - made.width) > 2) made.setSize({width: Math.max(200, place.clientWidth), height}); });
  fit.observe(place);
  addEventListener("themechange", again);
  return {
    node, draw,
    setLog(on) { log = on; again(); },
    end() { fit.disconnect(); removeEventListener("themechange", again); if (made) made.destroy(); made = null; },
  };
}

function bars(u, s) {
  const {ctx} = u, scale = devicePixelRatio || 1, {top, height, left, width} = u.bbox;
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top - 6 * scale, width, height + 12 * scale);
  ctx.clip();
  ctx.strokeStyle = ctx.fillStyle = colour(`--s${s.tone % 8}`);
  ctx.lineWidth = 1.5 * scale;
  for (let i = 0; i < s.x.length; i++) {
    const x = u.valToPos(s.x[i], "x", true) + (s.bars.shift || 0) * scale, y = (v) => u.valToPos(v, "y", true);
    ctx.beginPath();
    ctx.moveTo(x, y(s.bars.low[i]));
    ctx.lineTo(x, y(s.bars.high[i]));
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x, y(s.y[i]), 3 * scale, 0, 7);
    ctx.fill();
  }
  ctx.restore();
}

function short(n) {
  const a = Math.abs(n);
  if (a >= 1e6) return `${+(n / 1e6).toPrecision(3)}M`;
  if (a >= 1e4) return `${+(n / 1e3).toPrecision(3)}k`;
  if (a !== 0 && a < 1e-3) return n.toExponential(0);
  return String(+n.toPrecision(4));
}
