// The nodes as a table: what the map shows, in rows, with agents, taints and use; drain and resume.

import { get, told } from "../api.js";
import { fill, h } from "../dom.js";
import { bytes, cores, count, percent } from "../format.js";
import { nodeState, share } from "../node_panel.js";
import { meter, Pager, sheet, Table } from "../table.js";

export function nodesView() {
  const error = h("p", { class: "error", role: "alert" });
  const table = new Table({
    caption: "Nodes",
    columns: [
      { title: "Node", head: true, cell: (node) => h("a", { href: `#/nodes/${encodeURIComponent(node.name)}`, "data-focus": node.name }, node.name) },
      { title: "State", cell: nodeState },
      { title: "CPU requested", cell: (node) => meter(share(node, "cpu_millis"), `${percent(share(node, "cpu_millis"))} of ${cores(node.allocatable?.cpu_millis)}`) },
      { title: "Memory requested", cell: (node) => meter(share(node, "memory_bytes"), `${percent(share(node, "memory_bytes"))} of ${bytes(node.allocatable?.memory_bytes)}`) },
      { title: "In use", cell: (node) => (node.used ? `${cores(node.used.cpu_millis)}, ${bytes(node.used.memory_bytes)}` : "–") },
      { title: "Pods", number: true, cell: (node) => count(Array.isArray(node.pods) ? node.pods.length : node.pods) },
      { title: "Agent", cell: (node) => node.agent || "–" },
    ],
    keyOf: (node) => node.name,
    empty: "No nodes.",
    stack: true,
  });
  const pager = new Pager(table, { path: "/v1/nodes", onError: (problem) => fill(error, told(problem)) });
  const agents = h("select", { id: "of-agent", onchange: () => pager.restart(path()) }, h("option", { value: "" }, "every agent"));
  const path = () => (agents.value ? `/v1/nodes?agent=${encodeURIComponent(agents.value)}` : "/v1/nodes");
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Nodes"), h("div", { class: "tools" }, h("label", { for: "of-agent" }, "Decided for by"), agents)),
    error, sheet("Nodes by name", {}, table.element, pager.element));
  let timer = 0;
  async function listAgents() {
    const found = await get("/v1/partitions").catch(() => null);
    const chosen = agents.value;
    if (found) fill(agents, h("option", { value: "" }, "every agent"), found.agents.map((agent) => h("option", { value: agent.id, selected: agent.id === chosen }, `${agent.id} (${count(agent.nodes)})`)));
  }
  return {
    title: "Nodes",
    element,
    start() {
      pager.load();
      listAgents();
      timer = setInterval(() => document.hidden || pager.load(), 5000);
    },
    stop: () => clearInterval(timer),
    changed: () => pager.load(),
  };
}
