// The first page: how fast, how much waits, where there is room, who leads, what was decided last.

import { get } from "../api.js";
import { Chart } from "../chart.js";
import { fill, h, setText } from "../dom.js";
import { count, figure, millis, percent, plural } from "../format.js";
import { NodeMap, shades, UNOWNED } from "../node_map.js";
import { sheet } from "../table.js";
import { onTheme } from "../theme.js";
import { DecisionTable } from "./decisions.js";
import { failoverList, memberSummary } from "./mesh.js";
import { policyLine } from "./policies.js";

const MAP_EVERY_MS = 3000;
const SLOW_EVERY_MS = 10_000;
const DECISIONS_SHOWN = 12;
const HINT = "Point at a node, or walk the map with the arrow keys; Enter opens one.";

export function overviewView({ live, go }) {
  const figures = [
    panel("Placed per second", [{ colour: "--chart-1", of: (s) => s.placed, fill: true }], (o, history) => ({
      value: figure(o.rates?.pods_per_s_10s), beside: `${count(o.pods?.bound)} bound by this leader · ${count(o.rates?.decisions_per_s_10s)} decisions/s`, told: range(history, (s) => s.placed, figure),
    })),
    panel("Waiting", [
      { colour: "--chart-1", of: (s) => s.queue.active, fill: true }, { colour: "--chart-2", of: (s) => s.queue.backoff, fill: true },
      { colour: "--chart-3", of: (s) => s.queue.unschedulable, fill: true }, { colour: "--chart-4", of: (s) => s.queue.in_flight, fill: true },
    ], (o) => ({
      value: count(waiting(o.queue)),
      beside: keys([["k1", o.queue?.active, "active"], ["k2", o.queue?.backoff, "backoff"], ["k3", o.queue?.unschedulable, "unschedulable"], ["k4", o.queue?.in_flight, "in flight"]]),
      told: "waiting pods by place in the queue",
    }), true),
    panel("Pod latency, p99", [{ colour: "--chart-1", of: (s) => s.p99, fill: true }, { colour: "--chart-4", of: (s) => s.p50 }], (o, history) => ({
      value: millis(o.latency_ms?.p99), beside: `p50 ${millis(o.latency_ms?.p50)} · round p99 ${millis(o.round_ms?.p99)}`, told: range(history, (s) => s.p99, millis),
    })),
    panel("Conflicts", [{ colour: "--chart-3", of: (s) => s.conflicts, fill: true }, { colour: "--chart-2", of: (s) => s.refusals }], (o) => ({
      value: count(o.conflicts), beside: `${plural(o.refusals, "refusal")} · since this leader began`, told: "conflicts and refusals per second",
    })),
  ];
  const map = mapSheet(go);
  const leadership = h("div", { class: "body" });
  const failovers = h("div", { class: "body" });
  const policy = h("div", { class: "body" });
  const decisions = new DecisionTable(live, DECISIONS_SHOWN, "Newest decisions");
  const element = h("div", { class: "overview" },
    h("h1", { class: "hidden-text" }, "Overview"),
    h("section", { class: "figures wide", "aria-label": "Figures of the last five minutes" }, figures.map((one) => one.element)),
    h("div", { class: "column" }, map.element, sheet("Newest decisions", { tools: [decisions.note, h("a", { class: "small", href: "#/decisions" }, "All decisions")] }, decisions.element)),
    h("div", { class: "column" },
      sheet("Leadership", { tools: [h("a", { class: "small", href: "#/mesh" }, "Mesh")] }, leadership, failovers),
      sheet("Policy", { tools: [h("a", { class: "small", href: "#/policies" }, "Compare")] }, policy)));

  let timers = [];
  async function slow() {
    const [terms, found] = await Promise.all([get("/v1/terms?limit=4").catch(() => null), get("/v1/policies").catch(() => null)]);
    if (terms) fill(failovers, h("h3", {}, "Latest terms"), failoverList(terms.items));
    if (found) fill(policy, policyLine(found));
  }
  function draw() {
    const overview = live.overview;
    if (!overview) return;
    for (const one of figures) one.show(overview, live.history);
    fill(leadership, memberSummary(overview, live.connection === "no_leader"));
  }
  return {
    title: "Overview",
    element,
    start() {
      draw();
      decisions.start();
      map.refresh().then(slow);
      timers = [setInterval(() => visible() && map.refresh(), MAP_EVERY_MS), setInterval(() => visible() && slow(), SLOW_EVERY_MS)];
    },
    stop() {
      timers.forEach(clearInterval);
      decisions.stop();
    },
    overview: draw,
    connection: draw,
    failover: () => { slow(); map.refresh(); },
  };
}

const visible = () => !document.hidden;
const waiting = (queue) => (queue ? queue.active + queue.backoff + queue.unschedulable + queue.in_flight : NaN);

function range(history, of, words) {
  const values = history.map(of).filter(Number.isFinite);
  return values.length ? `between ${words(Math.min(...values))} and ${words(Math.max(...values))} in the last five minutes` : "no figures yet";
}

function keys(list) {
  return h("span", { class: "keys" }, list.filter(([, value]) => value).map(([key, value, word]) => h("span", {}, h("i", { class: `key ${key}`, "aria-hidden": "true" }), `${count(value)} ${word}`)));
}

/** One figure with its chart; `read(overview, history)` gives its value, what stands beside it, and the chart in words. */
function panel(label, series, read, stacked = false) {
  const value = h("p", { class: "value" });
  const beside = h("div", { class: "beside" });
  const canvas = h("canvas", { role: "img" });
  const chart = new Chart(canvas, { series, stacked });
  const element = h("figure", { class: "figure" }, h("figcaption", { class: "label" }, label), value, beside, canvas);
  let besideText = "";
  return {
    element,
    show(overview, history) {
      const { value: shown, beside: more, told } = read(overview, history);
      setText(value, shown);
      const text = more instanceof Node ? more.textContent : more;
      if (text !== besideText) fill(beside, more);
      besideText = text;
      const words = `${label}: ${shown}; ${told}`;
      if (canvas.getAttribute("aria-label") !== words) canvas.setAttribute("aria-label", words);
      chart.draw(history);
    },
  };
}

function mapSheet(go) {
  const pointed = h("span", { class: "pointed", role: "status" }, HINT);
  const told = h("span", {});
  const canvas = h("canvas", { tabindex: "0", role: "application", "aria-roledescription": "map of nodes", "aria-label": "Nodes: arrow keys walk, Enter opens one" });
  const holder = h("div", { class: "map-holder" }, canvas);
  const map = new NodeMap(canvas, { holder, say: (text) => setText(pointed, text || HINT), open: (name) => go(`#/nodes/${encodeURIComponent(name)}`) });
  const choices = [["fuller", "Fuller of both"], ["cpu", "CPU"], ["memory", "Memory"]].map(([metric, word]) =>
    h("button", { type: "button", "aria-pressed": String(metric === map.metric), onclick: (event) => {
      for (const one of choices) one.setAttribute("aria-pressed", String(one === event.currentTarget));
      map.setMetric(metric);
    } }, word));
  const ramp = h("canvas", { "aria-hidden": "true", width: "132", height: "10" });
  const paintRamp = () => {
    const pen = ramp.getContext("2d");
    shades().forEach((shade, step, all) => {
      pen.fillStyle = shade;
      pen.fillRect(step < all.length - 1 ? step * 3.3 : 118.8, 0, 14, 10);
    });
  };
  onTheme(paintRamp);
  paintRamp();
  const element = sheet("Nodes", { tools: [h("div", { class: "segments", role: "group", "aria-label": "What the colour shows" }, choices), h("a", { class: "small", href: "#/nodes" }, "As a table")] },
    h("div", { class: "body" }, holder,
      h("div", { class: "map-under" }, pointed, told, h("span", { class: "ramp" }, "0", ramp, "100 % requested"), h("span", {}, "╱ unschedulable · ╳ drained · framed: no agent"))));
  return {
    element,
    async refresh() {
      let found;
      try {
        found = await get("/v1/nodes/map");
      } catch {
        return;
      }
      map.show(found);
      performance.mark("nodes-drawn");
      const total = found.names.length;
      const alone = found.flags.filter((flags) => flags & UNOWNED).length;
      const mean = (list) => percent(list.reduce((sum, value) => sum + value, 0) / (total || 1));
      setText(told, total ? `${plural(total, "node")} · requested on average: CPU ${mean(found.cpu)}, memory ${mean(found.memory)}${alone ? ` · ${count(alone)} without an agent` : ""}` : "No nodes yet.");
    },
  };
}
