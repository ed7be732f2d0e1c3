// One node: what is requested of it, who decides for it, what runs there; drain and resume for operators.

import { answerInto } from "./answer.js";
import { post, segment } from "./api.js";
import { ask, sayDone } from "./dialogs.js";
import { h } from "./dom.js";
import { amount, bytes, cores, count, percent, plural, seconds, since } from "./format.js";
import { inResourceOrder, resourceWord, share } from "./resources.js";
import { may } from "./session.js";
import { meter, pairs, plainTable } from "./table.js";

/** Fills `place` with a node; `changed()` after a drain or resume. */
export function nodeInto(place, name, changed) {
  return answerInto(place, `/v1/nodes/${segment(name)}`, (node) => parts(node, () => { nodeInto(place, name, changed); changed(); }));
}

/** What keeps pods from a node or may soon, in words; empty: nothing. */
export function stateWords(node) {
  const words = [];
  if (node.ready === false) words.push("not ready");
  for (const kind of node.pressure ?? []) words.push(kind === "network" ? "no network" : `${kind} pressure`);
  if (node.deleting) words.push("being deleted");
  if (node.drained) words.push("drained");
  if (node.cordoned ?? (!node.schedulable && !node.drained)) words.push(node.cordoned === undefined ? "unschedulable" : "cordoned");
  if (!node.agent) words.push("no agent");
  return words;
}

/** The same as tags. */
export function nodeState(node) {
  const words = stateWords(node);
  if (!words.length) return h("span", { class: "tag" }, node.ready === undefined ? "open" : "ready");
  return words.map((word) => h("span", { class: `tag ${["not ready", "no agent", "no network"].includes(word) ? "is-bad" : "is-warn"}` }, word));
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
  // the number of pods is counted apart from what pods ask for
  const running = node.pod_count ?? (Array.isArray(node.pods) ? node.pods.length : node.pods) ?? 0;
  const asked = { ...node.requested, pods: running };
  const rows = inResourceOrder(Object.keys(node.allocatable ?? {})).map((name) => {
    const part = share({ ...node, requested: asked }, name);
    return [resourceWord(name), meter(part ?? 0, percent(part ?? NaN)), amount(name, asked[name] ?? 0), amount(name, node.allocatable[name])];
  });
  return [
    h("div", {}, nodeState(node), node.drained ? ` by ${node.drained.by}, ${since(node.drained.since)} ago${node.drained.reason ? `: ${node.drained.reason}` : ""}` : ""),
    node.conditions?.length ? h("ul", { class: "conditions" }, node.conditions.map((one) => h("li", {}, h("b", {}, `${one.type} is ${one.status}`), one.since ? h("span", { class: "soft" }, ` for ${since(one.since)}`) : null, one.reason || one.message ? `: ${[one.reason, one.message].filter(Boolean).join(", ")}` : ""))) : null,
    pairs([
      ["Agent", node.agent || "none: nobody decides for it"],
      ["Zone", [node.region, node.zone].filter(Boolean).join(", ")],
      ["Pool", node.pool],
      ["Taints", node.taints?.length ? node.taints.map((taint) => h("div", {}, typeof taint === "string" ? taint : `${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}`)) : null],
      ["In use", node.used ? `CPU ${cores(node.used.cpu_millis)}, memory ${bytes(node.used.memory_bytes)}, disk ${percent(node.used.disk)}, network ${percent(node.used.network)}, measured ${seconds(node.used.age_s)} ago` : null],
      ["Lent", node.lent ? `CPU ${cores(node.lent.cpu_millis)}, memory ${bytes(node.lent.memory_bytes)}: ${[node.lent.why, ...(node.lent.doubts ?? []).map((doubt) => `not believed: ${doubt}`)].join("; ")}` : null],
      ["Latency", Object.entries(node.used?.latencies ?? {}).map(([target, one]) => `${one.median_ms.toFixed(1)} ms to ${target}`).join(", ")],
      ["Not measured", [...new Set([...(node.used?.masked ?? []), ...(node.used?.missing ?? [])])].join("; ")],
    ]),
    plainTable("Resources", ["Resource", "Share", { title: "Requested", number: true }, { title: "Allocatable", number: true }], rows),
    deviceTable(node),
    zoneTable(node.numa),
    may("operator") ? h("div", {}, h("button", { type: "button", class: node.drained ? "primary" : "danger", onclick: async () => { if (await askDrain(node.name, Boolean(node.drained))) again(); } }, node.drained ? "Resume …" : "Drain …")) : null,
    podTable(Array.isArray(node.pods) ? node.pods : [], running),
    labels(node.labels),
  ];
}

function deviceTable(node) {
  const pools = node.devices ?? [];
  if (!pools.length) return null;
  const states = ["Free", "Allocated", "Tainted", "Blocked"];
  return plainTable("Devices", ["Driver", "Pool", "In use", ...states.map((title) => ({ title, number: true }))], pools.map((pool) => [
    pool.driver, pool.pool === node.name ? "its own" : pool.pool, meter(pool.share, percent(pool.share)),
    ...states.map((title) => count(pool[title.toLowerCase()]))]));
}

function zoneTable(numa) {
  if (!numa?.zones?.length) return null;
  const names = inResourceOrder([...new Set(numa.zones.flatMap((zone) => Object.keys(zone.free)))]);
  const cell = (zone, name) => (name in zone.free ? [`${amount(name, zone.free[name])} of ${amount(name, zone.allocatable[name])}`, zone.assumed[name] ? h("div", { class: "soft" }, `${amount(name, zone.assumed[name])} assumed`) : null] : "–");
  return h("section", { "aria-label": "Zones of the machine" },
    h("p", { class: "soft" }, `Zones by ${numa.source}: ${numa.policy} by ${numa.scope}, told ${seconds(numa.age_s)} ago${numa.doubts.length ? `. Doubted: ${numa.doubts.join("; ")}` : ""}`),
    plainTable("Zones", ["Zone", ...(numa.zones.some((zone) => zone.socket) ? ["Socket"] : []), ...names.map((name) => `${resourceWord(name)} free`)],
      numa.zones.map((zone) => [zone.zone, ...(numa.zones.some((one) => one.socket) ? [zone.socket] : []), ...names.map((name) => cell(zone, name))])));
}

function podTable(pods, running) {
  if (!running) return h("p", { class: "soft" }, "No pods here.");
  const few = pods.length < running ? `, ${count(pods.length)} of highest priority shown` : "";
  const ours = pods.filter((pod) => pod.ours).length;
  const claiming = pods.some((pod) => pod.devices?.length);
  return h("section", { "aria-label": "Pods here" }, h("h3", {}, `${plural(running, "pod")} here${few}; ${count(ours)} by Conclave`),
    plainTable("Pods here", ["Pod", { title: "Priority", number: true }, "Placed by", ...(claiming ? ["Devices"] : [])], pods.map((pod) => [
      h("a", { href: `#/pods/${segment(pod.namespace)}/${segment(pod.name)}` }, `${pod.namespace}/${pod.name}`),
      pod.priority, h("span", { class: "soft" }, pod.ours ? "Conclave" : "another scheduler"),
      ...(claiming ? [(pod.devices ?? []).map((device) => h("div", { class: "mono" }, device))] : [])])));
}

function labels(found) {
  const list = Object.entries(found ?? {}).sort();
  if (!list.length) return null;
  return h("details", {}, h("summary", {}, plural(list.length, "label")), h("ul", { class: "labels" }, list.map(([key, value]) => h("li", {}, h("code", {}, value ? `${key}=${value}` : key)))));
}
