// The queues as a tree, with what each uses of what it may, and the units: which wait, why and at which place, which run.

import { getAll, segment } from "../api.js";
import { h, setText } from "../dom.js";
import { count, percent, plural, seconds } from "../format.js";
import { Listing } from "../listing.js";
import { quotaBars } from "../quota.js";
import { Reading, together } from "../reading.js";
import { sheet } from "../table.js";
import { phaseTag, unitLink, whyWaits } from "../unit_panel.js";

const PHASES = ["waiting", "placing", "broken", "running", "ended"];
const SOURCES = [["podgroup", "PodGroup"], ["x-podgroup", "PodGroup of the plug-ins"], ["job", "Job"], ["pod", "lone pod"]];
const STATES = [["waiting", "with units that wait"], ["held", "with units held back"], ["borrowing", "borrowing"], ["problem", "with a problem"]];
const IS = {
  waiting: (queue) => queue.pending_units > 0, held: (queue) => queue.blocked_units > 0, problem: (queue) => Boolean(queue.problem || queue.warnings?.length),
  borrowing: (queue) => queue.resources.some((one) => one.guaranteed && one.borrowed > 0),
};

/** Units that wait, or run, alike. */
const ALIKE = ["namespace", "phase", "queue", "priority", "source", "members", "bound", "min_member", "reason", "message"];
const FOLD = {
  alike: (one) => JSON.stringify(ALIKE.map((name) => one[name])),
  join: (units) => ({
    ...units[0], position: Math.min(...units.map((one) => one.position || Infinity)), waiting_s: units.every((one) => one.waiting_s === null) ? null : Math.max(...units.map((one) => one.waiting_s ?? 0)),
  }),
};

export function queuesView() {
  const counts = h("p", { class: "soft" });
  const list = new Listing({
    id: "queues",
    caption: "Queues",
    columns: [
      { title: "Queue", head: true, cell: queueName, sort: (queue) => queue.path.join("\u0000") },
      { title: "Used of what it may", wide: true, cell: quotaBars },
      { title: "Of cluster", key: "share", number: true, sort: (queue) => queue.share, cell: (queue) => h("span", { title: queue.dominant }, percent(queue.share)) },
      { title: "Pods", number: true, cell: (queue) => count(queue.pods), sort: (queue) => queue.pods },
      { title: "Units pending", key: "pending", number: true, cell: (queue) => count(queue.pending_units), sort: (queue) => queue.pending_units },
      { title: "No room", key: "parked", number: true, cell: (queue) => count(queue.parked_units), sort: (queue) => queue.parked_units },
      { title: "Held back", key: "held", number: true, cell: (queue) => count(queue.blocked_units), sort: (queue) => queue.blocked_units },
    ],
    keyOf: (queue) => queue.name,
    search: (queue) => `${queue.path.join(" ")} ${queue.problem}`,
    placeholder: "Queue",
    filters: [{ name: "state", label: "State of the queue", all: "every queue", options: STATES, test: (queue, value) => IS[value]?.(queue) ?? true }],
    order: "queue",
    empty: "There is no Queue: units go by priority and arrival, and no quota holds them.",
  });
  const units = new Listing({
    id: "units",
    caption: "Units",
    columns: [
      { title: "Unit", head: true, cell: unitLink, sort: (one) => `${one.namespace}/${one.name}` },
      { title: "Phase", cell: phaseTag, sort: (one) => PHASES.indexOf(one.phase) },
      { title: "Members", key: "members", number: true, sort: (one) => one.members, cell: (one) => [`${count(one.bound)} of ${count(one.members)}`, one.min_member > 1 ? h("div", { class: "soft small" }, `at least ${count(one.min_member)}`) : null] },
      { title: "Queue", cell: (one) => (one.queue ? h("a", { href: `#/queues/${segment(one.queue)}` }, one.queue) : "–"), sort: (one) => one.queue || null },
      { title: "Place", number: true, cell: (one) => (Number.isFinite(one.position) && one.position ? count(one.position) : "–"), sort: (one) => one.position },
      { title: "Waiting for", key: "waiting", number: true, cell: (one) => (one.waiting_s === null ? "–" : seconds(one.waiting_s)), sort: (one) => one.waiting_s },
      { title: "Priority", number: true, cell: (one) => one.priority, sort: (one) => one.priority },
      { title: "Why it waits", wide: true, cell: whyWaits, sort: (one) => one.reason || null },
    ],
    keyOf: (one) => one.key,
    signOf: (one) => JSON.stringify({ ...one, waiting_s: one.waiting_s === null ? null : seconds(one.waiting_s) }),
    search: (one) => `${one.namespace}/${one.name} ${one.queue} ${one.reason} ${one.message} ${one.pods.map((pod) => `${pod.name} ${pod.node}`).join(" ")}`,
    placeholder: "Unit, member, node or reason",
    filters: [
      { name: "phase", label: "Phase", all: "every phase", options: PHASES.map((phase) => [phase, phase]), test: (one, value) => one.phase === value },
      { name: "queue", label: "Queue of the unit", all: "every queue", options: [], test: (one, value) => one.queue === value },
      { name: "namespace", label: "Namespace", all: "every namespace", options: [], test: (one, value) => one.namespace === value },
      { name: "source", label: "Source", all: "pods and groups", options: SOURCES, test: (one, value) => one.source === value },
    ],
    order: "phase",
    fold: FOLD,
    empty: "There is no pod group, and no lone pod is on its way.",
  });
  const tree = new Reading(() => getAll("/v1/queues"), {
    everyMs: (data) => Math.max(3000, (data?.items.length ?? 0) * 10),
    show({ items, more }) {
      list.show(items, { more });
      const problems = items.filter(IS.problem).length;
      const missing = items.filter((one) => one.missing).length;
      setText(counts, [plural(items.length - missing, "queue"), missing ? `${count(missing)} named and not there` : null, problems ? `${count(problems)} with a problem` : null].filter(Boolean).join(" · "));
    },
  });
  const groups = new Reading(() => getAll("/v1/units"), {
    everyMs: (data) => Math.max(3000, (data?.items.length ?? 0) * 6),
    show({ items, more }) {
      for (const name of ["queue", "namespace"]) units.offer(name, [...new Set(items.map((one) => one[name]).filter(Boolean))].sort().slice(0, 500).map((value) => [value, value]));
      units.show(items, { more });
    },
  });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Queues and units"), counts, h("div", { class: "tools" }, h("a", { href: "#/queue" }, "Waiting pods"))),
    h("div", { class: "column" },
      sheet("Queues", { tools: list.tools }, tree.note, list.elements),
      sheet("Units", { tools: units.tools }, groups.note, units.elements)));
  return {
    title: "Queues", element, ...together(tree, groups),
    moved() {
      list.moved();
      units.moved();
    },
  };
}

/** The name under its parents, with what is wrong with it. */
function queueName(queue) {
  const link = h("a", { href: `#/queues/${segment(queue.name)}`, "data-focus": queue.name }, queue.name);
  return h("div", { class: `branch depth-${Math.min(3, queue.depth)}` }, link,
    queue.depth ? h("div", { class: "soft small" }, `in ${queue.path.slice(0, -1).join(" / ")}`) : null,
    queue.deleting ? h("div", {}, h("span", { class: "tag is-warn" }, "being deleted")) : null,
    (queue.warnings ?? []).map((told) => [h("div", {}, h("span", { class: "tag is-warn" }, "warning")), h("div", { class: "soft small breakable" }, told)]),
    queue.problem ? [h("div", {}, h("span", { class: "tag is-bad" }, "problem")), h("div", { class: "bad small breakable" }, queue.problem)] : null);
}
