// Line charts in SVG.

import { h, number, s } from "./dom.js";

const HEIGHT = 210;
const MARGIN = { top: 8, right: 10, bottom: 22, left: 46 };

/** Round numbers between two values. */
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999) ?? rough;
  const result = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) {
    result.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return result;
}

function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

/** Keeps the lowest and highest of the points that share a pixel. */
function thin(points, pixels) {
  if (points.length <= pixels * 2) return points;
  const size = Math.ceil(points.length / pixels);
  const result = [];
  for (let start = 0; start < points.length; start += size) {
    const part = points.slice(start, start + size);
    const [low, high] = [part.reduce((a, b) => (b.y < a.y ? b : a)), part.reduce((a, b) => (b.y > a.y ? b : a))];
    result.push(...(low.x <= high.x ? [low, high] : [high, low]));
  }
  return result;
}

/**
 * A chart. A line has a name, a number for its colour, a number for its dashes, points, and `raw` points that are
 * drawn faintly behind. Points with `low` and `high` are drawn with a band, or with bars if `bars` is set.
 */
export class Chart {
  constructor({ title, xName, share, zoom }) {
    this.title = title;
    this.zoom = zoom;
    this.share = share;
    this.xName = xName;
    this.plot = h("div", { class: "plot" });
    this.legend = h("div", { class: "legend" });
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, title), this.plot, this.legend);
    this.width = 0;
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.draw();
      }
    }).observe(this.plot);
  }

  set(lines, log) {
    this.lines = lines;
    this.log = log;
    this.legend.replaceChildren(
      ...lines.slice(0, 12).map((line) => h("span", {}, s("svg", { class: "key", width: 18, height: 8 }, s("path", { class: this.style(line), d: "M0 4H18" })), line.name)),
      lines.length > 12 ? h("span", {}, `and ${lines.length - 12} more`) : "",
    );
    if (this.width) this.draw();
  }

  style(line) {
    return `line c${line.colour % 8} d${line.dash % 4}`;
  }

  draw() {
    const width = this.width;
    const visible = (point) => !this.log || point.y > 0;
    const lines = this.lines.map((line) => ({ ...line, points: line.points.filter(visible), raw: (line.raw ?? []).filter(visible) }));
    const all = lines.flatMap((line) => [...line.points, ...line.raw]);
    const edges = lines.flatMap((line) => line.points).flatMap((point) => [point.low, point.high]).filter((y) => y !== undefined && (!this.log || y > 0));
    let [left, right] = extent(all.map((point) => point.x));
    let [low, high] = extent([...all.map((point) => point.y), ...edges]);
    if (left === right) [left, right] = [Math.max(0, left - 1), right + 1];
    if (this.share && !this.log) [low, high] = [Math.min(0, low), Math.max(high, Math.min(1, high * 1.1 + 0.05))];
    const scale = this.log ? Math.log10 : (y) => y;
    let [bottom, top] = [scale(low), scale(high)];
    // Rounding errors of a mean are no change.
    if (top - bottom < 1e-9 * Math.abs(top)) bottom = top;
    const margin = (top - bottom) * 0.06 || Math.abs(top) * 0.1 || 0.5;
    if (!this.share || this.log) [bottom, top] = [bottom - margin, top + margin];
    if (bottom === top) top += 1;
    const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
    const x = (value) => MARGIN.left + ((value - left) / (right - left)) * inner.width;
    const y = (value) => MARGIN.top + (1 - (scale(value) - bottom) / (top - bottom)) * inner.height;
    this.scales = { x, y, lines, left, right };
    const root = s("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": this.title });
    this.drawAxes(root, { left, right, bottom, top, x, width });
    for (const line of lines) this.drawLine(root, line, x, y, inner.width);
    this.cursor = s("path", { class: "cursor" });
    this.tip = h("div", { class: "tip", hidden: true });
    root.append(this.cursor);
    root.addEventListener("pointermove", (event) => this.point(event));
    root.addEventListener("pointerleave", () => this.leave());
    if (this.zoom) this.zoomable(root);
    this.plot.replaceChildren(root, this.tip);
  }

  drawAxes(root, { left, right, bottom, top, x, width }) {
    const yTicks = ticks(bottom, top, 5);
    for (const tick of yTicks) {
      const at = MARGIN.top + (1 - (tick - bottom) / (top - bottom)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
      const value = this.log ? 10 ** tick : tick;
      root.append(
        s("path", { class: "grid", d: `M${MARGIN.left} ${at.toFixed(1)}H${width - MARGIN.right}` }),
        s("text", { class: "tick", x: MARGIN.left - 6, y: at + 4, "text-anchor": "end" }, this.share ? `${number(Math.round(value * 1000) / 10)}%` : number(value)),
      );
    }
    for (const tick of ticks(left, right, Math.max(2, width / 90))) {
      if (this.xName === "step" && !Number.isInteger(tick)) continue;
      root.append(s("text", { class: "tick", x: x(tick), y: HEIGHT - 6, "text-anchor": "middle" }, number(tick)));
    }
  }

  drawLine(root, line, x, y, pixels) {
    const path = (points) => points.map((point, index) => `${index ? "L" : "M"}${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`).join("");
    const ranged = line.points.filter((point) => point.low !== undefined && (!this.log || point.low > 0));
    if (line.bars) {
      for (const point of thin(ranged, 60)) {
        root.append(s("path", { class: `bar c${line.colour % 8}`, d: `M${x(point.x).toFixed(1)} ${y(point.low).toFixed(1)}V${y(point.high).toFixed(1)}` }));
      }
    } else if (ranged.length > 1) {
      const back = [...ranged].reverse().map((point) => `L${x(point.x).toFixed(1)} ${y(point.low).toFixed(1)}`).join("");
      const upper = ranged.map((point, index) => `${index ? "L" : "M"}${x(point.x).toFixed(1)} ${y(point.high).toFixed(1)}`).join("");
      root.append(s("path", { class: `band c${line.colour % 8}`, d: `${upper}${back}Z` }));
    }
    if (line.raw.length) root.append(s("path", { class: `${this.style(line)} raw`, d: path(thin(line.raw, pixels)) }));
    root.append(s("path", { class: this.style(line), d: path(thin(line.points, pixels)) }));
    if (line.points.length <= 30) {
      for (const point of line.points) root.append(s("circle", { class: `dot c${line.colour % 8}`, cx: x(point.x), cy: y(point.y), r: 2.6 }));
    }
  }

  /** Dragging over steps shows these alone; a double click shows all. */
  zoomable(root) {
    const step = (event) => {
      const { left, right } = this.scales;
      const share = (event.clientX - this.plot.getBoundingClientRect().left - MARGIN.left) / (this.width - MARGIN.left - MARGIN.right);
      return Math.round(left + Math.min(1, Math.max(0, share)) * (right - left));
    };
    let start = null;
    root.addEventListener("pointerdown", (event) => (start = event));
    root.addEventListener("pointerup", (event) => {
      if (start && Math.abs(event.clientX - start.clientX) > 8) {
        const steps = [step(start), step(event)];
        this.zoom(Math.min(...steps), Math.max(...steps));
      }
      start = null;
    });
    root.addEventListener("dblclick", () => this.zoom("", ""));
  }

  /** Shows the values nearest to the pointer. */
  point(event) {
    const { x, left, right, lines } = this.scales;
    const offset = event.clientX - this.plot.getBoundingClientRect().left;
    const inner = this.width - MARGIN.left - MARGIN.right;
    const wanted = left + ((offset - MARGIN.left) / inner) * (right - left);
    const near = lines.map((line) => line.points.reduce((best, point) => (!best || Math.abs(point.x - wanted) < Math.abs(best.x - wanted) ? point : best), null));
    const first = near.filter(Boolean).sort((a, b) => Math.abs(a.x - wanted) - Math.abs(b.x - wanted))[0];
    if (!first) return;
    this.cursor.setAttribute("d", `M${x(first.x)} ${MARGIN.top}V${HEIGHT - MARGIN.bottom}`);
    const value = (y) => (this.share ? `${number(Math.round(y * 1000) / 10)} %` : number(y));
    const rows = lines.map((line, index) => {
      const point = near[index];
      if (!point || point.x !== first.x) return null;
      const range = point.low === undefined ? "" : ` (${value(point.low)} to ${value(point.high)})`;
      return h("div", {}, s("svg", { class: "key", width: 14, height: 8 }, s("path", { class: this.style(line), d: "M0 4H14" })), `${line.name} `, h("b", {}, value(point.y)), range);
    });
    this.tip.replaceChildren(h("div", { class: "dim" }, `${this.xName} ${number(first.x)}`), ...rows.filter(Boolean).slice(0, 12));
    this.tip.hidden = false;
    const toLeft = x(first.x) > this.width / 2;
    this.tip.style.left = toLeft ? "" : `${x(first.x) + 10}px`;
    this.tip.style.right = toLeft ? `${this.width - x(first.x) + 10}px` : "";
  }

  leave() {
    this.cursor.setAttribute("d", "");
    this.tip.hidden = true;
  }
}
