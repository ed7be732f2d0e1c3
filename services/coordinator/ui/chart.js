// Small charts of the last five minutes, on canvas. A chart is a picture with its summary as text beside it; the
// numbers themselves stand in the figure above. Gaps in time stay gaps: a failover is seen as one.

import { HISTORY_S } from "./live.js";
import { colour, onTheme } from "./theme.js";

const GAP_MS = 3500;

/** `series`: [{colour: "--x", of: sample => number, fill: bool}]; `stacked`: each stands on those before it. */
export class Chart {
  #canvas;
  #series;
  #stacked;
  #floor;
  #colours = null;
  #history = null;

  constructor(canvas, { series, stacked = false, floor = 1 }) {
    this.#canvas = canvas;
    this.#series = series;
    this.#stacked = stacked;
    this.#floor = floor;
    onTheme(() => {
      this.#colours = null;
      if (this.#history) this.draw(this.#history);
    });
  }

  /** Returns the greatest value drawn. */
  draw(history) {
    this.#history = history;
    const canvas = this.#canvas;
    const scale = Math.min(2, devicePixelRatio || 1);
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width) return 0;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    this.#colours ??= [...this.#series.map((one) => colour(one.colour)), colour("--line")];
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    const rows = history.map((sample) => this.#values(sample));
    const top = Math.max(this.#floor, ...rows.map((values) => Math.max(...values)));
    const end = history.length ? history[history.length - 1].at : 0;
    const x = (at) => width - ((end - at) / (HISTORY_S * 1000)) * width;
    const y = (value) => height - 1 - (value / top) * (height - 4);
    pen.strokeStyle = this.#colours[this.#series.length];
    pen.lineWidth = 1;
    pen.beginPath();
    pen.moveTo(0, height - 0.5);
    pen.lineTo(width, height - 0.5);
    pen.stroke();
    for (let number = this.#series.length - 1; number >= 0; number--) {
      const style = this.#colours[number];
      for (const [from, to] of runs(history)) {
        pen.beginPath();
        for (let i = from; i < to; i++) pen[i === from ? "moveTo" : "lineTo"](x(history[i].at), y(rows[i][number]));
        pen.strokeStyle = style;
        pen.lineWidth = 1.5;
        pen.stroke();
        if (!this.#series[number].fill) continue;
        pen.lineTo(x(history[to - 1].at), height);
        pen.lineTo(x(history[from].at), height);
        pen.globalAlpha = this.#stacked ? 0.55 : 0.16;
        pen.fillStyle = style;
        pen.fill();
        pen.globalAlpha = 1;
      }
    }
    return top;
  }

  #values(sample) {
    let below = 0;
    return this.#series.map((one) => {
      const value = one.of(sample);
      const known = Number.isFinite(value) ? value : 0;
      below = this.#stacked ? below + known : known;
      return below;
    });
  }
}

function runs(history) {
  const found = [];
  let from = 0;
  for (let i = 1; i <= history.length; i++)
    if (i === history.length || history[i].at - history[i - 1].at > GAP_MS) {
      if (i > from) found.push([from, i]);
      from = i;
    }
  return found;
}
