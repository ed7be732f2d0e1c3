// The Gantt of training jobs over GPUs: a row per node, a bar per worker, in the colour of its job; faint bars lead to the
// predicted end. It is a picture: the table beside it says the same in words.

import { fill, h } from "./dom.js";
import { colourOf, ganttRows, MOST_LANES } from "./gantt_layout.js";
import { clock, count, plural } from "./format.js";

const LANE_PX = 9;
const COLOURS = 6;
const AHEAD = 0.25;
/** Beyond these a browser has too much to draw: the nodes with jobs come first. */
const MOST_ROWS = 128;

/** `choose(job)`: somebody clicked a bar of it. */
export class Gantt {
  constructor({ choose }) {
    this.#choose = choose;
    this.rows = h("div", { class: "gantt", role: "img", "aria-label": "Jobs over GPUs" });
    this.axis = h("div", { class: "gantt-axis soft small", "aria-hidden": "true" });
    this.said = h("p", { class: "soft small" });
    this.element = h("div", { class: "body" }, this.rows, this.axis, this.said);
  }

  #choose;

  /** `range_s`: how far back. */
  show(board, range_s) {
    const from = board.now - range_s;
    const to = board.now + range_s * AHEAD;
    const rows = ganttRows(board, from, to);
    const shown = rows.filter((row) => row.bars.length).concat(rows.filter((row) => !row.bars.length)).slice(0, MOST_ROWS);
    const names = new Set(shown.map((row) => row.node));
    const now = (board.now - from) / (to - from);
    fill(this.rows, rows.filter((row) => names.has(row.node)).map((row) => this.#row(row, now)));
    const running = board.jobs.filter((job) => job.workers > 0).length;
    this.rows.setAttribute("aria-label", `Jobs over GPUs: ${plural(running, "job")} on ${plural(rows.length, "node")}`);
    const here = h("span", { class: "gantt-here" }, clock(board.now * 1000));
    here.style.left = `${now * 100}%`;
    fill(this.axis, h("span", {}, clock(from * 1000)), here, h("span", {}, clock(to * 1000)));
    const kept = board.since > from ? `Known since ${clock(board.since * 1000)}, when this leader began. ` : "";
    const left = rows.length > shown.length ? `${count(rows.length - shown.length)} more nodes are not drawn. ` : "";
    fill(this.said, kept, left, "Faint bars lead to the predicted end.");
  }

  #row(row, now) {
    const line = h("span", { class: "gantt-now", "aria-hidden": "true" });
    line.style.left = `${now * 100}%`;
    const bars = h("div", { class: "gantt-bars" }, line, row.bars.map((bar) => this.#bar(bar)));
    bars.style.height = `${row.lanes * LANE_PX}px`;
    return h("div", { class: "gantt-row" }, h("span", { class: "gantt-name small" }, nodeName(row.node)), bars);
  }

  #bar({ span, job, lane, lanes, left, width, expected }) {
    const told = `${span.job}, ${span.pod}: ${span.gpus} GPUs since ${clock(span.began * 1000)}${span.ended ? ` until ${clock(span.ended * 1000)}` : ""}`;
    const bar = h("i", { class: `gantt-bar is-${colourOf(span.job, COLOURS)}${expected ? " is-expected" : ""}`, title: expected ? `${span.job} may end at ${clock(job.ends * 1000)}` : told, onclick: () => this.#choose(span.job) });
    bar.style.left = `${left * 100}%`;
    bar.style.width = `${width * 100}%`;
    bar.style.top = `${Math.min(lane, MOST_LANES - 1) * LANE_PX}px`;
    bar.style.height = `${Math.min(lanes, MOST_LANES) * LANE_PX - 1}px`;
    return bar;
  }
}
