// Services that an autoscaler sizes: load, replicas, what HPA would have had, which role acted and why, and who holds it
// back. As of each object's last recorded decision: how old that is stands beside it.

import { getAll } from "../api.js";
import { ageWords, goTag, loadWords, objectLink, safeguardTags, troubles } from "../autoscaler_panel.js";
import { h, setText } from "../dom.js";
import { count, plural, since } from "../format.js";
import { Listing } from "../listing.js";
import { Reading, together } from "../reading.js";
import { sheet } from "../table.js";

const STATES = [["moving", "to be changed"], ["held", "not written"], ["guarded", "with a safeguard"], ["unready", "not all ready"], ["bad", "with a bad reading"]];
const IS = {
  moving: (one) => one.allowed !== one.replicas, held: (one) => Boolean(one.held), guarded: (one) => one.safeguards.length > 0,
  unready: (one) => one.ready < one.replicas, bad: (one) => one.bad.length > 0,
};

export function autoscalingView() {
  const counts = h("p", { class: "soft" });
  const objects = new Listing({
    id: "objects",
    caption: "Autoscalers",
    columns: [
      { title: "Object", head: true, cell: objectLink, sort: (one) => `${one.namespace}/${one.name}` },
      { title: "Mode", cell: (one) => one.mode || "–", sort: (one) => one.mode || null },
      { title: "Decided by", key: "by", cell: (one) => [one.decided_by || "–", one.decided_by !== one.policy && one.policy ? h("div", { class: "soft small" }, `in place of ${one.policy}`) : null], sort: (one) => one.decided_by || null },
      { title: "Go", cell: goTag, sort: (one) => one.go || null },
      { title: "Replicas", number: true, cell: (one) => count(sum(one, "replicas")), sort: (one) => sum(one, "replicas") },
      { title: "HPA would have", key: "hpa", number: true, cell: (one) => count(sum(one, "hpa")), sort: (one) => sum(one, "hpa") },
      { title: "Decided", key: "age", cell: ageWords, sort: (one) => one.at || null },
      { title: "Trouble", wide: true, cell: trouble, sort: (one) => troubles(one).length || null },
    ],
    keyOf: (one) => `${one.namespace}/${one.name}`,
    signOf: (one) => JSON.stringify([one, since(one.at), troubles(one)]),
    search: (one) => `${one.namespace}/${one.name} ${one.mode} ${one.policy} ${one.go_by}`,
    placeholder: "Object, policy or who gave the go",
    order: "object",
    empty: "No autoscaler has recorded a decision: there is no ResilientAutoscaler, or none of them can be decided upon.",
  });
  const services = new Listing({
    id: "services",
    caption: "Services",
    columns: [
      { title: "Service", head: true, cell: serviceName, sort: (one) => one.key },
      { title: "Load", cell: loadWords, sort: (one) => one.arrivals ?? one.cores },
      { title: "Ready", number: true, cell: (one) => `${count(one.ready)} of ${count(one.replicas)}`, sort: (one) => one.replicas },
      { title: "HPA", number: true, cell: (one) => count(one.hpa), sort: (one) => one.hpa },
      { title: "Policy", number: true, cell: (one) => count(one.wanted), sort: (one) => one.wanted },
      { title: "Allowed", number: true, cell: (one) => [count(one.allowed), one.written ? h("div", { class: "soft small" }, "written") : null], sort: (one) => one.allowed },
      { title: "Role", cell: (one) => (one.role ? h("span", { class: "tag" }, one.role) : "–"), sort: (one) => one.role || null },
      { title: "Safeguards", cell: safeguardTags, sort: (one) => one.safeguards.length },
      { title: "Why", wide: true, cell: (one) => h("span", { class: "small breakable" }, one.why) },
    ],
    keyOf: (one) => one.key,
    search: (one) => `${one.key} ${one.role} ${one.why} ${one.held} ${one.safeguards.join(" ")}`,
    placeholder: "Service, role or reason",
    filters: [{ name: "state", label: "State of the service", all: "every service", options: STATES, test: (one, value) => IS[value]?.(one) ?? true }],
    order: "service",
    empty: "No service was decided upon yet.",
  });
  const found = new Reading(() => getAll("/v1/autoscalers"), {
    everyMs: (data) => Math.max(5000, (data?.items.length ?? 0) * 20),
    show({ items, more }) {
      const rows = items.flatMap((object) => object.services.map((one) => ({ ...one, object, key: `${object.namespace}/${object.name}/${one.name}` })));
      objects.show(items, { more });
      services.show(rows, { more });
      setText(counts, [plural(items.length, "object"), plural(rows.length, "service"), `${count(rows.filter(IS.held).length)} not written`, `${count(items.filter((one) => troubles(one).length).length)} with trouble`].join(" · "));
    },
  });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Autoscaling"), counts),
    found.note,
    h("div", { class: "column" },
      sheet("Autoscalers", { tools: objects.tools }, objects.elements),
      sheet("Services", { tools: services.tools }, services.elements)));
  return {
    title: "Autoscaling", element, ...together(found),
    moved() {
      objects.moved();
      services.moved();
    },
  };
}

/** Null where a service has none: a part is no sum. */
function sum(object, name) {
  const values = object.services.map((one) => one[name]);
  return values.length && values.every(Number.isFinite) ? values.reduce((a, b) => a + b, 0) : NaN;
}

function serviceName(one) {
  return [h("span", {}, one.name), h("div", { class: "soft small" }, objectLink(one.object, one.key))];
}

function trouble(one) {
  const lines = troubles(one);
  return lines.length ? lines.map((line) => h("div", { class: "bad small breakable" }, line)) : h("span", { class: "soft" }, "–");
}
