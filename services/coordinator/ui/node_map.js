// Nodes as a map: one cell each, darker the more of it is requested, in one field or in groups. Thousands fit since it is
// one canvas, and only cells that changed are drawn again. Arrow keys walk it, Enter opens; the list says the same in rows.

import { percent } from "./format.js";
import { arrange } from "./map_layout.js";
import { FULLEST } from "./resources.js";
import { colour, onTheme } from "./theme.js";

export const DRAINED = 1;
export const UNSCHEDULABLE = 2;
export const UNOWNED = 4;
export const NOT_READY = 8;
export const PRESSURE = 16;
const CHOSEN = 32;
/** Shades up to `FULL`; what is fuller has a colour of its own. */
const SHADES = 36;
const FULL = 0.9;
const NONE = -1;

/** What a node's flags mean, in words. */
export function flagWords(flags) {
  const words = [];
  if (flags & NOT_READY) words.push("not ready");
  if (flags & PRESSURE) words.push("under pressure");
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
  metric = FULLEST;
  #canvas;
  #holder;
  #say;
  #open;
  #map = { names: [], cpu: [], memory: [], flags: [] };
  #drawn = [];
  #layout = null;
  #width = 0;
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
    new ResizeObserver(() => { if (this.#width !== this.#holder.clientWidth) this.#redraw(); }).observe(holder);
  }

  /** Share 0..1 that the colour stands for; null: the node has none of it. */
  share(index) {
    const { cpu, memory, shares } = this.#map;
    if (this.metric === "cpu") return cpu[index];
    if (this.metric === "memory") return memory[index];
    if (this.metric !== FULLEST) return shares?.[this.metric]?.[index] ?? null;
    return Math.max(cpu[index], memory[index], ...Object.values(shares ?? {}).map((list) => list[index] ?? 0));
  }

  show(map) {
    const before = this.#map;
    const same = this.#layout && map.names.length === before.names.length && sameGroups(map, before);
    this.#map = map;
    if (same) this.#paint(false);
    else this.#redraw();
  }

  setMetric(metric) {
    if (this.metric === metric) return;
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
    const made = arrange(total, width, this.#map);
    const scale = Math.min(2, devicePixelRatio || 1, 8000 / made.height);
    this.#canvas.width = made.width * scale;
    this.#canvas.height = made.height * scale;
    this.#canvas.style.width = `${made.width}px`;
    this.#canvas.style.height = `${made.height}px`;
    this.#width = width;
    return { ...made, scale };
  }

  #paint(whole) {
    if (!this.#layout) {
      this.#layout = this.#arrange();
      whole = true;
    }
    if (!this.#layout) return;
    this.#colours ??= {
      ramp: shades(), mark: colour("--ink"), alone: colour("--bad"), warn: colour("--warn"), paper: colour("--surface"), line: colour("--line"), soft: colour("--soft"),
    };
    const pen = this.#canvas.getContext("2d");
    pen.setTransform(this.#layout.scale, 0, 0, this.#layout.scale, 0, 0);
    if (whole) {
      this.#drawn = [];
      pen.clearRect(0, 0, this.#layout.width, this.#layout.height);
      this.#titles(pen);
    }
    for (let i = 0; i < this.#map.names.length; i++) {
      const share = this.share(i);
      const step = share === null ? NONE : share > FULL ? SHADES : Math.max(0, Math.round((share / FULL) * (SHADES - 1)));
      const sign = (step + 1) * 64 + this.#map.flags[i] + (i === this.#chosen ? CHOSEN : 0);
      if (this.#drawn[i] === sign) continue;
      this.#drawn[i] = sign;
      this.#cell(pen, i, step);
    }
  }

  #titles(pen) {
    pen.font = "12px Inter, system-ui, sans-serif";
    pen.fillStyle = this.#colours.soft;
    pen.textBaseline = "top";
    for (const { text, x, y, width } of this.#layout.titles) {
      let shown = text;
      while (shown.length > 2 && pen.measureText(shown).width > width) shown = `${shown.slice(0, -2)}…`;
      pen.fillText(shown, x, y + 2);
    }
  }

  #cell(pen, index, step) {
    const { size, gap, places } = this.#layout;
    const place = places[index];
    if (!place) return;
    const [x, y] = place;
    const side = size - gap;
    const flags = this.#map.flags[index];
    const { ramp, mark, alone, warn, paper, line } = this.#colours;
    pen.fillStyle = paper;
    pen.fillRect(x, y, size, size);
    if (step === NONE) {
      pen.strokeStyle = line;
      pen.lineWidth = 1;
      pen.strokeRect(x + 0.5, y + 0.5, Math.max(1, side - 1), Math.max(1, side - 1));
    } else {
      pen.fillStyle = ramp[step];
      pen.fillRect(x, y, side, side);
    }
    if (flags & NOT_READY) {
      pen.fillStyle = paper;
      pen.fillRect(x, y, side, side);
      pen.fillStyle = alone;
      const inner = Math.max(1, side / 4);
      pen.fillRect(x + inner, y + inner, Math.max(1, side - 2 * inner), Math.max(1, side - 2 * inner));
      this.#frame(pen, x, y, side, alone, 1);
    }
    if (flags & PRESSURE) {
      pen.fillStyle = warn;
      pen.strokeStyle = paper;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x + side, y);
      pen.lineTo(x + side, y + side * 0.55);
      pen.lineTo(x + side * 0.45, y);
      pen.closePath();
      pen.fill();
      if (size > 9) pen.stroke();
    }
    if (flags & (DRAINED | UNSCHEDULABLE)) {
      pen.strokeStyle = mark;
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
    if (flags & UNOWNED) this.#frame(pen, x, y, side, alone, 2);
    if (index === this.#chosen) this.#frame(pen, x, y, side, mark, 2);
  }

  #frame(pen, x, y, side, style, wide) {
    pen.strokeStyle = style;
    pen.lineWidth = wide;
    pen.strokeRect(x + wide / 2, y + wide / 2, Math.max(1, side - wide), Math.max(1, side - wide));
  }

  #at(event) {
    if (!this.#layout) return -1;
    const { size, rows, places } = this.#layout;
    const { offsetX, offsetY } = event;
    for (const row of rows) {
      const [x, y] = places[row[0]];
      if (offsetY < y || offsetY >= y + size || offsetX < x) continue;
      const column = Math.floor((offsetX - x) / size);
      if (column < row.length) return row[column];
    }
    return -1;
  }

  #point(index) {
    if (index === this.#chosen) return;
    this.#chosen = index;
    this.#paint(false);
    this.#say(index < 0 ? "" : this.describe(index));
  }

  describe(index) {
    const { names, cpu, memory, flags, shares = {}, group, groups } = this.#map;
    const more = Object.entries(shares).filter(([, list]) => Number.isFinite(list[index])).map(([name, list]) => `${name} ${percent(list[index])}`);
    const parts = [`CPU ${percent(cpu[index])}`, `memory ${percent(memory[index])}${more.length ? "" : " requested"}`, ...more.map((text, i) => (i === more.length - 1 ? `${text} requested` : text)), ...flagWords(flags[index])];
    if (group?.length) parts.push(`in ${groups[group[index]] || "no group"}`);
    return `${names[index]}: ${parts.join(", ")}`;
  }

  #pick(index) {
    if (index >= 0) this.#open(this.#map.names[index]);
  }

  #key(event) {
    if (!this.#layout) return;
    const { rows } = this.#layout;
    const order = rows.flat();
    const here = Math.max(0, this.#chosen);
    const at = order.indexOf(here);
    const row = rows.findIndex((one) => one.includes(here));
    const column = rows[row].indexOf(here);
    const below = (step) => rows[row + step]?.[Math.min(column, rows[row + step].length - 1)] ?? here;
    const steps = { ArrowRight: () => order[at + 1], ArrowLeft: () => order[at - 1], ArrowDown: () => below(1), ArrowUp: () => below(-1), Home: () => order[0], End: () => order.at(-1) };
    if (event.key === "Enter" || event.key === " ") this.#pick(here);
    else if (event.key in steps) this.#point(steps[event.key]() ?? here);
    else return;
    event.preventDefault();
  }
}

function sameGroups(map, before) {
  const [now, then] = [map.group ?? [], before.group ?? []];
  return now.length === then.length && String(map.groups ?? "") === String(before.groups ?? "") && now.every((one, i) => one === then[i]);
}
