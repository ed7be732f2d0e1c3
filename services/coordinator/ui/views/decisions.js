// What was decided lately; each row opens its explanation. Rows hold still while somebody points at them.

import { segment } from "../api.js";
import { h, setText } from "../dom.js";
import { clock, count, score } from "../format.js";
import { Listing } from "../listing.js";
import { nodeLink, nodeName } from "../names.js";
import { heldStill, sheet, Table } from "../table.js";

const EVERY_MS = 1000;
const SHOWN = 60;
const REMEMBERED = 200;

const keyOf = (one) => `${one.uid}/${one.attempt ?? 0}/${one.time}`;

const podLink = (one) => h("a", { href: `#/pods/${segment(one.namespace)}/${segment(one.name)}`, "data-focus": keyOf(one), title: `${one.namespace}/${one.name}` }, `${one.namespace}/${one.name}`);
const chosenScore = (one) => one.considered?.find((other) => other.node === one.node)?.score;

/** Shows decisions once a second, but never while somebody is at the rows. */
class Stilled {
  #live;
  #note;
  #draw;
  #held;
  #timer = 0;
  #due = false;
  #listener = () => { this.#due = true; };

  constructor(live, rows, note, draw) {
    this.#live = live;
    this.#note = note;
    this.#draw = draw;
    this.#held = heldStill(rows, this.#listener);
  }

  start() {
    this.#due = true;
    this.#show();
    this.#live.addEventListener("decisions", this.#listener);
    this.#timer = setInterval(() => this.#show(), EVERY_MS);
  }

  stop() {
    clearInterval(this.#timer);
    this.#live.removeEventListener("decisions", this.#listener);
  }

  #show() {
    if (!this.#due || document.hidden) return;
    if (this.#held()) {
      setText(this.#note, "held still while you read");
      return;
    }
    this.#due = false;
    setText(this.#note, this.#live.dropped ? `${count(this.#live.dropped)} passed unseen` : "");
    this.#draw();
  }
}

/** The newest `limit` decisions: a few columns, nothing to search. */
export class DecisionTable {
  #still;

  constructor(live, limit, caption) {
    this.note = h("span", { class: "soft small" });
    const table = new Table({
      caption,
      columns: [
        { title: "Time", cell: (one) => clock(one.time) },
        { title: "Pod", head: true, cell: podLink },
        { title: "Node", cell: (one) => nodeName(one.node) },
        { title: "Policy", cell: (one) => one.policy },
        { title: "Score", number: true, cell: (one) => score(chosenScore(one)) },
        { title: "Considered", number: true, cell: (one) => count(one.considered?.length) },
      ],
      keyOf,
      signOf: () => "",
      empty: "Nothing was decided yet.",
    });
    this.element = table.element;
    this.#still = new Stilled(live, table.body, this.note, () => table.show(live.decisions(limit)));
  }

  start() {
    this.#still.start();
  }

  stop() {
    this.#still.stop();
  }
}

/** All that this page remembers, to be searched. */
export function decisionsView({ live }) {
  const list = new Listing({
    caption: "Decisions, newest first",
    columns: [
      { title: "Time", cell: (one) => clock(one.time), sort: (one) => one.time },
      { title: "Pod", head: true, cell: podLink, sort: (one) => `${one.namespace}/${one.name}` },
      { title: "Node", cell: (one) => nodeLink(one.node), sort: (one) => one.node },
      { title: "Policy", cell: (one) => one.policy, sort: (one) => one.policy },
      { title: "Score", number: true, cell: (one) => score(chosenScore(one)), sort: chosenScore },
      { title: "Considered", number: true, cell: (one) => count(one.considered?.length), sort: (one) => one.considered?.length },
      { title: "Evicted for it", key: "evicted", cell: (one) => (one.evicted?.length ? one.evicted.join(", ") : "–"), sort: (one) => one.evicted?.length || null },
    ],
    keyOf,
    signOf: () => "",
    search: (one) => `${one.namespace}/${one.name} ${one.node} ${one.policy} ${one.uid} ${one.evicted?.join(" ") ?? ""}`,
    placeholder: "Pod, node or policy",
    filters: [
      { name: "namespace", label: "Namespace", all: "every namespace", options: [], test: (one, value) => one.namespace === value },
      { name: "policy", label: "Policy", all: "every policy", options: [], test: (one, value) => one.policy === value },
    ],
    order: "-time",
    empty: "Nothing was decided yet.",
    rows: SHOWN,
  });
  const note = h("span", { class: "soft small" });
  const find = h("input", { type: "search", id: "find-pod", placeholder: "namespace/pod", autocomplete: "off", spellcheck: "false" });
  const form = h("form", { class: "tools", onsubmit: (event) => {
    event.preventDefault();
    const [first, second] = find.value.trim().split("/");
    if (first) location.hash = second ? `#/pods/${segment(first)}/${segment(second)}` : `#/pods/default/${segment(first)}`;
  } }, h("label", { for: "find-pod" }, "Explain a pod"), find, h("button", { type: "submit" }, "Explain"));
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Decisions"), form),
    sheet("Newest decisions", { tools: [note, ...list.tools] }, list.elements));
  const still = new Stilled(live, list.table.body, note, () => {
    const items = live.decisions(REMEMBERED);
    list.offer("namespace", [...new Set(items.map((one) => one.namespace))].sort().map((value) => [value, value]));
    list.offer("policy", [...new Set(items.map((one) => one.policy))].sort().map((value) => [value, value]));
    list.show(items);
  });
  return { title: "Decisions", element, start: () => still.start(), stop: () => still.stop(), moved: () => list.moved() };
}
