// The figures at the top: a value, what belongs to it, and its chart over five minutes or an hour.

import { keep, state } from "./address.js";
import { Chart } from "./chart.js";
import { fill, h, setText } from "./dom.js";
import { count, figure, millis, percent, plural } from "./format.js";
import { RANGES } from "./history.js";
import { resourceWord } from "./resources.js";

const RANGE_WORDS = { "5m": "5 minutes", "1h": "1 hour" };

/** Of a queue as the leader tells it; pods behind a gate wait for somebody else. */
const waiting = (queue) => (queue ? queue.active + queue.backoff + queue.unschedulable + queue.in_flight : NaN);

const PANELS = [
  {
    label: "Placed per second", words: figure,
    series: [{ name: "placed/s", colour: "--chart-1", of: (s) => s.placed, fill: true }, { name: "evicted/s", colour: "--chart-3", of: (s) => s.evicted }],
    read: (o) => ({ value: figure(o.rates?.pods_per_s_10s), beside: placedWords(o) }),
  },
  {
    label: "Waiting", words: count, stacked: true,
    series: [["active", "--chart-1"], ["backoff", "--chart-2"], ["unschedulable", "--chart-3"], ["in_flight", "--chart-4"]].map(([place, colour]) => ({ name: place.replace("_", " "), colour, of: (s) => s.queue[place], fill: true })),
    read: (o) => ({
      value: h("a", { href: "#/pending", title: "Why pending" }, count(waiting(o.queue))),
      beside: keys([["k1", o.queue?.active, "active"], ["k2", o.queue?.backoff, "backoff"], ["k3", o.queue?.unschedulable, "unschedulable"], ["k4", o.queue?.in_flight, "in flight"], ["", o.queue?.gated, "gated"]]),
    }),
  },
  {
    label: "Pod latency, p99", words: millis,
    series: [{ name: "p99", colour: "--chart-1", of: (s) => s.p99, fill: true }, { name: "p50", colour: "--chart-4", of: (s) => s.p50 }],
    read: (o) => ({ value: millis(o.latency_ms?.p99), beside: `p50 ${millis(o.latency_ms?.p50)} · round p99 ${millis(o.round_ms?.p99)} · ${plural(o.conflicts, "conflict")}, ${plural(o.refusals, "refusal")}` }),
  },
  {
    label: "Requested of what there is", words: percent, floor: 1, most: 1,
    series: [{ name: "CPU", colour: "--chart-1", of: (s) => s.alloc?.cpu_millis, fill: true }, { name: "memory", colour: "--chart-2", of: (s) => s.alloc?.memory_bytes }, { name: "GPU", colour: "--chart-3", of: (s) => gpuShare(s.alloc) }],
    read: (o) => {
      const found = o.resources ?? [];
      const of = (name) => found.find((one) => one.name === name)?.share;
      const gpu = found.find((one) => /gpu/i.test(one.name) && one.share !== null);
      return {
        value: percent(of("cpu_millis")),
        beside: keys([["k1", true, "CPU"], ["k2", of("memory_bytes") !== undefined, `memory ${percent(of("memory_bytes"))}`], ["k3", gpu, gpu ? `${resourceWord(gpu.name)} ${percent(gpu.share)}` : ""]], false),
      };
    },
  },
];

/** {element, show(overview, history), moved()} */
export function figuresSection() {
  const panels = PANELS.map(panel);
  const range = () => (state("range") in RANGES ? state("range") : "5m");
  const choices = Object.entries(RANGE_WORDS).map(([value, words]) => h("button", { type: "button", onclick: () => { keep({ range: value === "5m" ? "" : value }); mark(); again(); } }, words));
  const mark = () => choices.forEach((one, i) => one.setAttribute("aria-pressed", String(Object.keys(RANGE_WORDS)[i] === range())));
  let last = null;
  function again() {
    if (!last) return;
    const [overview, history] = last;
    const samples = history.samples(range());
    for (const one of panels) one.show(overview, samples, range());
  }
  mark();
  return {
    element: h("section", { class: "wide", "aria-label": "Figures over time" },
      h("div", { class: "figures-head" }, h("div", { class: "segments", role: "group", "aria-label": "How far back" }, choices)),
      h("div", { class: "figures" }, panels.map((one) => one.element))),
    show(overview, history) {
      last = [overview, history];
      again();
    },
    moved() {
      mark();
      again();
    },
  };
}

function placedWords(o) {
  const term = o.pods?.bound_in_term;
  const running = Number.isFinite(o.pods?.running) ? ` · ${count(o.pods.running)} running` : "";
  return term === undefined ? `${count(o.pods?.bound)} bound by this leader · ${count(o.rates?.decisions_per_s_10s)} decisions/s` : `${count(o.pods.bound)} bound, ${count(term)} by this leader${running}`;
}

function gpuShare(alloc) {
  for (const [name, share] of Object.entries(alloc ?? {})) if (/gpu/i.test(name) && share !== null) return share;
  return null;
}

function keys(list, numbers = true) {
  return h("span", { class: "keys" }, list.filter(([, value]) => value).map(([key, value, word]) => h("span", {}, key ? h("i", { class: `key ${key}`, "aria-hidden": "true" }) : null, numbers ? `${count(value)} ${word}` : word)));
}

function panel({ label, series, words, stacked = false, floor = 1, most, read }) {
  const value = h("p", { class: "value" });
  const beside = h("div", { class: "beside" });
  const canvas = h("canvas", { role: "img", class: "plot" });
  const pointed = h("p", { class: "plotted small", "aria-live": "polite" });
  const chart = new Chart(canvas, { series, stacked, floor, most, words, say: (text) => { setText(pointed, text); pointed.hidden = !text; beside.hidden = Boolean(text); } });
  pointed.hidden = true;
  const element = h("figure", { class: "figure" }, h("figcaption", { class: "label" }, label), value, beside, pointed, canvas);
  let shown = "";
  return {
    element,
    show(overview, samples, range) {
      const { value: figureShown, beside: more } = read(overview);
      if (figureShown instanceof Node) { if (value.textContent !== figureShown.textContent) fill(value, figureShown); }
      else setText(value, figureShown);
      const text = more instanceof Node ? more.textContent : more;
      if (text !== shown) fill(beside, more);
      shown = text;
      const values = samples.map(series[0].of).filter(Number.isFinite);
      const range_words = values.length ? `between ${words(Math.min(...values))} and ${words(Math.max(...values))}` : "no figures yet";
      const told = `${label}: ${value.textContent}; ${stacked ? "by place in the queue" : range_words} in the last ${RANGE_WORDS[range]}`;
      if (canvas.getAttribute("aria-label") !== told) canvas.setAttribute("aria-label", told);
      chart.draw(samples, RANGES[range]);
    },
  };
}
