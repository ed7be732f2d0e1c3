// The Gantt of training jobs over GPUs: a row per job, as high as it has GPUs; or a row per node in use, a bar per worker
// in the colour of its job, with a legend. Faint bars lead to the predicted end. It is a picture: the table beside it says
// the same in words.

import { fill, h } from "./dom.js";
import { colouredJobs, jobRows, MOST_LANES, nodeRows } from "./gantt_layout.js";
import { clock, count, exact, plural } from "./format.js";
import { learn, nodeName } from "./names.js";

const LANE_PX = 9;
const JOB_PX = 16;
const COLOURS = 6;
const AHEAD = 0.25;
/** Beyond these a browser has too much to draw: what uses most comes first. */
const MOST_ROWS = 128;

/** `choose(job)`: somebody clicked a bar of it. */
export class Gantt {
  constructor({ choose }) {
    this.#choose = choose;
    this.rows = h("div", { class: "gantt", role: "img", "aria-label": "Jobs over GPUs" });
    this.axis = h("div", { class: "gantt-axis soft small", "aria-hidden": "true" });
    this.legend = h("p", { class: "keys small" });
    this.said = h("p", { class: "soft small" });
    this.element = h("div", { class: "body" }, this.legend, this.rows, this.axis, this.said);
  }

  #choose;

  /** `range_s`: how far back; `by`: "job" or "node". */
  show(board, range_s, by) {
    learn(Object.keys(board.nodes));
    const from = board.now - range_s;
    const to = board.now + range_s * AHEAD;
    const now = (board.now - from) / (to - from);
    const rows = by === "node" ? nodeRows(board, from, to) : jobRows(board, from, to);
    const colours = colouredJobs(board, from, to, COLOURS);
    const drawn = rows.slice(0, MOST_ROWS);
    fill(this.rows, drawn.map((row) => (by === "node" ? this.#node(row, colours, now) : this.#job(row, now))));
    fill(this.legend, by === "node" ? legendOf(colours, rows) : [key("1", "GPUs that a job has, full where it has most"), key("1", "to its predicted end", true)]);
    const running = board.jobs.filter((job) => job.workers > 0).length;
    this.rows.setAttribute("aria-label", `Jobs over GPUs: ${plural(running, "job")} on ${plural(Object.keys(board.nodes).length, "node")}`);
    const here = h("span", { class: "gantt-here" }, clock(board.now * 1000));
    here.style.left = `${now * 100}%`;
    fill(this.axis, h("span", {}, clock(from * 1000)), here, h("span", {}, clock(to * 1000)));
    fill(this.said, [
      board.since > from ? `Known since ${clock(board.since * 1000)}, when this leader began.` : "",
      rows.length ? "" : "No job had GPUs in this time.",
      rows.length > drawn.length ? `${count(rows.length - drawn.length)} more that use less are not drawn.` : "",
      by === "node" ? idleWords(board, rows) : waitingWords(board),
    ].filter(Boolean).join(" "));
  }

  #job(row, now) {
    const bars = row.bars.map((bar) => {
      const title = bar.expected ? `${row.name} may end at ${clock(bar.ended * 1000)}` : `${row.name}: ${gpuWords(bar.gpus)} from ${clock(bar.began * 1000)} to ${clock(bar.ended * 1000)}`;
      return this.#bar(bar, row.name, "1", title, JOB_PX * (1 - bar.height), JOB_PX * bar.height);
    });
    return line(h("span", { title: row.name }, row.name), row.now ? gpuWords(row.now) : "", bars, JOB_PX, now);
  }

  #node(row, colours, now) {
    const bars = row.bars.map((bar) => {
      const { span } = bar;
      const title = bar.expected ? `${span.job} may end at ${clock(bar.job.ends * 1000)}` : `${span.job}, ${span.pod}: ${gpuWords(span.gpus)} since ${clock(span.began * 1000)}${span.ended ? ` until ${clock(span.ended * 1000)}` : ""}`;
      return this.#bar(bar, span.job, colours.get(span.job) ?? "other", title, Math.min(bar.lane, MOST_LANES - 1) * LANE_PX, Math.min(bar.lanes, MOST_LANES) * LANE_PX - 1);
    });
    return line(nodeName(row.node), row.gpus ? gpuWords(row.gpus) : "", bars, row.lanes * LANE_PX, now);
  }

  #bar({ left, width, expected }, job, colour, title, top, height) {
    const bar = h("i", { class: `gantt-bar is-${colour}${expected ? " is-expected" : ""}`, title, onclick: () => this.#choose(job) });
    bar.style.left = `${left * 100}%`;
    bar.style.width = `${width * 100}%`;
    bar.style.top = `${top}px`;
    bar.style.height = `${height}px`;
    return bar;
  }
}

const gpuWords = (gpus) => `${exact(gpus)} ${gpus === 1 ? "GPU" : "GPUs"}`;

function line(name, beside, bars, height, now) {
  const mark = h("span", { class: "gantt-now", "aria-hidden": "true" });
  mark.style.left = `${now * 100}%`;
  const place = h("div", { class: "gantt-bars" }, mark, bars);
  place.style.height = `${height}px`;
  return h("div", { class: "gantt-row" }, h("span", { class: "gantt-name small" }, name), place, h("span", { class: "gantt-gpus soft small" }, beside));
}

function key(colour, words, expected = false) {
  return h("span", {}, h("i", { class: `key gantt-bar is-${colour}${expected ? " is-expected" : ""}`, "aria-hidden": "true" }), words);
}

function legendOf(colours, rows) {
  const others = new Set(rows.flatMap((row) => row.bars.map((bar) => bar.span.job)).filter((job) => !colours.has(job))).size;
  return [...[...colours].map(([job, colour]) => key(colour, job)), others ? key("other", plural(others, "other job")) : null, key("1", "to the predicted end", true)];
}

/** Nodes without a row, in one sentence. */
function idleWords(board, rows) {
  const used = new Set(rows.map((row) => row.node));
  const idle = Object.entries(board.nodes).filter(([node]) => !used.has(node));
  return idle.length ? `${plural(idle.length, "node")} with ${gpuWords(idle.reduce((sum, [, gpus]) => sum + gpus, 0))} had no job in this time.` : "";
}

function waitingWords(board) {
  const waiting = board.jobs.filter((job) => job.phase === "Pending").length;
  return waiting ? `${plural(waiting, "job")} ${waiting === 1 ? "waits" : "wait"}: the table says why.` : "";
}
