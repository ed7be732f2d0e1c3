// One node: what is requested of it, who decides for it, what runs there; drain and resume for operators.

import { get, post, segment, told } from "./api.js";
import { ask, sayDone } from "./dialogs.js";
import { fill, h } from "./dom.js";
import { amount, bytes, cores, percent, seconds, since } from "./format.js";
import { may } from "./session.js";
import { meter, pairs } from "./table.js";

/** Fills `place` with a node; `changed()` after a drain or resume. */
export async function nodeInto(place, name, changed) {
  fill(place, h("p", { class: "soft", role: "status" }, "Asking the leader …"));
  try {
    fill(place, parts(await get(`/v1/nodes/${segment(name)}`), () => { nodeInto(place, name, changed); changed(); }));
  } catch (error) {
    fill(place, h("p", { class: "error", role: "alert" }, told(error)));
  }
}

/** Whether Conclave may place pods there, as tags. */
export function nodeState(node) {
  const tags = [];
  if (node.drained) tags.push(h("span", { class: "tag is-warn" }, "drained"));
  if (!node.schedulable && !node.drained) tags.push(h("span", { class: "tag is-warn" }, "unschedulable"));
  if (!node.agent) tags.push(h("span", { class: "tag is-bad" }, "no agent"));
  return tags.length ? tags : h("span", { class: "tag" }, "open");
}

/** requested / allocatable of one column; 0 where nothing is offered. */
export function share(node, column) {
  const offered = node.allocatable?.[column] ?? 0;
  return offered ? (node.requested?.[column] ?? 0) / offered : 0;
}

/** Asks for a reason, then drains or resumes. Resolves to the node, or null. */
export function askDrain(name, drained) {
  const verb = drained ? "Resume" : "Drain";
  return ask({
    title: `${verb} ${name}`,
    text: drained
      ? "Conclave may place pods there again."
      : "Conclave places no new pods there until it is resumed. Pods that run there stay, and other schedulers are not told.",
    verb,
    act: async ({ reason }) => {
      const node = await post(`/v1/nodes/${segment(name)}/${drained ? "resume" : "drain"}`, { reason });
      sayDone(`${name} ${drained ? "takes pods again" : "takes no new pods"}`, node);
      return node;
    },
  });
}

function parts(node, again) {
  const rows = Object.keys(node.allocatable ?? {}).map((column) => h("tr", {},
    h("th", { scope: "row" }, column.replace(/_(millis|bytes)$/, "")),
    h("td", {}, meter(share(node, column), percent(share(node, column)))),
    h("td", { class: "number" }, amount(column, node.requested?.[column] ?? 0)),
    h("td", { class: "number" }, amount(column, node.allocatable[column]))));
  return [
    h("div", {}, nodeState(node), node.drained ? ` by ${node.drained.by}, ${since(node.drained.since)} ago${node.drained.reason ? `: ${node.drained.reason}` : ""}` : ""),
    pairs([
      ["Agent", node.agent || "none: nobody decides for it"],
      ["Taints", node.taints?.length ? node.taints.map((taint) => h("div", {}, typeof taint === "string" ? taint : `${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}`)) : null],
      ["In use", node.used ? `CPU ${cores(node.used.cpu_millis)}, memory ${bytes(node.used.memory_bytes)}, measured ${seconds(node.used.age_s)} ago` : null],
    ]),
    h("table", {}, h("caption", { class: "hidden-text" }, "Resources"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Resource"), h("th", { scope: "col" }, "Share"), h("th", { scope: "col", class: "number" }, "Requested"), h("th", { scope: "col", class: "number" }, "Allocatable"))),
      h("tbody", {}, rows)),
    may("operator") ? h("div", {}, h("button", { type: "button", class: node.drained ? "primary" : "danger", onclick: async () => { if (await askDrain(node.name, Boolean(node.drained))) again(); } }, node.drained ? "Resume …" : "Drain …")) : null,
    podTable(Array.isArray(node.pods) ? node.pods : []),
  ];
}

function podTable(pods) {
  if (!pods.length) return h("p", { class: "soft" }, "No pods here.");
  return h("table", {}, h("caption", {}, h("h3", {}, `Pods here: ${pods.length}`)),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Pod"), h("th", { scope: "col", class: "number" }, "Priority"), h("th", { scope: "col" }, "Placed by"))),
    h("tbody", {}, pods.map((pod) => h("tr", {},
      h("th", { scope: "row" }, h("a", { href: `#/pods/${segment(pod.namespace)}/${segment(pod.name)}` }, `${pod.namespace}/${pod.name}`)),
      h("td", { class: "number" }, pod.priority),
      h("td", { class: "soft" }, pod.ours ? "Conclave" : "another scheduler")))));
}
