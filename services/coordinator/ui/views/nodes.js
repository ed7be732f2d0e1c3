// The nodes as a list: what the map shows, in rows, with their state, zone, pool, agent and use of every resource.

import { keep, state } from "../address.js";
import { getAll } from "../api.js";
import { h, setText } from "../dom.js";
import { amount, bytes, cores, count, percent, plural } from "../format.js";
import { Listing } from "../listing.js";
import { learn, nodeLink } from "../names.js";
import { nodeState, stateWords } from "../node_panel.js";
import { Reading, together } from "../reading.js";
import { inResourceOrder, isExtended, resourceWord, share, withDevices } from "../resources.js";
import { meter, sheet } from "../table.js";

const STATES = [["ready", "ready"], ["not_ready", "not ready"], ["pressure", "under pressure"], ["cordoned", "cordoned"], ["drained", "drained"], ["unowned", "without an agent"]];
const IS = {
  ready: (node) => node.ready !== false, not_ready: (node) => node.ready === false, pressure: (node) => Boolean(node.pressure?.length),
  cordoned: (node) => node.cordoned ?? (!node.schedulable && !node.drained), drained: (node) => Boolean(node.drained), unowned: (node) => !node.agent,
};
const podsOf = (node) => (Array.isArray(node.pods) ? node.pods.length : node.pods);
const extended = (node) => inResourceOrder(Object.keys(node.allocatable ?? {}).filter((name) => isExtended(name) && node.allocatable[name]));

export function nodesView() {
  const counts = h("p", { class: "soft" });
  const requested = (title, name, words) => ({
    title, key: resourceWord(name).toLowerCase(), bar: true, sort: (node) => share(node, name),
    cell: (node) => meter(share(node, name), `${percent(share(node, name) ?? NaN)} of ${words(node.allocatable?.[name])}`),
  });
  const list = new Listing({
    caption: "Nodes",
    columns: [
      { title: "Node", head: true, cell: (node) => nodeLink(node.name, node.name), sort: (node) => node.name },
      { title: "State", cell: nodeState, sort: (node) => stateWords(node).join(" ") || null },
      requested("CPU requested", "cpu_millis", cores),
      requested("Memory requested", "memory_bytes", bytes),
      { title: "GPUs and others", key: "extended", bar: true, sort: (node) => Math.max(-1, ...extended(node).map((name) => share(node, name))), cell: (node) => devices(node) },
      { title: "In use", key: "used", number: true, sort: (node) => node.used?.cpu_millis, cell: (node) => (node.used ? `${cores(node.used.cpu_millis)}, ${bytes(node.used.memory_bytes)}` : "–") },
      { title: "Lent", key: "lent", number: true, sort: (node) => node.lent?.cpu_millis, cell: (node) => (node.lent ? `${cores(node.lent.cpu_millis)}, ${bytes(node.lent.memory_bytes)}` : "–") },
      { title: "Pods", number: true, cell: (node) => count(podsOf(node)), sort: podsOf },
      { title: "Zone", cell: (node) => node.zone || "–", sort: (node) => node.zone || null },
      { title: "Pool", cell: (node) => node.pool || "–", sort: (node) => node.pool || null },
      { title: "Agent", cell: (node) => node.agent || "–", sort: (node) => node.agent || null },
    ],
    keyOf: (node) => node.name,
    search: (node) => `${node.name} ${node.zone ?? ""} ${node.region ?? ""} ${node.pool ?? ""} ${node.agent} ${node.taints.join(" ")} ${Object.entries(node.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(" ")} ${stateWords(node).join(" ")}`,
    placeholder: "Name, zone, pool, taint",
    filters: [
      { name: "state", label: "State", all: "any state", options: STATES, test: (node, value) => IS[value]?.(node) ?? true },
      { name: "zone", label: "Zone", all: "every zone", options: [], test: (node, value) => node.zone === value },
      { name: "pool", label: "Pool", all: "every pool", options: [], test: (node, value) => node.pool === value },
      { name: "has", label: "Has resource", all: "any hardware", options: [], test: (node, value) => Boolean(node.allocatable?.[value]) },
      { name: "agent", label: "Decided for by", all: "every agent", options: [], test: (node, value) => node.agent === value },
    ],
    order: "node",
    empty: "No nodes.",
    also: ["selector"],
    onChange: (name) => { if (name === "selector") { selector.value = ""; again(); } },
  });
  const selector = h("input", { type: "search", id: "node-selector", placeholder: "Labels: gpu=a100,!spot", "aria-label": "Label selector", autocomplete: "off", spellcheck: "false", class: "mono",
    onchange: () => { keep({ selector: selector.value.trim(), page: "" }); again(); } });
  const reading = new Reading(() => getAll(path()), {
    // each five hundred nodes are a page: the more there are, the seldomer they are read
    everyMs: (data) => Math.max(5000, (data?.items.length ?? 0) * 4),
    show({ items: found, more }) {
      const items = found.map(withDevices);
      learn(items.map((node) => node.name));
      for (const [name, of] of [["zone", (node) => node.zone], ["pool", (node) => node.pool], ["agent", (node) => node.agent]])
        list.offer(name, [...new Set(items.map(of).filter(Boolean))].sort().slice(0, 500).map((value) => [value, value]));
      list.offer("has", inResourceOrder(items.flatMap(extended)).map((name) => [name, name]));
      list.show(items, { more });
      const told = STATES.slice(1).map(([value, words]) => [items.filter(IS[value]).length, words]).filter(([number]) => number);
      setText(counts, [plural(items.length, "node"), ...told.map(([number, words]) => `${count(number)} ${words}`)].join(" · "));
    },
  });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Nodes"), counts, h("div", { class: "tools" }, h("a", { href: "#/" }, "As a map"))),
    reading.note, sheet("Nodes by name", { tools: [selector, ...list.tools] }, list.elements));
  let asked = path();
  function again() {
    if (path() === asked) return;
    asked = path();
    list.forget();
    reading.restart();
  }
  return {
    title: "Nodes", element, ...together(reading),
    moved() {
      list.moved();
      if (document.activeElement !== selector) selector.value = state("selector");
      again();
    },
    changed: () => reading.now(),
  };
}

const path = () => (state("selector") ? `/v1/nodes?selector=${encodeURIComponent(state("selector"))}` : "/v1/nodes");

function devices(node) {
  const names = extended(node);
  if (!names.length) return "–";
  return names.map((name) => h("div", {}, meter(share(node, name), [h("span", { class: "soft" }, `${name} `), `${amount(name, node.requested?.[name] ?? 0)} of ${amount(name, node.allocatable[name])}`])));
}
