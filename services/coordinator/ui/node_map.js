// Nodes as a map: one cell each, darker the more of it is requested. Thousands fit since it is one canvas, and only
// cells that changed are drawn again. Arrow keys walk it, Enter opens; the table beside it says the same in rows.

import { percent } from "./format.js";
import { colour, onTheme } from "./theme.js";

export const DRAINED = 1;
export const UNSCHEDULABLE = 2;
export const UNOWNED = 4;
/** Shades up to `FULL`; what is fuller has a colour of its own. */
const SHADES = 36;
const FULL = 0.9;
const MOST_HEIGHT = 348;
const SIZES = [44, 36, 30, 26, 22, 18, 16, 14, 12, 10, 8, 7, 6, 5, 4, 3];

/** What a node's flags mean, in words. */
export function flagWords(flags) {
  const words = [];
  if (flags & DRAINED) words.push("drained");
  if (flags & UNSCHEDULABLE) words.push("unschedulable");
  if (flags & UNOWNED) words.push("no agent");
  return words;
}

/** The colours by step, the fullest last. */
export function shades() {
  const found = Array.from({ length: SHADES }, (_, step) => {
    const place = (step / (SHADES - 1)) * 9;
    const low = Math.min(8, Math.floor(place));
    return colour(`--ramp-${low}`, `--ramp-${low + 1}`, place - low);
  });
  return [...found, colour("--ramp-10")];
}

export class NodeMap {
  metric = "fuller";
  #canvas;
  #holder;
  #say;
  #open;
  #map = { names: [], cpu: [], memory: [], flags: [] };
  #drawn = [];
  #layout = null;
  #colours = null;
  #chosen = -1;

  /** `holder`: the element it fills; `say(text)`: shows and announces one node; `open(name)`: it was chosen. */
  constructor(canvas, { holder, say, open }) {
    this.#canvas = canvas;
    this.#holder = holder;
    this.#say = say;
    this.#open = open;
    canvas.addEventListener("pointermove", (event) => this.#point(this.#at(event)));
    canvas.addEventListener("pointerleave", () => this.#point(-1));
    canvas.addEventListener("click", (event) => this.#pick(this.#at(event)));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("focus", () => this.#point(Math.max(0, this.#chosen)));
    canvas.addEventListener("blur", () => this.#point(-1));
    onTheme(() => this.#redraw());
    new ResizeObserver(() => { if (this.#layout?.width !== this.#holder.clientWidth) this.#redraw(); }).observe(holder);
  }

  /** Share 0..1 that the colour stands for. */
  share(index) {
    const { cpu, memory } = this.#map;
    if (this.metric === "cpu") return cpu[index];
    return this.metric === "memory" ? memory[index] : Math.max(cpu[index], memory[index]);
  }

  show(map) {
    const same = map.names.length === this.#map.names.length && this.#layout;
    this.#map = map;
    if (same) this.#paint(false);
    else this.#redraw();
  }

  setMetric(metric) {
    this.metric = metric;
    this.#paint(true);
  }

  #redraw() {
    this.#colours = null;
    this.#layout = null;
    this.#paint(true);
  }

  #arrange() {
    const width = this.#holder.clientWidth;
    const total = this.#map.names.length;
    if (!width || !total) return null;
    const size = SIZES.find((one) => Math.ceil(total / Math.floor(width / one)) * one <= MOST_HEIGHT) ?? SIZES.at(-1);
    const columns = Math.max(1, Math.floor(width / size));
    const rows = Math.ceil(total / columns);
    const scale = Math.min(2, devicePixelRatio || 1);
    this.#canvas.width = columns * size * scale;
    this.#canvas.height = rows * size * scale;
    this.#canvas.style.width = `${columns * size}px`;
    this.#canvas.style.height = `${rows * size}px`;
    return { width, size, columns, rows, scale, gap: size > 12 ? 2 : 1 };
  }

  #paint(whole) {
    if (!this.#layout) {
      this.#layout = this.#arrange();
      whole = true;
    }
    if (!this.#layout) return;
    this.#colours ??= {
      ramp: shades(),
      mark: colour("--ink"), alone: colour("--bad"), paper: colour("--surface"),
    };
    const pen = this.#canvas.getContext("2d");
    pen.setTransform(this.#layout.scale, 0, 0, this.#layout.scale, 0, 0);
    if (whole) this.#drawn = [];
    for (let i = 0; i < this.#map.names.length; i++) {
      const share = this.share(i);
      const step = share > FULL ? SHADES : Math.max(0, Math.round((share / FULL) * (SHADES - 1)));
      const sign = step * 16 + this.#map.flags[i] + (i === this.#chosen ? 8 : 0);
      if (this.#drawn[i] === sign) continue;
      this.#drawn[i] = sign;
      this.#cell(pen, i, step);
    }
  }

  #cell(pen, index, step) {
    const { size, columns, gap } = this.#layout;
    const x = (index % columns) * size;
    const y = Math.floor(index / columns) * size;
    const side = size - gap;
    const flags = this.#map.flags[index];
    pen.fillStyle = this.#colours.paper;
    pen.fillRect(x, y, size, size);
    pen.fillStyle = this.#colours.ramp[step];
    pen.fillRect(x, y, side, side);
    if (flags & (DRAINED | UNSCHEDULABLE)) {
      pen.strokeStyle = this.#colours.mark;
      pen.lineWidth = Math.max(1, size / 12);
      pen.beginPath();
      pen.moveTo(x + 1, y + side - 1);
      pen.lineTo(x + side - 1, y + 1);
      if (flags & DRAINED) {
        pen.moveTo(x + 1, y + 1);
        pen.lineTo(x + side - 1, y + side - 1);
      }
      pen.stroke();
    }
    if (flags & UNOWNED) this.#frame(pen, x, y, side, this.#colours.alone);
    if (index === this.#chosen) this.#frame(pen, x, y, side, this.#colours.mark);
  }

  #frame(pen, x, y, side, style) {
    pen.strokeStyle = style;
    pen.lineWidth = 2;
    pen.strokeRect(x + 1, y + 1, Math.max(1, side - 2), Math.max(1, side - 2));
  }

  #at(event) {
    if (!this.#layout) return -1;
    const { size, columns } = this.#layout;
    const column = Math.floor(event.offsetX / size);
    const index = Math.floor(event.offsetY / size) * columns + column;
    return column < columns && index < this.#map.names.length ? index : -1;
  }

  #point(index) {
    if (index === this.#chosen) return;
    this.#chosen = index;
    this.#paint(false);
    this.#say(index < 0 ? "" : this.describe(index));
  }

  describe(index) {
    const { names, cpu, memory, flags } = this.#map;
    const parts = [`CPU ${percent(cpu[index])}`, `memory ${percent(memory[index])} requested`, ...flagWords(flags[index])];
    return `${names[index]}: ${parts.join(", ")}`;
  }

  #pick(index) {
    if (index >= 0) this.#open(this.#map.names[index]);
  }

  #key(event) {
    if (!this.#layout) return;
    const total = this.#map.names.length;
    const here = Math.max(0, this.#chosen);
    const steps = {
      ArrowRight: here + 1, ArrowLeft: here - 1, ArrowDown: here + this.#layout.columns, ArrowUp: here - this.#layout.columns,
      Home: 0, End: total - 1,
    };
    if (event.key === "Enter" || event.key === " ") this.#pick(here);
    else if (event.key in steps) this.#point(Math.max(0, Math.min(total - 1, steps[event.key])));
    else return;
    event.preventDefault();
  }
}
