// The figures at the top: a value, what belongs to it, and its chart over five minutes or an hour.

import { keep, state } from "./address.js";
import { Chart } from "./chart.js";
import { fill, h, setText } from "./dom.js";
import { count, figure, millis, percent, plural } from "./format.js";
import { RANGES } from "./history.js";
import { fullest, fullestDevice, resourceWord } from "./resources.js";
import { PLACES, placeWords, waiting, waitingBy } from "./waiting.js";

const keyOf = (one) => ({ cpu_millis: "k1", memory_bytes: "k2" })[one.name] ?? (one.device ? "k3" : "");
const RANGE_WORDS = { "5m": "5 minutes", "1h": "1 hour" };

const HELD = "From when the pod could be placed to its Binding, over the last five minutes. Time for which a quota, its group or a gate held it does not count.";
const colourOf = (place) => `--chart-${PLACES.indexOf(place) + 1}`;

const PANELS = [
  {
    label: "Placed per second", words: figure,
    series: [{ name: "placed/s", colour: "--chart-1", of: (s) => s.placed, fill: true }, { name: "evicted/s", colour: "--chart-3", of: (s) => s.evicted }],
    read: (o) => ({ value: figure(o.rates?.pods_per_s_10s), beside: placedWords(o) }),
  },
  {
    label: "Waiting", words: count, stacked: true,
    series: PLACES.map((place) => ({ name: placeWords(place), colour: colourOf(place), of: (s) => s.queue[place], fill: true })),
    read: (o) => ({
      value: h("a", { href: "#/pending", title: "Why pending" }, count(waiting(o.queue))),
      beside: keys(waitingBy(o.queue).map(([place, number]) => [`k${PLACES.indexOf(place) + 1}`, number, placeWords(place)])),
    }),
  },
  {
    label: "Pod latency, p99", hint: HELD, words: millis,
    series: [{ name: "p99", colour: "--chart-1", of: (s) => s.p99, fill: true }, { name: "p50", colour: "--chart-4", of: (s) => s.p50 }],
    read: (o) => ({ value: latency(o.latency_ms?.p99), beside: `p50 ${latency(o.latency_ms?.p50)} in 5 min, time held not counted · round p99 ${latency(o.round_ms?.p99)} · ${plural(o.conflicts, "conflict")}, ${plural(o.refusals, "refusal")}` }),
  },
  {
    label: "Requested, fullest resource", words: percent, floor: 1, most: 1,
    series: [
      { name: "CPU", colour: "--chart-1", of: (s) => s.alloc?.cpu_millis, fill: true }, { name: "memory", colour: "--chart-2", of: (s) => s.alloc?.memory_bytes },
      { name: (s) => fullestDevice(s.alloc)?.name, colour: "--chart-3", of: (s) => fullestDevice(s.alloc)?.share },
    ],
    read: (o) => {
      const [top, ...others] = requested(o.resources ?? []);
      return {
        value: top ? h("span", {}, percent(top.share), h("small", {}, keyed(keyOf(top), resourceWord(top.name)))) : "–",
        beside: keys(others.map((one) => [keyOf(one), true, `${resourceWord(one.name)} ${percent(one.share)}`]), false),
      };
    },
  },
];

/** What is told of resources, the fullest first: it, CPU, memory and the fullest that only some nodes have. */
export function requested(resources) {
  const shares = Object.fromEntries(resources.map((one) => [one.name, one.share]));
  const device = fullestDevice(shares)?.name;
  const top = fullest(resources)?.name;
  const told = [...new Set([top, "cpu_millis", "memory_bytes", device])].filter((name) => Number.isFinite(shares[name]));
  return told.map((name) => ({ name, share: shares[name], device: name === device }));
}

/** Milliseconds; the leader tells 0 where nothing came in its window. */
export function latency(ms) {
  return ms > 0 ? millis(ms) : "–";
}

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

function keys(list, numbers = true) {
  return h("span", { class: "keys" }, list.filter(([, value]) => value).map(([key, value, word]) => h("span", {}, keyed(key, numbers ? `${count(value)} ${word}` : word))));
}

/** Words behind the colour that the chart has for them. */
function keyed(key, words) {
  return [key ? h("i", { class: `key ${key}`, "aria-hidden": "true" }) : null, words];
}

function panel({ label, hint, series, words, stacked = false, floor = 1, most, read }) {
  const value = h("p", { class: "value" });
  const beside = h("div", { class: "beside" });
  const canvas = h("canvas", { role: "img", class: "plot" });
  const pointed = h("p", { class: "plotted small", "aria-live": "polite" });
  const chart = new Chart(canvas, { series, stacked, floor, most, words, say: (text) => { setText(pointed, text); pointed.hidden = !text; beside.hidden = Boolean(text); } });
  pointed.hidden = true;
  const element = h("figure", { class: "figure" }, h("figcaption", { class: "label", title: hint }, label), value, beside, pointed, canvas);
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
