// Charts on canvas with axes: values at the left, the time below, and what the values were under the pointer or the arrow
// keys. A chart is a picture with its summary as text beside it. Gaps in time stay gaps: a failover is seen as one.

import { colour, onTheme } from "./theme.js";

const FONT = "11px Inter, system-ui, sans-serif";
const BELOW = 17;
const GAP_STEPS = 3.5;
/** Between two times that are written below. */
const MINUTES = [1, 2, 5, 10, 15, 20, 30, 60, 120, 240, 480, 1440];

/**
 * `series`: [{name (or name(sample)), colour: "--x", of: sample => number, fill: bool}]; `stacked`: each stands on those before it; `words`:
 * a value as text; `say(text)`: what is under the pointer, "" for nothing; the axis goes to `floor` at least and to `most`
 * at the most.
 */
export class Chart {
  #canvas;
  #series;
  #stacked;
  #floor;
  #words;
  #say;
  #most;
  #colours = null;
  #samples = null;
  #span = 300_000;
  #at = null;
  #left = 30;

  constructor(canvas, { series, stacked = false, floor = 1, words = String, say = () => {}, most = Infinity }) {
    this.#canvas = canvas;
    this.#series = series;
    this.#stacked = stacked;
    this.#floor = floor;
    this.#most = most;
    this.#words = words;
    this.#say = say;
    onTheme(() => {
      this.#colours = null;
      this.#redraw();
    });
    canvas.tabIndex = 0;
    canvas.addEventListener("pointermove", (event) => this.#point(this.#nearest(event.offsetX)));
    canvas.addEventListener("pointerdown", (event) => this.#point(this.#nearest(event.offsetX)));
    canvas.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") this.#point(null); });
    canvas.addEventListener("focus", () => { if (this.#samples?.length && canvas.matches(":focus-visible")) this.#point(this.#samples.at(-1).at); });
    canvas.addEventListener("blur", () => this.#point(null));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.#redraw()).observe(canvas);
  }

  /** `samples`: [{at, step, ...}], oldest first, of the last `span` milliseconds. */
  draw(samples, span) {
    this.#samples = samples;
    this.#span = span;
    this.#redraw();
    if (this.#at !== null) this.#tellAt();
  }

  #redraw() {
    const samples = this.#samples;
    const canvas = this.#canvas;
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!samples || !width) return;
    const scale = Math.min(2, devicePixelRatio || 1);
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    this.#colours ??= { lines: this.#series.map((one) => colour(one.colour)), line: colour("--line"), soft: colour("--soft"), ink: colour("--ink") };
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = FONT;
    const rows = samples.map((sample) => this.#values(sample));
    let greatest = this.#floor;
    for (const values of rows) for (const value of values) if (value > greatest) greatest = value;
    const ticks = ticksTo(Math.min(this.#most, greatest));
    const top = Math.min(this.#most, ticks.at(-1));
    const left = (this.#left = 7 + Math.ceil(Math.max(...ticks.map((tick) => pen.measureText(this.#tick(tick)).width))));
    const end = Date.now();
    const span = this.#span;
    const base = height - BELOW;
    const x = (at) => left + (1 - (end - at) / span) * (width - left - 1);
    const y = (value) => base - (Math.min(value, top) / top) * (base - 8);
    this.#axes(pen, { ticks, x, y, base, width, end, span });
    for (let number = this.#series.length - 1; number >= 0; number--) this.#line(pen, number, rows, { x, y, base });
    const chosen = this.#chosen();
    if (!chosen) return;
    pen.strokeStyle = this.#colours.ink;
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(Math.round(x(chosen.at)) + 0.5, 4);
    pen.lineTo(Math.round(x(chosen.at)) + 0.5, base);
    pen.stroke();
  }

  #axes(pen, { ticks, x, y, base, width, end, span }) {
    pen.fillStyle = this.#colours.soft;
    pen.strokeStyle = this.#colours.line;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticks) {
      const at = Math.round(y(tick)) + 0.5;
      pen.beginPath();
      pen.moveTo(this.#left, at);
      pen.lineTo(width, at);
      pen.stroke();
      pen.fillText(this.#tick(tick), this.#left - 5, at);
    }
    pen.textBaseline = "alphabetic";
    const most = Math.min(8, (width - this.#left) / 62);
    const step = 60_000 * (MINUTES.find((minutes) => span / (minutes * 60_000) <= most) ?? span / 60_000 / 2);
    for (let back = 0; back <= span; back += step) {
      const atEdge = x(end - back) < this.#left + 24;
      if (atEdge && ((width - this.#left) * step) / span < 84) continue; // it would run into the next one
      pen.textAlign = back === 0 ? "right" : atEdge ? "left" : "center";
      pen.fillText(back === 0 ? "now" : `−${agoWords(back)}`, x(end - back), base + 13);
    }
  }

  #tick(value) {
    return value ? this.#words(value).replace(/\.0+(?!\d)/, "") : "0";
  }

  #line(pen, number, rows, { x, y, base }) {
    const style = this.#colours.lines[number];
    const samples = this.#samples;
    for (const [from, to] of runs(samples, rows, number)) {
      pen.beginPath();
      for (let i = from; i < to; i++) pen[i === from ? "moveTo" : "lineTo"](x(samples[i].at), y(rows[i][number]));
      if (to - from === 1) pen.lineTo(x(samples[from].at) + 1.5, y(rows[from][number]));
      pen.strokeStyle = style;
      pen.lineWidth = 1.5;
      pen.lineJoin = "round";
      pen.stroke();
      if (!this.#series[number].fill) continue;
      pen.lineTo(x(samples[to - 1].at), base);
      pen.lineTo(x(samples[from].at), base);
      pen.globalAlpha = this.#stacked ? 0.55 : 0.16;
      pen.fillStyle = style;
      pen.fill();
      pen.globalAlpha = 1;
    }
  }

  /** NaN where nothing is known; of a stack a part that is not known adds nothing. */
  #values(sample) {
    let below = 0;
    return this.#series.map((one) => {
      const value = one.of(sample);
      if (!this.#stacked) return Number.isFinite(value) ? value : NaN;
      below += Number.isFinite(value) ? value : 0;
      return below;
    });
  }

  #nearest(offset) {
    if (!this.#samples?.length) return null;
    const width = this.#canvas.clientWidth - this.#left - 1;
    const at = Date.now() - (1 - (offset - this.#left) / width) * this.#span;
    return this.#samples.reduce((best, one) => (Math.abs(one.at - at) < Math.abs(best.at - at) ? one : best)).at;
  }

  #point(at) {
    if (this.#at === at) return;
    this.#at = at;
    this.#redraw();
    this.#tellAt();
  }

  #chosen() {
    if (this.#at === null || !this.#samples?.length) return null;
    return this.#samples.reduce((best, one) => (Math.abs(one.at - this.#at) < Math.abs(best.at - this.#at) ? one : best));
  }

  #tellAt() {
    const chosen = this.#chosen();
    if (!chosen) return this.#say("");
    const parts = this.#series.map((one) => [typeof one.name === "function" ? one.name(chosen) : one.name, one.of(chosen)]).filter(([, value]) => Number.isFinite(value)).map(([name, value]) => `${name} ${this.#words(value)}`);
    return this.#say(`${new Date(chosen.at).toTimeString().slice(0, 8)}: ${parts.join(", ") || "not known"}`);
  }

  #key(event) {
    const samples = this.#samples;
    if (!samples?.length) return;
    const here = this.#at === null ? samples.length - 1 : samples.indexOf(this.#chosen());
    const steps = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: samples.length - 1 };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.#point(samples[Math.max(0, Math.min(samples.length - 1, steps[event.key]))].at);
  }
}

function agoWords(ms) {
  const [value, unit] = ms < 120 * 60_000 ? [ms / 60_000, "min"] : [ms / 3_600_000, "h"];
  return `${value < 10 && value % 1 ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

/** Round values from 0 to at least `most`, three or four of them. */
export function ticksTo(most) {
  const rough = most / 3;
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * size).find((one) => one * 3 >= most * 0.999) ?? size * 10;
  const ticks = [];
  for (let number = 0; number <= Math.ceil((most / step) * 0.999); number++) ticks.push(Number((number * step).toPrecision(6)));
  return ticks;
}

/** [from, to) of samples that follow each other without a gap. */
function runs(samples, rows, number) {
  const found = [];
  let from = -1;
  for (let i = 0; i <= samples.length; i++) {
    const known = i < samples.length && Number.isFinite(rows[i][number]);
    const gap = i > 0 && i < samples.length && samples[i].at - samples[i - 1].at > GAP_STEPS * Math.max(samples[i].step, samples[i - 1].step);
    if (from >= 0 && (!known || gap)) {
      found.push([from, i]);
      from = -1;
    }
    if (known && from < 0) from = i;
  }
  return found;
}
