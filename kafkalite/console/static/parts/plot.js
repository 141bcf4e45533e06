/**
 * Plots over time as SVG: lines with an area, a scale of round numbers, and the values under the pointer.
 *
 * A gap in the data stays a gap. Screen readers get the latest values as text.
 */

import { h, replace, s } from "./element.js";
import { clock } from "./format.js";

const HEIGHT = 150;
const EDGE = { top: 8, right: 4, bottom: 18, left: 58 };
const SPAN_MIN_MS = 300_000;
const STEPS_MS = [1, 2, 5, 10, 15, 30].map((minutes) => minutes * 60_000);
const TICKS_MAX = 6;
const TICK_ROOM = 16;

/** @typedef {{ name: string, color: 1 | 2 | 3 | 4, points: [number, number | null][] }} Series  time in ms, value */

export class Plot {
  /** @param {string} title @param {(value: number) => string} say a value with its unit @param {number} step 1000 or 1024 */
  constructor(title, say, step = 1000) {
    this.say = say;
    this.step = step;
    this.width = 560;
    /** @type {Series[]} */
    this.series = [];
    this.drawing = s("svg", { class: "plot", "aria-hidden": "true", height: HEIGHT });
    this.latest = h("div", { class: "plot-values" });
    const caption = h("figcaption", null, h("h2", null, title), this.latest);
    this.element = h("figure", { class: "card plot-card" }, caption, this.drawing);
    this.drawing.addEventListener("pointermove", (event) => this.point(event));
    this.drawing.addEventListener("pointerleave", () => this.tell(null));
    new ResizeObserver(([entry]) => this.resize(entry.contentRect.width)).observe(this.drawing);
  }

  /** Fits the plot to the width: letters and lines keep their size. @param {number} width */
  resize(width) {
    if (width < 50 || Math.abs(width - this.width) < 2) return;
    this.width = width;
    this.draw(this.series);
  }

  /** @param {Series[]} series */
  draw(series) {
    this.series = series;
    const all = series.flatMap((line) => line.points.filter(([, value]) => value !== null));
    this.drawing.setAttribute("viewBox", `0 0 ${this.width} ${HEIGHT}`);
    if (all.length === 0) {
      this.span = null;
      const text = s("text", { x: this.width / 2, y: HEIGHT / 2, class: "plot-empty" }, "Nothing measured yet");
      replace(this.drawing, text);
      return;
    }
    const to = Math.max(...all.map(([time]) => time));
    this.span = [Math.min(to - SPAN_MIN_MS, ...all.map(([time]) => time)), to];
    const top = roundUp(Math.max(0, ...all.map(([, value]) => value)), this.step);
    const x = (time) => this.x(time);
    const y = (value) => HEIGHT - EDGE.bottom - (Math.max(0, value) / top) * (HEIGHT - EDGE.top - EDGE.bottom);
    const drawn = series.map((line) => lines(line, x, y));
    replace(this.drawing, this.scale(top, y), this.hours(), drawn);
    this.tell(null);
  }

  x(time) {
    const [from, to] = this.span;
    return EDGE.left + ((time - from) / (to - from)) * (this.width - EDGE.left - EDGE.right);
  }

  scale(top, y) {
    return [0, top / 2, top].map((value) => [
      s("line", { class: "grid", x1: EDGE.left, x2: this.width - EDGE.right, y1: y(value), y2: y(value) }),
      s("text", { class: "tick left", x: EDGE.left - 6, y: y(value) + 3.5 }, this.say(value)),
    ]);
  }

  hours() {
    const [from, to] = this.span;
    const step = STEPS_MS.find((each) => (to - from) / each <= TICKS_MAX) ?? STEPS_MS.at(-1);
    const ticks = [];
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const x = this.x(time);
      if (x < EDGE.left + TICK_ROOM || x > this.width - TICK_ROOM) continue; // it would be cut off
      ticks.push(s("text", { class: "tick", x, y: HEIGHT - 4 }, clock(time).slice(0, 5)));
    }
    return ticks;
  }

  point(event) {
    if (!this.span) return;
    const box = this.drawing.getBoundingClientRect();
    const part = (event.clientX - box.left - EDGE.left) / (this.width - EDGE.left - EDGE.right);
    this.tell(this.span[0] + part * (this.span[1] - this.span[0]));
  }

  /** The values at a moment, or the latest ones. @param {number | null} at */
  tell(at) {
    if (!this.span) return;
    this.drawing.querySelector(".cursor")?.remove();
    const values = this.series.map((line) => [line, at === null ? line.points.at(-1) : nearest(line.points, at)]);
    const moment = at === null ? null : values[0]?.[1]?.[0];
    if (moment) {
      const x = this.x(moment);
      this.drawing.append(s("line", { class: "cursor", x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }));
    }
    const legend = values.map(([line, found]) =>
      h("span", { class: `legend color-${line.color}` }, `${line.name} `, h("b", null, this.say(found?.[1] ?? null))),
    );
    replace(this.latest, moment && h("span", { class: "moment" }, clock(moment)), legend);
  }
}

function lines(line, x, y) {
  const pieces = [];
  let piece = [];
  for (const [time, value] of line.points) {
    if (value === null) {
      if (piece.length) pieces.push(piece);
      piece = [];
    } else {
      piece.push([x(time).toFixed(1), y(value).toFixed(1)]);
    }
  }
  if (piece.length) pieces.push(piece);
  return pieces.map((points) => {
    const d = points.map(([px, py], index) => `${index ? "L" : "M"}${px} ${py}`).join("");
    const floor = y(0).toFixed(1);
    return [
      s("path", {
        class: `area color-${line.color}`,
        d: `${d}L${points.at(-1)[0]} ${floor}L${points[0][0]} ${floor}Z`,
      }),
      s("path", { class: `line color-${line.color}`, d }),
    ];
  });
}

function nearest(points, at) {
  let best = null;
  for (const found of points) {
    if (best === null || Math.abs(found[0] - at) < Math.abs(best[0] - at)) best = found;
  }
  return best;
}

/** The next of 1, 2, 5, 10, 20 ... units at or above the value; a unit is a power of the step. */
function roundUp(value, step) {
  if (!(value > 0)) return 1;
  const unit = value < 1 ? 1 : step ** Math.floor(Math.log(value) / Math.log(step));
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return ([1, 2, 5, 10].find((factor) => factor * power >= value / unit) ?? 10) * power * unit;
}
