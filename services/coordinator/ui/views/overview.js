// The first page: how fast, how much waits, where there is room, who leads, what was decided last.

import { get } from "../api.js";
import { fill, h } from "../dom.js";
import { amount, percent, plural } from "../format.js";
import { figuresSection } from "../figures.js";
import { mapSheet } from "../map_sheet.js";
import { Reading, together } from "../reading.js";
import { resourceWord } from "../resources.js";
import { meter, plainTable, sheet } from "../table.js";
import { DecisionTable } from "./decisions.js";
import { failoverList, memberSummary } from "./mesh.js";
import { policyLine } from "./policies.js";

const SLOW_EVERY_MS = 10_000;
const DECISIONS_SHOWN = 12;

export function overviewView({ live, go }) {
  const figures = figuresSection();
  const map = mapSheet(go);
  const leadership = h("div", { class: "body" });
  const failovers = h("div", { class: "body" });
  const policy = h("div", { class: "body" });
  const resources = h("div", { class: "body" });
  const resourceSheet = sheet("Resources", { tools: [h("a", { class: "small", href: "#/nodes" }, "By node")] }, resources);
  const decisions = new DecisionTable(live, DECISIONS_SHOWN, "Newest decisions");
  const terms = new Reading(() => get("/v1/terms?limit=4"), { everyMs: SLOW_EVERY_MS, show: (found) => fill(failovers, h("h3", {}, "Latest terms"), failoverList(found.items)) });
  const policies = new Reading(() => get("/v1/policies"), { everyMs: SLOW_EVERY_MS, show: (found) => fill(policy, policyLine(found)) });
  const element = h("div", { class: "overview" },
    h("h1", { class: "hidden-text" }, "Overview"), figures.element,
    h("div", { class: "column" }, map.element, sheet("Newest decisions", { tools: [decisions.note, h("a", { class: "small", href: "#/decisions" }, "All decisions")] }, decisions.element)),
    h("div", { class: "column" },
      sheet("Leadership", { tools: [h("a", { class: "small", href: "#/mesh" }, "Mesh")] }, leadership, failovers, terms.note),
      resourceSheet,
      sheet("Policy", { tools: [h("a", { class: "small", href: "#/policies" }, "Compare")] }, policy, policies.note)));

  function draw() {
    const overview = live.overview;
    if (!overview) return;
    figures.show(overview, live.history);
    fill(leadership, memberSummary(overview, live.connection === "no_leader"));
    resourceSheet.hidden = !overview.resources?.length;
    if (overview.resources) fill(resources, resourceTable(overview.resources));
  }
  live.history.addEventListener("steps", () => { if (element.isConnected) draw(); });
  const readings = together(map.reading, terms, policies);
  return {
    title: "Overview",
    element,
    start() {
      draw();
      decisions.start();
      readings.start();
    },
    stop() {
      readings.stop();
      decisions.stop();
    },
    moved() {
      figures.moved();
      map.moved();
    },
    overview: draw,
    connection: draw,
    failover: readings.failover,
  };
}

/** What all nodes offer, and how much of it is requested. */
function resourceTable(list) {
  return plainTable("Resources of all nodes", ["Resource", "Requested", { title: "Of", number: true }], list.map((one) => [
    [resourceWord(one.name), h("div", { class: "soft small" }, plural(one.nodes, "node"))],
    one.share === null ? h("span", { class: "soft" }, `${amount(one.name, one.requested)} of none`) : meter(one.share, percent(one.share)),
    amount(one.name, one.allocatable)]));
}
