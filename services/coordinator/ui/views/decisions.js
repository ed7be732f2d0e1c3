// What was decided lately; each row opens its explanation. Rows hold still while somebody points at them.

import { segment } from "../api.js";
import { h, setText } from "../dom.js";
import { clock, count, score } from "../format.js";
import { heldStill, sheet, Table } from "../table.js";

const EVERY_MS = 1000;
const SHOWN = 60;

const keyOf = (one) => `${one.uid}/${one.attempt ?? 0}/${one.time}`;

/** The newest `limit` decisions, once a second. */
export class DecisionTable {
  #live;
  #limit;
  #table;
  #held;
  #timer = 0;
  #due = false;
  #listener = () => { this.#due = true; };

  constructor(live, limit, caption) {
    this.#live = live;
    this.#limit = limit;
    this.note = h("span", { class: "soft small" });
    this.#table = new Table({
      caption,
      columns: [
        { title: "Time", cell: (one) => clock(one.time) },
        { title: "Pod", head: true, cell: (one) => h("a", { href: `#/pods/${segment(one.namespace)}/${segment(one.name)}`, "data-focus": keyOf(one) }, `${one.namespace}/${one.name}`) },
        { title: "Node", cell: (one) => one.node },
        { title: "Policy", cell: (one) => one.policy },
        { title: "Score", number: true, cell: (one) => score(one.considered?.find((other) => other.node === one.node)?.score) },
        { title: "Considered", number: true, cell: (one) => count(one.considered?.length) },
      ],
      keyOf,
      signOf: () => "",
      stack: true,
      empty: "Nothing was decided yet.",
    });
    this.element = this.#table.element;
    this.#held = heldStill(this.#table.body, () => { this.#due = true; });
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
      setText(this.note, "held still while you read");
      return;
    }
    this.#due = false;
    setText(this.note, this.#live.dropped ? `${count(this.#live.dropped)} passed unseen` : "");
    this.#table.show(this.#live.decisions(this.#limit));
  }
}

export function decisionsView({ live }) {
  const table = new DecisionTable(live, SHOWN, "Decisions, newest first");
  const find = h("input", { type: "search", id: "find-pod", placeholder: "namespace/pod", autocomplete: "off", spellcheck: "false" });
  const form = h("form", { class: "tools", onsubmit: (event) => {
    event.preventDefault();
    const [first, second] = find.value.trim().split("/");
    if (first) location.hash = second ? `#/pods/${segment(first)}/${segment(second)}` : `#/pods/default/${segment(first)}`;
  } }, h("label", { for: "find-pod" }, "Explain a pod"), find, h("button", { type: "submit" }, "Explain"));
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Decisions"), form),
    sheet("Newest decisions", { tools: [table.note] }, table.element));
  return { title: "Decisions", element, start: () => table.start(), stop: () => table.stop() };
}
