// Tables with a caption and real headers; on a narrow screen rows become cards that keep their roles. Also what holds
// still while somebody reads it, and the small parts that views share: sheets, pairs, bars.

import { h, syncRows } from "./dom.js";

/** What a cell without a value holds. */
const NOTHING = new Set(["", "–"]);

/** `columns`: [{title, number?, bar?, wide?, cell: item => child, head?, sort?}]; a `bar` begins at the same place in each row, what is
 * `wide` gets room; `keyOf`/`signOf` name a row and what it shows; `onSort(column)`: headers of columns with `sort` become buttons. A column
 * that holds nothing in any row is not shown. */
export class Table {
  constructor({ caption, columns, keyOf, signOf, empty, onSort }) {
    this.columns = columns;
    this.keyOf = keyOf ?? ((_, index) => index);
    this.signOf = signOf ?? ((item) => JSON.stringify(item));
    this.body = h("tbody", { role: "rowgroup" });
    this.caption = h("caption", {}, caption);
    this.none = h("p", { class: "none" }, empty ?? "Nothing here.");
    this.heads = columns.map((column) => h("th", { scope: "col", role: "columnheader", class: classOf(column) },
      onSort && column.sort ? h("button", { type: "button", class: "sort", onclick: () => onSort(column) }, column.title) : column.title));
    this.table = h(
      "table", { role: "table", class: "stack-small" }, this.caption,
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)), this.body,
    );
    this.element = h("div", { class: "flush", role: "group", "aria-label": caption, tabindex: "0" }, this.table, this.none);
    this.show([]);
  }

  /** `words`: what stands there where there are no items. */
  show(items, words) {
    this.table.hidden = !items.length;
    this.none.hidden = items.length > 0;
    if (words && !items.length && this.none.textContent !== words) this.none.textContent = words;
    syncRows(this.body, items, this.keyOf, (item) => this.#row(item), this.signOf);
    this.columns.forEach((column, number) => this.#hide(number, !column.head && column !== this.by && this.#empty(number)));
  }

  #empty(number) {
    return this.body.children.length > 0 && [...this.body.children].every((row) => NOTHING.has(row.children[number].textContent.trim()));
  }

  #hide(number, hidden) {
    this.heads[number].hidden = hidden;
    for (const row of this.body.children) row.children[number].hidden = hidden;
  }

  /** Marks the column that rows are in order of; `down`: greatest first. */
  sorted(by, down) {
    this.by = by;
    this.columns.forEach((column, number) => {
      if (column === by) this.heads[number].setAttribute("aria-sort", down ? "descending" : "ascending");
      else this.heads[number].removeAttribute("aria-sort");
    });
  }

  #row(item) {
    return h("tr", { role: "row" }, this.columns.map((column) =>
      column.head
        ? h("th", { scope: "row", role: "rowheader", class: column.wide ? "name wide" : "name" }, column.cell(item))
        : h("td", { role: "cell", class: classOf(column), "data-label": column.title }, column.cell(item))));
  }
}

function classOf(column) {
  return ["number", "bar", "wide"].filter((name) => column[name]).join(" ") || null;
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

/** A table that is drawn once: `heads` [title or {title, number}], `rows` of cells, the first of each its header. */
export function plainTable(caption, heads, rows, { captionShown = false } = {}) {
  const columns = heads.map((one) => (typeof one === "string" ? { title: one } : one));
  return h("div", { class: "scroll" }, h("table", {}, h("caption", { class: captionShown ? null : "hidden-text" }, caption),
    h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.number ? "number" : null }, column.title)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell, place) => (place
      ? h("td", { class: columns[place].number ? "number" : null }, cell)
      : h("th", { scope: "row" }, cell))))))));
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
  return h("span", { class: "metered" }, h("span", { class: "meter", "aria-hidden": "true" }, bar), h("span", {}, text));
}
