"use strict";
// The workcell from above, the person's forward upwards, and heights beside it: of any task.
const drawing = {
  canvas: $("table"), g: $("table").getContext("2d"), trail: [], colours: {}, box: null, pointer: null,
  css(name) { return this.colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim(); },
  // Right and forward of the person, in the action's frame.
  seen([x, y]) { const s = Math.sin(this.heading), c = Math.cos(this.heading); return [s * x - c * y, c * x + s * y]; },
  placed([u, v]) { const s = Math.sin(this.heading), c = Math.cos(this.heading); return [s * u + c * v, -c * u + s * v]; },

  make(scene) {
    this.heading = scene.heading_rad;
    const { low, high } = scene;
    this.known = low.length >= 2;
    if (this.known) for (const x of [low[0], high[0]]) for (const y of [low[1], high[1]]) this.hold([x, y], 0);
    this.heights = low.length >= 3 ? [low[2], high[2]] : null;
    const [u, v] = this.known ? this.sides() : [4, 3];
    this.canvas.style.aspectRatio = `${Math.max(0.6, Math.min(1.8, u / v))}`;
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours = {}; });
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
  },
  sides() { return [this.box[2] - this.box[0], this.box[3] - this.box[1]]; },
  // The picture shows this place, too.
  hold(at, spare) {
    const [u, v] = this.seen(at), box = this.box ?? [u - 0.1, v - 0.1, u + 0.1, v + 0.1];
    if (this.known && this.box === null) { this.box = [u, v, u, v]; return; }
    this.box = [Math.min(box[0], u - spare), Math.min(box[1], v - spare), Math.max(box[2], u + spare), Math.max(box[3], v + spare)];
  },
  // Takes a new view.
  take(view, before) {
    if (view.step < (before?.step ?? 0) || view.step === 0) this.trail = [];
    for (const thing of [view.tool, ...view.things]) {
      if (!thing) continue;
      this.hold(thing.at, this.known ? 0 : 0.05);
      if (thing.at.length > 2) {
        const z = thing.at[2];
        this.heights = this.heights ? [Math.min(this.heights[0], z), Math.max(this.heights[1], z)] : [Math.min(0, z), z + 0.3];
      }
    }
    if (view.phase === "running" && view.tool) { this.trail.push(view.tool.at); this.trail = this.trail.slice(-25); }
  },
  fit() {
    const ratio = window.devicePixelRatio, [w, h] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const [pw, ph] = [Math.round(w * ratio), Math.round(h * ratio)];
    if (this.canvas.width !== pw || this.canvas.height !== ph) { this.canvas.width = pw; this.canvas.height = ph; }
    const strip = this.heights ? 46 : 0, [u, v] = this.sides();
    this.scale = Math.min((w - strip) / u, h / v);
    this.origin = [(w - strip - this.scale * u) / 2 - this.scale * this.box[0], (h + this.scale * v) / 2 + this.scale * this.box[1]];
    this.g.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.g.clearRect(0, 0, w, h);
    return [w, h, strip];
  },
  px(at) { const [u, v] = this.seen(at); return [this.origin[0] + this.scale * u, this.origin[1] - this.scale * v]; },
  // A place on the screen as one on the table [m].
  point(clientX, clientY) {
    const box = this.canvas.getBoundingClientRect();
    return this.placed([(clientX - box.left - this.origin[0]) / this.scale, (this.origin[1] - clientY + box.top) / this.scale]);
  },
  between(before, now, s) {
    if (!before || before.at.length !== now.at.length) return now;
    const turn = now.yaw - before.yaw;
    return {
      name: now.name, at: now.at.map((value, i) => before.at[i] + (value - before.at[i]) * s),
      yaw: before.yaw + Math.atan2(Math.sin(turn), Math.cos(turn)) * s,
    };
  },
  outline(name, polygons, at, yaw) {
    const g = this.g, goal = name === "goal", c = Math.cos(yaw), s = Math.sin(yaw);
    const path = new Path2D(), box = [Infinity, Infinity, -Infinity, -Infinity];
    for (const polygon of polygons) {
      polygon.forEach(([x, y], i) => {
        const [u, v] = this.px([at[0] + c * x - s * y, at[1] + s * x + c * y]);
        if (i) path.lineTo(u, v); else path.moveTo(u, v);
        box[0] = Math.min(box[0], u); box[1] = Math.min(box[1], v); box[2] = Math.max(box[2], u); box[3] = Math.max(box[3], v);
      });
      path.closePath();
    }
    const kind = name === "tool" ? "tool" : goal ? "goal" : "block";
    g.setLineDash(goal ? [6, 4] : []);
    // The line first: where polygons meet, the filling hides it.
    g.strokeStyle = this.css(kind === "tool" ? "--table" : `--${kind}-line`); g.lineWidth = 3; g.lineJoin = "round"; g.stroke(path);
    g.setLineDash([]);
    g.fillStyle = this.css(`--${kind}`); g.fill(path);
    return box;
  },
  // What has no known shape: a mark, and where its x axis points.
  mark(thing) {
    const g = this.g, [x, y] = this.px(thing.at), tool = thing.name === "tool", goal = thing.name === "goal";
    const [ax, ay] = this.px([thing.at[0] + 1e-3 * Math.cos(thing.yaw), thing.at[1] + 1e-3 * Math.sin(thing.yaw)]);
    const along = Math.atan2(ay - y, ax - x);
    g.save(); g.translate(x, y); g.rotate(along); g.lineWidth = 2;
    g.fillStyle = this.css(tool ? "--tool" : goal ? "--goal" : "--block");
    g.strokeStyle = this.css(tool ? "--table" : goal ? "--goal-line" : "--block-line");
    g.setLineDash(goal ? [4, 3] : []);
    g.beginPath(); if (tool) g.arc(0, 0, 8, 0, 2 * Math.PI); else g.rect(-9, -9, 18, 18);
    g.fill(); g.stroke(); g.setLineDash([]);
    g.beginPath(); g.moveTo(0, 0); g.lineTo(18, 0); g.strokeStyle = this.css("--ink"); g.stroke(); g.restore();
  },
  // Beside what is so wide, on the side that has the room.
  label(name, [x, y], half, w) {
    const g = this.g;
    g.fillStyle = this.css("--ink"); g.font = "13px system-ui, sans-serif"; g.textBaseline = "middle";
    const right = x + half + 6 + g.measureText(name).width < w;
    g.textAlign = right ? "left" : "right";
    g.fillText(name, right ? x + half + 6 : x - half - 6, Math.max(10, y));
  },
  grid(w, h, strip) {
    // However large the workspace is, lines are so far apart.
    const g = this.g, step = [0.05, 0.1, 0.2, 0.5, 1].find((m) => m * this.scale >= 34) ?? 10 ** Math.ceil(Math.log10(34 / this.scale));
    const [left, low] = [-this.origin[0] / this.scale, (this.origin[1] - h) / this.scale];
    g.strokeStyle = this.css("--grid"); g.lineWidth = 1; g.beginPath();
    for (let u = Math.ceil(left / step) * step; this.origin[0] + u * this.scale < w - strip; u += step) {
      const x = this.origin[0] + u * this.scale; g.moveTo(x, 0); g.lineTo(x, h);
    }
    for (let v = Math.ceil(low / step) * step; this.origin[1] - v * this.scale > 0; v += step) {
      const y = this.origin[1] - v * this.scale; g.moveTo(0, y); g.lineTo(w - strip, y);
    }
    g.stroke();
  },
  side(w, h, tool, things) {
    const g = this.g, [low, high] = this.heights, x = w - 23, at = (z) => h - 18 - (h - 36) * (z - low) / Math.max(1e-6, high - low);
    g.fillStyle = this.css("--panel"); g.fillRect(w - 46, 0, 46, h);
    g.strokeStyle = this.css("--edge"); g.lineWidth = 1.5; g.beginPath(); g.moveTo(x, at(low)); g.lineTo(x, at(high)); g.stroke();
    for (const thing of things) if (thing.at.length > 2) {
      g.fillStyle = this.css(thing.name === "goal" ? "--goal-line" : "--block"); g.fillRect(x - 12, at(thing.at[2]) - 3, 24, 6);
    }
    if (!tool || tool.at.length < 3) return;
    g.fillStyle = this.css("--tool"); g.beginPath(); g.arc(x, at(tool.at[2]), 8, 0, 2 * Math.PI); g.fill();
  },
  draw(scene, view, before, arrived) {
    if (!this.box) return;
    const [w, h, strip] = this.fit(), g = this.g, s = Math.min(1, (performance.now() - arrived) * scene.rate_hz / 1e3);
    this.grid(w, h, strip);
    const things = view.things.map((thing) => this.between(before.things.find((b) => b.name === thing.name), thing, s));
    const tool = view.tool && this.between(before.tool, view.tool, s);
    const shapes = new Map(scene.outlines.map((outline) => [outline.name, outline]));
    for (const { name, polygons, at } of scene.outlines) if (at) this.outline(name, polygons, at, at[2]);
    // What is higher hides what is lower.
    for (const thing of [...things].sort((a, b) => (a.at[2] ?? 0) - (b.at[2] ?? 0))) {
      const shape = shapes.get(thing.name);
      if (!shape) { this.mark(thing); this.label(thing.name, this.px(thing.at), 18, w - strip); continue; }
      const [left, top, right, bottom] = this.outline(thing.name, shape.polygons, thing.at, thing.yaw);
      if (scene.control === "rate") this.label(thing.name, [(left + right) / 2, (top + bottom) / 2], (right - left) / 2, w - strip);
    }
    g.fillStyle = this.css("--tool");
    this.trail.forEach((at, i) => {
      const [x, y] = this.px(at); g.globalAlpha = 0.25 * i / this.trail.length; g.beginPath(); g.arc(x, y, 4, 0, 2 * Math.PI); g.fill();
    });
    g.globalAlpha = 1;
    if (tool) this.tool(scene, view, tool, shapes.get("tool"));
    if (strip) this.side(w, h, tool, things);
  },
  tool(scene, view, tool, shape) {
    const g = this.g, [x, y] = this.px(tool.at);
    if (scene.control === "point" && view.phase === "running" && !view.engaged) {
      const pulse = this.still.matches ? 1 : 0.5 + 0.5 * Math.sin(performance.now() / 250);
      g.globalAlpha = 0.35 + 0.45 * pulse; g.strokeStyle = this.css("--tool"); g.lineWidth = 2;
      g.beginPath(); g.arc(x, y, (0.024 + 0.006 * pulse) * this.scale, 0, 2 * Math.PI); g.stroke(); g.globalAlpha = 1;
    }
    if (shape) this.outline("tool", shape.polygons, tool.at, tool.yaw); else this.mark(tool);
    if (!this.pointer || view.phase !== "running" || !view.engaged) return;
    const [u, v] = this.px(this.pointer);
    g.strokeStyle = this.css("--ink"); g.lineWidth = 1.5; g.beginPath();
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) { g.moveTo(u + 3 * dx, v + 3 * dy); g.lineTo(u + 11 * dx, v + 11 * dy); }
    g.stroke();
  },
};
