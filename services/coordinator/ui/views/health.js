// Health: the leader's verdict on itself with each finding, what to do about it, and the figures that it rests on.

import { documentAt } from "../address.js";
import { get } from "../api.js";
import { Chart } from "../chart.js";
import { fill, h, setText } from "../dom.js";
import { clock, count, millis, percent, seconds, since } from "../format.js";
import { RANGES } from "../history.js";
import { measured, shortOf, verdictOf } from "../health.js";
import { Reading, together } from "../reading.js";
import { pairs, sheet } from "../table.js";

const EVERY_MS = 2000;
const WORDS = { ok: "Healthy", degraded: "Degraded", bad: "In trouble", unknown: "Not known" };
const TAGS = { ok: "is-good", degraded: "is-warn", bad: "is-bad" };

export function healthView({ live }) {
  const verdict = h("div", { class: "body verdict" });
  const found = h("div", { class: "column" });
  const figures = h("div", { class: "body" });
  const charts = [
    chart("Longest turn of the leader’s loop", [{ name: "longest turn", colour: "--chart-1", of: (s) => s.turn, fill: true }], millis),
    chart("Waiting to be handled", [{ name: "events", colour: "--chart-2", of: (s) => s.events, fill: true }, { name: "writes", colour: "--chart-3", of: (s) => s.writes }], count),
    chart("Share of a core that the loop is busy", [{ name: "busy", colour: "--chart-1", of: (s) => s.busy, fill: true }], percent, 0.1),
  ];
  const reading = new Reading(() => get("/v1/health"), { everyMs: EVERY_MS, show: draw });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Health")), reading.note,
    h("div", { class: "overview" },
      h("div", { class: "column" }, sheet("Verdict", {}, verdict), found),
      h("div", { class: "column" }, sheet("What it rests on", {}, figures), sheet("The last hour", {}, charts.map((one) => one.element)))));

  function draw() {
    const seen = verdictOf(live);
    const answer = reading.data;
    const fresh = answer && !reading.error;
    const level = ["No leader", "No answer"].includes(seen.words) || !fresh ? seen.level : answer.verdict;
    const list = fresh ? answer.findings : seen.findings;
    fill(verdict, h("p", { class: "title" }, h("span", { class: `tag ${TAGS[level] ?? ""}` }, WORDS[level] ?? level), " ", saying(level, seen, list)),
      answer?.since ? h("p", { class: "soft small" }, `so since ${clock(answer.since)}, ${since(answer.since)} ago`) : null);
    fill(found, list.map(finding));
    found.hidden = !list.length;
    if (answer?.measured) fill(figures, measures(answer.measured));
    else fill(figures, h("p", { class: "soft" }, reading.error ? "The leader has not said yet." : "Reading …"));
    const steps = live.history.steps();
    for (const one of charts) one.show(steps);
  }
  return { title: "Health", element, ...together(reading), overview: draw, connection: draw };
}

function saying(level, seen, list) {
  if (seen.level === "bad" && !list.length) return `${seen.words}.`;
  if (level === "ok") return "The leader keeps up; nothing waits longer than it should.";
  if (level === "unknown") return "This leader does not say how it is: it is of an older version, or has only begun.";
  return list.length === 1 ? "One finding." : `${count(list.length)} findings, the worst first.`;
}

/** One finding: what is so, since when, against which bound, and what to do. */
export function finding(one) {
  return h("section", { class: "sheet finding", "aria-label": shortOf(one) },
    h("header", {}, h("h2", {}, shortOf(one)), h("span", { class: `tag ${TAGS[one.severity] ?? "is-warn"}` }, one.severity === "bad" ? "bad" : "degraded")),
    h("div", { class: "body" }, h("p", {}, one.message), one.remedy ? h("p", {}, h("b", {}, "What to do: "), one.remedy) : null,
      pairs([
        ["Since", one.since ? `${clock(one.since)}, ${since(one.since)} ago` : null],
        ["Measured", Number.isFinite(one.value) ? `${measured(one.value, one.unit)}${Number.isFinite(one.threshold) ? ` (threshold ${measured(one.threshold, one.unit)})` : ""}` : null],
        ["Runbook", one.runbook ? h("a", { href: documentAt(one.runbook), target: "_blank", rel: "noopener" }, one.alert || one.runbook) : null],
        ["Alert", one.alert ? h("code", {}, one.alert) : null],
      ])));
}

function measures(of) {
  const waiting = (number, oldest_s) => (Number.isFinite(number) ? `${count(number)}${number && Number.isFinite(oldest_s) ? `, the oldest for ${seconds(oldest_s)}` : ""}` : null);
  const turn = (value_s) => (Number.isFinite(value_s) ? millis(value_s * 1000) : null);
  return pairs([
    ["Longest turn", [turn(of.turn_longest_s), turn(of.turn_last_s) && `the last ${turn(of.turn_last_s)}`].filter(Boolean).join(", ")],
    ["Events waiting", waiting(of.events_waiting, of.events_oldest_s)],
    ["Writes queued", waiting(of.writes_queued, of.writes_oldest_s)],
    ["Plans at the binder", waiting(of.plans_open, of.plans_oldest_s)],
    ["Renewal of the lease", turn(of.etcd_renewal_s)],
    ["Agents", Number.isFinite(of.agents) ? `${count(of.agents)}${of.agents_suspect ? `, ${count(of.agents_suspect)} suspected` : ""}` : null],
  ]);
}

function chart(label, series, words, floor = 1) {
  const canvas = h("canvas", { role: "img", class: "plot" });
  const at = h("p", { class: "plotted soft small" });
  const drawn = new Chart(canvas, { series, words, floor, say: (text) => setText(at, text) });
  return {
    element: h("figure", { class: "body" }, h("figcaption", { class: "small" }, label), canvas, at),
    show(samples) {
      const values = samples.map(series[0].of).filter(Number.isFinite);
      canvas.setAttribute("aria-label", `${label}: ${values.length ? `at most ${words(Math.max(...values))} in the last hour` : "no figures yet"}`);
      drawn.draw(samples, RANGES["1h"]);
    },
  };
}
