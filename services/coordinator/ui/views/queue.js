// What waits and why: the queue by place, and units (gangs) that are on their way.

import { get, segment, told } from "../api.js";
import { fill, h } from "../dom.js";
import { count, seconds, since } from "../format.js";
import { readAgain } from "../reading.js";
import { Pager, sheet, Table } from "../table.js";

const PLACES = ["active", "backoff", "unschedulable", "in_flight"];
const pod = (one) => h("a", { href: `#/pods/${segment(one.namespace)}/${segment(one.name)}`, "data-focus": one.uid }, `${one.namespace}/${one.name}`);

export function queueView() {
  const error = h("p", { class: "error", role: "alert" });
  const counts = h("p", { class: "soft" });
  const table = new Table({
    caption: "Pods in the queue",
    columns: [
      { title: "Pod", head: true, cell: pod },
      { title: "Place", cell: (one) => one.place.replace("_", " ") },
      { title: "Pending for", number: true, cell: (one) => seconds(one.waiting_s) },
      { title: "Attempts", number: true, cell: (one) => count(one.attempts) },
      { title: "Tried again in", number: true, cell: (one) => (one.retry_in_s === null || one.retry_in_s === undefined ? "–" : seconds(one.retry_in_s)) },
      { title: "Priority", number: true, cell: (one) => one.priority },
      { title: "Rejected by", cell: (one) => one.plugins?.join(", ") || "–" },
      { title: "Nominated to", cell: (one) => one.nominated_node || "–" },
    ],
    keyOf: (one) => one.uid,
    empty: "Nothing waits.",
    stack: true,
  });
  const units = new Table({
    caption: "Units on their way",
    columns: [
      { title: "Unit", head: true, cell: (one) => one.key },
      { title: "State", cell: (one) => one.state },
      { title: "For", number: true, cell: (one) => since(one.since) },
      { title: "At least", number: true, cell: (one) => count(one.min_member) },
      { title: "Pods", cell: (one) => one.pods.slice(0, 6).map((member, number) => [number ? ", " : "", pod(member), member.node ? ` → ${member.node}` : ""]).concat(one.pods.length > 6 ? [` and ${count(one.pods.length - 6)} more`] : []) },
    ],
    keyOf: (one) => one.key,
    empty: "No unit is on its way.",
  });
  const place = h("select", { id: "queue-place", onchange: () => pager.restart(path()) }, h("option", { value: "" }, "everywhere"), PLACES.map((one) => h("option", { value: one }, one.replace("_", " "))));
  const path = () => (place.value ? `/v1/queue?place=${place.value}` : "/v1/queue");
  const pager = new Pager(table, { path: "/v1/queue", onError: (problem) => fill(error, told(problem)) });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Queue"), counts, h("div", { class: "tools" }, h("label", { for: "queue-place" }, "Show"), place)),
    error, h("div", { class: "column" }, sheet("Waiting pods", {}, table.element, pager.element), sheet("Units on their way", {}, units.element)));
  async function load() {
    const [page, found] = await Promise.all([pager.load(), get("/v1/units?limit=50").catch(() => null)]);
    if (page) {
      fill(error);
      fill(counts, PLACES.map((one) => `${count(page.counts?.[one] ?? 0)} ${one.replace("_", " ")}`).join(" · "));
    }
    if (found) units.show(found.items);
  }
  return { title: "Queue", element, ...readAgain(load, 3000) };
}
