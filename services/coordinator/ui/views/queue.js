// Every waiting pod by itself. Why they wait, grouped: views/pending.js; gangs and Queues: views/queues.js.

import { state } from "../address.js";
import { getAll, segment } from "../api.js";
import { h, setText } from "../dom.js";
import { count, seconds } from "../format.js";
import { Listing } from "../listing.js";
import { nodeLink } from "../names.js";
import { Reading, together } from "../reading.js";
import { sheet } from "../table.js";
import { PLACES, placeWords, waiting, waitingBy } from "../waiting.js";

/** Places that have a list; pods that are not supported are told of by reason alone. */
const QUEUED = PLACES.filter((place) => place !== "unsupported");

/** The same to somebody who looks why they wait. */
const ALIKE = ["namespace", "class", "place", "reason", "priority", "nominated_node"];
const FOLD = {
  alike: (one) => JSON.stringify([...ALIKE.map((name) => one[name]), rules(one)]),
  join: (pods) => ({
    ...pods[0], waiting_s: Math.max(...pods.map((one) => one.waiting_s)), attempts: Math.max(...pods.map((one) => one.attempts)),
    retry_in_s: least(pods.map((one) => one.retry_in_s)),
  }),
};
const pod = (one) => h("a", { href: `#/pods/${segment(one.namespace)}/${segment(one.name)}`, "data-focus": one.uid, title: `${one.namespace}/${one.name}` }, `${one.namespace}/${one.name}`);
const least = (values) => (values.some(Number.isFinite) ? Math.min(...values.filter(Number.isFinite)) : null);
const rules = (one) => [...(one.plugins ?? [])].sort().join("+");

export function queueView() {
  const counts = h("p", { class: "soft" });
  const list = new Listing({
    caption: "Pods in the queue",
    columns: [
      { title: "Pod", head: true, cell: pod, sort: (one) => `${one.namespace}/${one.name}` },
      { title: "Place", cell: (one) => placeWords(one.place), sort: (one) => one.place },
      { title: "Pending for", key: "pending", number: true, cell: (one) => seconds(one.waiting_s), sort: (one) => one.waiting_s },
      { title: "Attempts", number: true, cell: (one) => count(one.attempts), sort: (one) => one.attempts },
      { title: "Tried again in", key: "retry", number: true, cell: (one) => (one.retry_in_s === null || one.retry_in_s === undefined ? "–" : seconds(one.retry_in_s)), sort: (one) => one.retry_in_s },
      { title: "Priority", number: true, cell: (one) => one.priority, sort: (one) => one.priority },
      { title: "Reason", wide: true, cell: (one) => h("span", { class: "breakable", title: one.plugins?.join(", ") }, reasonOf(one).replaceAll("+", " + ") || "–"), sort: reasonOf },
      { title: "Nominated to", key: "nominated", cell: (one) => (one.nominated_node ? nodeLink(one.nominated_node) : "–"), sort: (one) => one.nominated_node || null },
    ],
    keyOf: (one) => one.uid,
    search: (one) => `${one.namespace}/${one.name} ${one.plugins?.join(" ") ?? ""} ${one.nominated_node ?? ""} ${one.uid}`,
    placeholder: "Pod, rule or node",
    filters: [
      { name: "place", label: "Place in the queue", all: "everywhere", options: QUEUED.map((place) => [place, placeWords(place)]) },
      { name: "namespace", label: "Namespace", all: "every namespace", options: [], test: (one, value) => one.namespace === value },
      { name: "priority", label: "Priority", all: "every priority", options: [], test: (one, value) => String(one.priority) === value },
      { name: "reason", label: "Reason", all: "every reason", options: [], test: (one, value) => reasonOf(one) === value },
      { name: "class", label: "Class", all: "every class", options: [], test: (one, value) => one.class === undefined || one.class === value },
    ],
    empty: "Nothing waits.",
    fold: FOLD,
    onChange: (name) => { if (name === "place") again(); },
  });
  const pods = new Reading(() => getAll(state("place") ? `/v1/queue?place=${state("place")}` : "/v1/queue"), {
    everyMs: (data) => Math.max(3000, (data?.items.length ?? 0) * 4),
    show({ items, more, first }) {
      list.offer("namespace", distinct(items, (one) => one.namespace));
      list.offer("priority", distinct(items, (one) => one.priority));
      list.offer("reason", distinct(items, reasonOf));
      list.offer("class", distinct(items, (one) => one.class));
      list.show(items, { more });
      setText(counts, [`${count(waiting(first.counts))} waiting`, ...waitingBy(first.counts).map(([where, number]) => `${count(number)} ${placeWords(where)}`)].join(" · "));
    },
  });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Scheduling queue"), counts, h("div", { class: "tools" }, h("a", { href: "#/pending" }, "Why pending, grouped"), h("a", { href: "#/queues" }, "Queues and units"))),
    pods.note, sheet("Waiting pods", { tools: list.tools }, list.elements));
  let place = state("place");
  function again() {
    place = state("place");
    list.forget();
    pods.restart();
  }
  return {
    title: "Waiting pods", element, ...together(pods),
    moved() {
      list.moved();
      if (place !== state("place")) again();
    },
  };
}

/** The word by which the leader groups it: the rules that refuse it, or why none does. */
function reasonOf(one) {
  if (one.reason) return one.reason;
  return { in_flight: "InFlight", backoff: rules(one) || "Backoff", active: rules(one) || "InTurn" }[one.place] ?? rules(one);
}

/** What items have, at most a hundred different ones, the commonest first. */
function distinct(items, of) {
  const found = new Map();
  for (const item of items) {
    const value = of(item);
    if (value !== undefined && value !== null && value !== "") found.set(value, (found.get(value) ?? 0) + 1);
  }
  return [...found].sort((a, b) => b[1] - a[1]).slice(0, 100).map(([value, times]) => [String(value), `${value} (${count(times)})`]);
}
