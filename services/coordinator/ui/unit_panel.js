// One pod group with its members, and one queue with the units that wait in it: each in the drawer.

import { answerInto } from "./answer.js";
import { segment } from "./api.js";
import { h } from "./dom.js";
import { amount, count, percent, plural, seconds } from "./format.js";
import { nodeLink } from "./names.js";
import { quotaBar } from "./quota.js";
import { resourceWord } from "./resources.js";
import { pairs, plainTable } from "./table.js";
import { unitExplained } from "./unit_explain.js";
import { heldWords, placeWords } from "./waiting.js";

const PHASES = { waiting: "is-warn", placing: "", running: "is-good", broken: "is-bad" };
const SOURCES = { pod: "a lone pod", podgroup: "PodGroup", "x-podgroup": "PodGroup (scheduling.x-k8s.io)", job: "Job" };
const SHOWN = 200;

/** Fills `place` with a pod group. */
export function unitInto(place, namespace, name) {
  return answerInto(place, `/v1/units/${segment(namespace)}/${segment(name)}`, unitParts);
}

/** Fills `place` with a queue. */
export function queueInto(place, name) {
  return answerInto(place, `/v1/queues/${segment(name)}`, queueParts);
}

/** What a unit does, as a tag. */
export function phaseTag(unit) {
  return h("span", { class: `tag ${PHASES[unit.phase] ?? ""}` }, unit.phase);
}

/** A link to the unit: a group opens by itself, a lone pod as a pod. */
export function unitLink(unit) {
  const kind = unit.source === "pod" ? "pods" : "units";
  return h("a", { href: `#/${kind}/${segment(unit.namespace)}/${segment(unit.name)}`, "data-focus": unit.key, title: `${unit.namespace}/${unit.name}` }, `${unit.namespace}/${unit.name}`);
}

/** Why it waits: the word, and the sentence. */
export function whyWaits(unit) {
  if (!unit.reason && !unit.message) return h("span", { class: "soft" }, "–");
  return [unit.reason ? h("span", { class: "breakable" }, unit.reason.replaceAll("+", " + ")) : null, unit.message ? h("div", { class: "soft small breakable" }, unit.message) : null];
}

function unitParts(unit) {
  const topology = unit.topology;
  const states = Object.entries(unit.states ?? {}).sort((a, b) => b[1] - a[1]).map(([state, number]) => `${count(number)} ${placeWords(state)}`);
  return [
    h("div", {}, phaseTag(unit), " ", `${count(unit.bound)} of ${plural(unit.members, "member")} on nodes, at least ${count(unit.min_member)} or none`),
    unit.problem ? h("p", { class: "error" }, unit.problem) : null,
    pairs([
      ["Why it waits", unit.reason || unit.message ? whyWaits(unit) : null],
      ["Members", states.join(", ")],
      ["Missing", unit.missing ? `${count(unit.missing)} more must be created before it is tried` : null],
      ["Queue", unit.queue ? [h("a", { href: `#/queues/${segment(unit.queue)}` }, unit.queue), unit.position ? `, place ${count(unit.position)}` : ""] : null],
      ["Priority", unit.priority],
      ["Waiting for", unit.waiting_s === null ? null : seconds(unit.waiting_s)],
      ["Topology", topology ? `one value of ${topology.key}, ${topology.required ? "required" : "preferred"}${topology.domain ? `: ${topology.domain}` : ", none chosen yet"}` : null],
      ["If it breaks", unit.gang ? (unit.on_broken === "evict" ? "its members are evicted, and it waits as a whole" : "members that run stay, the others are tried again") : null],
      ["Preempted", unit.gang ? (unit.whole ? "all members or none" : "member by member") : null],
      ["Condition", unit.condition ? `${unit.condition.type} is ${unit.condition.status}, ${unit.condition.reason}${unit.condition.message ? `: ${unit.condition.message}` : ""}` : null],
      ["Source", `${SOURCES[unit.source] ?? unit.source}${unit.api_version ? `, ${unit.api_version}` : ""}`],
    ]),
    unit.bound < unit.members ? unitExplained(unit.namespace, unit.name) : null,
    unit.victims?.length ? h("section", { "aria-label": "Asked to leave for it" }, h("h3", {}, `${plural(unit.victims.length, "pod")} asked to leave for it`),
      plainTable("Asked to leave for it", ["Pod", "Node", { title: "Priority", number: true }, "Outcome", { title: "Ago", number: true }], unit.victims.map((one) => [one.pod, nodeLink(one.node), one.priority, one.outcome || "–", seconds(one.ago_s)]))) : null,
    members(unit),
  ];
}

function members(unit) {
  const listed = unit.listed ?? [];
  if (!listed.length) return h("p", { class: "soft" }, "No member exists.");
  const rest = listed.length - SHOWN;
  return h("section", { "aria-label": "Members" }, h("h3", {}, plural(unit.members, "member")),
    plainTable("Members", ["Member", "State", "Node", { title: "Attempts", number: true }, { title: "Waiting for", number: true }], listed.slice(0, SHOWN).map((one) => [
      [h("a", { href: `#/pods/${segment(unit.namespace)}/${segment(one.name)}` }, one.name), one.message ? h("div", { class: "soft small breakable" }, one.message) : null],
      placeWords(one.state),
      one.node ? nodeLink(one.node) : one.nominated_node ? [h("span", { class: "soft" }, "held: "), nodeLink(one.nominated_node)] : "–",
      count(one.attempts), one.waiting_s === null ? "–" : seconds(one.waiting_s)])),
    rest > 0 ? h("p", { class: "soft small" }, `and ${count(rest)} more`) : null);
}

function queueParts(queue) {
  const limits = (found) => (found ? Object.entries(found).map(([name, value]) => `${resourceWord(name)} ${amount(name, value)}`).join(", ") || "nothing" : null);
  const units = queue.units ?? [];
  return [
    queue.problem ? h("p", { class: "error" }, queue.problem) : null,
    (queue.warnings ?? []).map((told) => h("p", { class: "error" }, told)),
    queue.deleting ? h("p", { class: "error" }, "It is being deleted: its units wait.") : null,
    h("section", { class: "quotas", "aria-label": "Quota" }, queue.resources?.length ? queue.resources.map(quotaBar) : h("p", { class: "soft" }, "It uses nothing, and names no limit.")),
    pairs([
      ["Path", queue.path?.length > 1 ? queue.path.join(" / ") : null],
      ["Order", `${queue.order} within it, ${queue.strategy} between those below it`],
      ["Weight", queue.weight],
      ["Of cluster", `${percent(queue.share)}${queue.dominant ? ` by ${resourceWord(queue.dominant)}` : ""}`],
      ["Running", plural(queue.pods, "pod")],
      ["Waiting", `${plural(queue.pending_units, "unit")}, ${count(queue.blocked_units)} of them held back; for ${plural(queue.parked_units, "unit")} (${plural(queue.parked_pods, "pod")}) no node has room`],
      ["Namespaces", queue.namespaces?.length ? queue.namespaces.join(", ") : null],
      ["Below it", queue.children?.length ? queue.children.map((name, number) => [number ? ", " : "", h("a", { href: `#/queues/${segment(name)}` }, name)]) : null],
      ["Borrows at most", limits(queue.borrowing)],
      ["Lends at most", limits(queue.lending)],
      ["Reclaim", queue.reclaim ? `what it lent is taken back after ${seconds(queue.reclaim_after_s)}, from pods that have run for ${seconds(queue.min_run_s)}` : null],
      ["Past use", queue.half_life_s ? `halved every ${seconds(queue.half_life_s)}: ${limits(queue.past)}` : null],
    ]),
    units.length ? h("section", { "aria-label": "Units in turn" }, h("h3", {}, "Units in turn, then those that are not"),
      plainTable("Units in turn", [{ title: "Place", number: true }, "Unit", { title: "Pods", number: true }, { title: "Priority", number: true }, { title: "Waiting for", number: true }, "Why"], units.slice(0, SHOWN).map((one) => [
        one.position, unitLink(one), count(one.members), one.priority, seconds(one.waiting_s),
        one.blocked ? [h("span", { class: "tag is-warn" }, heldWords(one.reason)), h("div", { class: "soft small breakable" }, one.blocked)] : one.reason || "–"])))
      : h("p", { class: "soft" }, "Nothing waits in it."),
  ];
}
