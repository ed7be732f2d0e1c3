// Why pods are pending: groups of the same reason, namespace, priority and class, what would help and how many that would
// let in; each leads to its pods. The leader groups, sorts and filters: ten thousand pods are a few hundred groups.

import { keep, state, to } from "../address.js";
import { get, segment } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { amount, count, plural, seconds } from "../format.js";
import { Reading, together } from "../reading.js";
import { sheet, Table } from "../table.js";
import { placeWords, reasonWords } from "../waiting.js";

const PAGE = 100;
const FACETS = [["reason", "Reason", "by_reason"], ["namespace", "Namespace", "by_namespace"], ["priority", "Priority", "by_priority"]];
const ORDERS = [["pods", "Most pods first"], ["oldest", "Oldest first"], ["priority", "Highest priority first"]];
const FACET_ROWS = 8;

/** Reasons in the leader's words, as groups told them. */
const said = new Map();

export function pendingView() {
  const tokens = [""];
  const counts = h("p", { class: "soft" });
  const facets = h("div", { class: "facets" });
  const helps = h("div", { class: "body" });
  const chips = h("div", { class: "tools chips" });
  const order = h("select", { id: "pending-order", onchange: () => change({ sort: order.value === "pods" ? "" : order.value }) }, ORDERS.map(([value, words]) => h("option", { value }, words)));
  const table = new Table({
    caption: "Groups of pending pods",
    columns: [
      { title: "Reason", head: true, wide: true, cell: reasonOf },
      { title: "Class", cell: (one) => [h("code", {}, one.class), asked(one.requests)] },
      { title: "Namespace", cell: (one) => (one.namespaces.length > 1 ? h("span", { title: one.namespaces.join(", ") }, plural(one.namespaces.length, "namespace")) : one.namespaces[0]) },
      { title: "Priority", number: true, cell: (one) => [...new Set([one.priorities[0], one.priorities.at(-1)])].join(" to ") },
      { title: "Pods", number: true, cell: (one) => podsLink(one) },
      { title: "Oldest", number: true, cell: (one) => h("span", { title: one.oldest_pod }, seconds(one.oldest_s)) },
      { title: "Would help", wide: true, cell: (one) => helpList(one.helps) },
    ],
    keyOf,
    signOf: (one) => JSON.stringify({ ...one, oldest_s: seconds(one.oldest_s) }),
  });
  const earlier = h("button", { type: "button", onclick: () => turn(-1) }, "Earlier");
  const later = h("button", { type: "button", onclick: () => turn(1) }, "More");
  const position = h("span", { class: "soft small", role: "status" });
  const pages = h("div", { class: "body tools", role: "group", "aria-label": "Pages of groups" }, earlier, " ", later, " ", position);
  // a large picture is made in slices and takes the leader longer: it is asked for less often
  const reading = new Reading(() => get(path(), 20_000), { show: draw, everyMs: (data) => Math.min(20_000, 3000 + 2 * (data?.groups ?? 0)) });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Why pending"), counts, h("div", { class: "tools" }, h("label", { for: "pending-order" }, "Order"), order)),
    reading.note, chips, facets,
    h("div", { class: "column" }, sheet("What would help most", {}, helps), sheet("Groups", {}, table.element, pages)));

  function path() {
    const query = new URLSearchParams({ limit: PAGE, by: "class" });
    for (const name of ["reason", "namespace", "priority", "class", "sort"]) if (state(name)) query.set(name, state(name));
    if (tokens.at(-1)) query.set("continue", tokens.at(-1));
    return `/v1/pending?${query}`;
  }
  function change(values) {
    keep(values);
    moved();
  }
  let wanted = path();
  function moved() {
    tokens.splice(0, tokens.length, "");
    order.value = state("sort") || "pods";
    if (path() === wanted) return;
    wanted = path();
    pick(reading.data);
    table.show([], "Reading …");
    reading.restart();
  }
  function turn(step) {
    if (step > 0) tokens.push(reading.data.continue);
    else tokens.pop();
    reading.now();
  }
  function pick(data) {
    const chosen = [...FACETS, ["class", "Class"]].filter(([name]) => state(name));
    fill(chips, chosen.map(([name, word]) => h("button", { type: "button", class: "chip", "aria-label": `Without ${word} ${state(name)}`, onclick: () => change({ [name]: "" }) }, h("span", { class: "soft" }, `${word} `), state(name), " ×")));
    chips.hidden = !chosen.length;
    fill(facets, FACETS.map(([name, word, field]) => facet(name, word, data?.[field] ?? [], (value) => change({ [name]: state(name) === value ? "" : value }))));
  }
  function draw(data) {
    for (const one of data.items) if (one.means) said.set(one.reason, one.means);
    const gated = data.gated ? ` · ${count(data.gated)} behind scheduling gates` : "";
    setText(counts, `${count(data.pods + data.gated)} waiting · ${count(data.classes)} ${data.classes === 1 ? "class" : "classes"}${gated}${data.age_s > 5 ? ` · grouped ${seconds(data.age_s)} ago` : ""}`);
    pick(data);
    fill(helps, data.helps?.length ? [h("p", { class: "soft small" }, "Each counted by itself over all groups, the pods of highest priority first."), helpList(data.helps)] : h("p", { class: "soft" }, data.pods ? "Nothing that this leader could name." : "Nothing waits."));
    table.show(data.items, "Nothing waits.");
    setText(position, `page ${tokens.length}${data.unjudged ? ` · ${plural(data.unjudged, "class").replace(/classs$/, "classes")} too many to judge: their groups name no remedy` : ""}`);
    earlier.disabled = tokens.length < 2;
    later.disabled = !data.continue;
    pages.hidden = tokens.length < 2 && !data.continue && !data.unjudged;
  }
  return { title: "Why pending", element, ...together(reading), moved };
}

/** The leader tells one row for each of these. */
const keyOf = (one) => `${one.reason}/${one.class}/${one.message}`;

function facet(name, word, rows, choose) {
  const most = Math.max(1, ...rows.map((one) => one.pods));
  const shown = rows.slice(0, FACET_ROWS);
  const rest = rows.length - shown.length;
  return h("section", { class: "sheet facet", "aria-label": `By ${word.toLowerCase()}` }, h("header", {}, h("h2", {}, `By ${word.toLowerCase()}`)),
    h("ul", { class: "body" }, shown.map((one) => {
      const bar = h("i", {});
      bar.style.width = `${(one.pods / most) * 100}%`;
      const value = String(one[name]);
      return h("li", {}, h("button", { type: "button", class: "facet-row", "aria-pressed": String(state(name) === value), "data-focus": `${name}/${value}`, onclick: () => choose(value) },
        h("span", { class: "facet-bar", "aria-hidden": "true" }, bar), h("span", { class: "facet-name" }, value.replaceAll("+", " + "), name === "reason" && said.has(value) ? h("span", { class: "soft" }, `: ${said.get(value)}`) : null),
        h("span", { class: "number" }, count(one.pods)), h("span", { class: "soft small number" }, seconds(one.oldest_s))));
    }), shown.length ? null : h("li", { class: "soft" }, "None."), rest > 0 ? h("li", { class: "soft small" }, `and ${count(rest)} more`) : null));
}

function reasonOf(one) {
  return [reasonWords(one),
    one.message ? h("div", { class: "soft small" }, one.message) : null];
}

function asked(requests) {
  const parts = Object.entries(requests ?? {}).map(([name, value]) => `${name.replace(/_(millis|bytes)$/, "")} ${amount(name, value)}`);
  return parts.length ? h("div", { class: "soft small" }, parts.join(", ")) : null;
}

/** To the pods of a group; the queue takes the same words. */
function podsLink(one) {
  const where = Object.entries(one.places ?? {}).map(([place, pods]) => `${count(pods)} ${placeWords(place)}`).join(", ");
  const address = to("queue", { reason: one.reason, namespace: one.namespace, priority: one.priorities.length > 1 ? "" : String(one.priority), class: one.class });
  return [h("a", { href: address, "data-focus": keyOf(one), "aria-label": `${plural(one.pods, "pod")} of this group` }, count(one.pods)),
    where ? h("div", { class: "soft small" }, where) : null];
}

const LINKED = new Set(["add_node", "free", "uncordon", "resume_node"]);

/** What would help, the best first, and how many pods each would let in. */
export function helpList(list) {
  if (!list?.length) return h("span", { class: "soft" }, "–");
  return h("ul", { class: "helps" }, list.map((one) => h("li", {},
    LINKED.has(one.kind) && one.target && one.text.includes(one.target) ? linked(one) : one.text,
    " ", Number.isFinite(one.lets_in) ? h("span", { class: one.lets_in ? "good nowrap" : "soft nowrap" }, `lets in ${count(one.lets_in)}${Number.isFinite(one.of) ? ` of ${count(one.of)}` : ""}`) : null)));
}

/** The text with its node as a link. */
function linked({ text, target }) {
  const at = text.indexOf(target);
  // whole: who follows the advice types it
  return [text.slice(0, at), h("a", { class: "node-name", href: `#/nodes/${segment(target)}` }, target), text.slice(at + target.length)];
}
