// Tables with a caption and real headers; on a narrow screen the important ones become stacked rows that keep their
// roles. Also pages of a list, and tables that hold still while somebody reads them.

import { get } from "./api.js";
import { h, setText, syncRows } from "./dom.js";

/** `columns`: [{title, number?, cell: item => child, head?}]; `keyOf`/`signOf` name a row and what it shows. */
export class Table {
  constructor({ caption, columns, keyOf, signOf, empty, stack = false }) {
    this.columns = columns;
    this.keyOf = keyOf ?? ((_, index) => index);
    this.signOf = signOf ?? ((item) => JSON.stringify(item));
    this.stack = stack;
    this.body = h("tbody", { role: "rowgroup" });
    this.caption = h("caption", {}, caption);
    this.none = h("p", { class: "none" }, empty ?? "Nothing here.");
    this.table = h(
      "table", { role: "table", class: stack ? "stack-small" : null }, this.caption,
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((column) =>
        h("th", { scope: "col", role: "columnheader", class: column.number ? "number" : null }, column.title)))),
      this.body,
    );
    this.element = h("div", { class: "flush", role: "group", "aria-label": caption, tabindex: "0" }, this.table, this.none);
    this.show([]);
  }

  show(items) {
    this.table.hidden = !items.length;
    this.none.hidden = items.length > 0;
    syncRows(this.body, items, this.keyOf, (item) => this.#row(item), this.signOf);
  }

  #row(item) {
    return h("tr", { role: "row" }, this.columns.map((column) =>
      column.head
        ? h("th", { scope: "row", role: "rowheader", class: "name" }, column.cell(item))
        : h("td", { role: "cell", class: column.number ? "number" : null, "data-label": column.title }, column.cell(item))));
  }
}

/** Tells whether somebody is at the element with pointer or focus; rows must not move from under them. */
export function heldStill(element, changed) {
  let pointer = false;
  const held = () => pointer || (element.contains(document.activeElement) && document.activeElement.matches(":focus-visible"));
  element.addEventListener("pointerenter", (event) => { pointer = event.pointerType === "mouse"; });
  element.addEventListener("pointerleave", () => { pointer = false; changed(); });
  element.addEventListener("focusout", () => setTimeout(changed, 0));
  return held;
}

/** Pages of a list route under a table: `path` without `limit` and `continue`. */
export class Pager {
  #stack = [""];
  #next = "";

  constructor(table, { path, limit = 50, onError }) {
    this.table = table;
    this.path = path;
    this.limit = limit;
    this.onError = onError;
    this.position = h("span", { class: "soft small" });
    this.earlier = h("button", { type: "button", onclick: () => this.#go(-1) }, "Earlier");
    this.later = h("button", { type: "button", onclick: () => this.#go(1) }, "More");
    this.element = h("div", { class: "body tools", role: "group", "aria-label": "Pages" }, this.earlier, " ", this.later, " ", this.position);
  }

  /** From the first page, with another path. */
  restart(path) {
    this.path = path;
    this.#stack = [""];
    return this.load();
  }

  async load() {
    const from = this.#stack.at(-1);
    const mark = this.path.includes("?") ? "&" : "?";
    try {
      const page = await get(`${this.path}${mark}limit=${this.limit}${from ? `&continue=${encodeURIComponent(from)}` : ""}`);
      this.#next = page.continue ?? "";
      this.table.show(page.items);
      this.earlier.disabled = this.#stack.length < 2;
      this.later.disabled = !this.#next;
      this.element.hidden = this.#stack.length < 2 && !this.#next;
      setText(this.position, `page ${this.#stack.length}`);
      return page;
    } catch (error) {
      this.onError?.(error);
      return null;
    }
  }

  #go(step) {
    if (step > 0) this.#stack.push(this.#next);
    else this.#stack.pop();
    this.load();
  }
}

/** A titled part of a view. */
export function sheet(title, { tools = [], id } = {}, ...children) {
  const heading = h("h2", { id }, title);
  return h("section", { class: "sheet", "aria-label": title }, h("header", {}, heading, tools.length ? h("div", { class: "tools" }, tools) : null), children);
}

/** Term and description pairs; those without a description are left out. */
export function pairs(list) {
  return h("dl", { class: "pairs" }, list.filter(([, told]) => told !== null && told !== undefined && told !== "").map(([term, told]) => [h("dt", {}, term), h("dd", {}, told)]));
}

/** A share as a bar with its number; nearly full ones stand out where `warns`. */
export function meter(share, text, { warns = true } = {}) {
  const bar = h("i", { class: warns && share > 0.9 ? "full" : null });
  bar.style.width = `${Math.max(0, Math.min(1, share || 0)) * 100}%`;
  return [h("span", { class: "meter", "aria-hidden": "true" }, bar), text];
}

