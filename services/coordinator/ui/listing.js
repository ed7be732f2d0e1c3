// A list of the cluster as a table to search, sort and filter, a page at a time; its state stands in the address. Why it
// exists: every list works alike. It shows what a reading brought and never says "none" before one was brought. Items that
// say the same are one row, and each by itself once somebody asks for that.

import { keep, state } from "./address.js";
import { fill, h, setText } from "./dom.js";
import { count } from "./format.js";
import { Table } from "./table.js";

const ROWS = 100;

/**
 * `id`: what its values are called in the address ("" for the only list of a view). `columns` as of a table, with
 * `sort: item => number or text`. `search: item => text` that is looked through. `filters`: [{name, label, options,
 * test: (item, value) => bool}], `options`: [[value, words]], `all`: the words for no choice; one without `test` is
 * the reader's own (`onChange(name)` is called), as are the values named in `also`. `order`: "-pods" or "name", the order
 * where nobody asked for another. `fold`: {alike: item => text, join: items => item}: items alike are shown as the one
 * that `join` makes of them.
 */
export class Listing {
  #id;
  #items = [];
  #more = false;
  #read = false;
  #search;
  #filters;
  #order;
  #empty;
  #onChange;
  #also;
  #selects = new Map();
  #rows;
  #fold;
  #unfolded = new Set();

  constructor({ id = "", caption, columns, keyOf, signOf, search, filters = [], order = "", empty = "Nothing here.", onChange = () => {}, also = [], placeholder = "Search", rows = ROWS, fold = null }) {
    this.#id = id ? `${id}.` : "";
    this.#search = search;
    this.#filters = filters;
    this.#order = order;
    this.#empty = empty;
    this.#onChange = onChange;
    this.#also = also;
    this.#rows = rows;
    this.#fold = fold;
    this.columns = fold ? columns.map((column) => (column.head ? { ...column, cell: (item) => [column.cell(item), this.#others(item)] } : column)) : columns;
    const sign = signOf ?? JSON.stringify;
    this.table = new Table({ caption, columns: this.columns, keyOf, signOf: (item) => (item.folded ? `${item.folded.items.length} ${sign({ ...item, folded: null })}` : sign(item)), empty: "Reading …", onSort: (column) => this.#sortBy(column) });
    const name = (part) => `list-${id || "main"}-${part}`;
    this.find = search ? h("input", { type: "search", id: name("find"), placeholder, "aria-label": `${placeholder}: ${caption}`, autocomplete: "off", spellcheck: "false", oninput: () => this.#set({ q: this.find.value.trim(), page: "" }) }) : null;
    const selects = filters.map((filter) => {
      const select = h("select", { id: name(filter.name), "aria-label": filter.label, onchange: () => { this.#set({ [filter.name]: select.value, page: "" }); this.#onChange(filter.name); } });
      this.#selects.set(filter.name, select);
      return select;
    });
    const sortable = columns.filter((column) => column.sort);
    this.order = sortable.length ? h("select", { id: name("order"), class: "only-small", "aria-label": `Order of ${caption}`, onchange: () => this.#set({ sort: this.order.value, page: "" }) },
      [...(order ? [] : [["As they are told", ""]]), ...sortable.flatMap((column) => [[column.title, keyOfColumn(column)], [`${column.title}, greatest first`, `-${keyOfColumn(column)}`]])].map(([words, value]) => h("option", { value }, words))) : null;
    this.clear = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => this.reset() }, "Clear");
    this.tools = [this.find, ...selects, this.order, this.clear].filter(Boolean);
    this.position = h("span", { class: "soft small", role: "status" });
    this.earlier = h("button", { type: "button", onclick: () => this.#turn(-1) }, "Earlier");
    this.later = h("button", { type: "button", onclick: () => this.#turn(1) }, "More");
    this.pages = h("div", { class: "body tools", role: "group", "aria-label": `Pages of ${caption}` }, this.earlier, " ", this.later, " ", this.position);
    this.elements = [this.table.element, this.pages];
    this.moved();
  }

  value(name) {
    return state(this.#id + name);
  }

  /** Choices of a filter that are only known once something was read. */
  offer(name, options) {
    const filter = this.#filters.find((one) => one.name === name);
    if (JSON.stringify(filter.options) === JSON.stringify(options)) return;
    filter.options = options;
    this.#fillSelect(filter);
  }

  /** All that was read; `more`: there is more than was read. */
  show(items, { more = false } = {}) {
    this.#items = items;
    this.#more = more;
    this.#read = true;
    this.#draw();
  }

  /** Nothing that was shown is the answer any more. */
  forget() {
    this.#items = [];
    this.#read = false;
    this.#draw();
  }

  /** The address says something else. */
  moved() {
    if (this.find && document.activeElement !== this.find) this.find.value = this.value("q");
    for (const filter of this.#filters) this.#fillSelect(filter);
    this.#draw();
  }

  reset() {
    const values = { q: "", page: "", sort: "" };
    for (const filter of this.#filters) values[filter.name] = "";
    for (const name of this.#also) values[name] = "";
    const changed = Object.keys(values).filter((name) => this.value(name));
    this.#set(values);
    this.moved();
    for (const name of changed) this.#onChange(name);
  }

  /** Items that the search and the filters let through, in order. */
  found() {
    const words = this.value("q").toLowerCase().split(/\s+/).filter(Boolean);
    const filters = this.#filters.filter((filter) => filter.test && this.value(filter.name)).map((filter) => [filter.test, this.value(filter.name)]);
    const found = this.#items.filter((item) => filters.every(([test, value]) => test(item, value)) && (!words.length || has(this.#search(item), words)));
    const [column, down] = this.#sorting();
    return column ? inOrder(found, column.sort, down) : found;
  }

  /** What stands below the name of a row that is several: a button that shows them. */
  #others(item) {
    if (!item.folded) return null;
    return h("div", {}, h("button", { type: "button", class: "link small", "data-focus": `fold/${item.folded.key}`, onclick: () => { this.#unfolded.add(item.folded.key); this.#draw(); } }, `and ${count(item.folded.items.length - 1)} alike`));
  }

  #sorting() {
    const wanted = this.value("sort") || this.#order;
    const down = wanted.startsWith("-");
    const column = this.columns.find((one) => one.sort && keyOfColumn(one) === wanted.slice(down ? 1 : 0));
    return [column, down];
  }

  #sortBy(column) {
    const [now, down] = this.#sorting();
    const key = keyOfColumn(column);
    const downFirst = Boolean(column.number || column.bar);
    const again = now === column && down === downFirst;
    this.#set({ sort: downFirst !== again ? `-${key}` : key, page: "" });
  }

  #set(values) {
    keep(Object.fromEntries(Object.entries(values).map(([key, value]) => [this.#id + key, value])));
    this.#draw();
  }

  #turn(step) {
    this.#set({ page: String(Math.max(1, (Number(this.value("page")) || 1) + step)) });
  }

  #draw() {
    const found = this.found();
    // who searches looks for one of them
    const rows = this.#fold && !this.value("q") ? folded(found, this.#fold, this.#unfolded) : found;
    const pages = Math.max(1, Math.ceil(rows.length / this.#rows));
    const page = Math.min(pages, Math.max(1, Number(this.value("page")) || 1));
    const from = (page - 1) * this.#rows;
    const [column, down] = this.#sorting();
    this.table.sorted(column, down);
    if (this.order) this.order.value = column ? `${down ? "-" : ""}${keyOfColumn(column)}` : "";
    const narrowed = Boolean(this.value("q")) || [...this.#filters.map((filter) => filter.name), ...this.#also].some((name) => this.value(name));
    this.clear.hidden = !narrowed;
    this.table.show(rows.slice(from, from + this.#rows), !this.#read ? "Reading …" : narrowed ? "Nothing matches." : this.#empty);
    this.earlier.disabled = page <= 1;
    this.later.disabled = page >= pages;
    this.earlier.hidden = this.later.hidden = pages < 2;
    const all = `${count(this.#items.length)}${this.#more ? " or more" : ""}`;
    const several = rows.length < found.length ? ` rows, ${count(found.length)} in all` : "";
    const span = pages > 1 ? `${count(from + 1)}–${count(Math.min(rows.length, from + this.#rows))} of ${count(rows.length)}${several}` : count(found.length);
    setText(this.position, narrowed ? `${span} found, of ${all}` : pages > 1 ? `${span}${this.#more ? " or more" : ""}` : "");
    this.pages.hidden = pages < 2 && !narrowed;
  }

  #fillSelect(filter) {
    const select = this.#selects.get(filter.name);
    const chosen = this.value(filter.name);
    const options = filter.options ?? [];
    const known = !chosen || options.some(([value]) => value === chosen);
    fill(select, h("option", { value: "" }, filter.all), options.map(([value, words]) => h("option", { value }, words ?? value)), known ? null : h("option", { value: chosen }, chosen));
    select.value = chosen;
  }
}

/** The items with those that are alike as one, where the first of them was; `unfolded`: what is to stay apart. A joined one carries
 * `folded`: {key, items}. */
export function folded(items, { alike, join }, unfolded = new Set()) {
  const groups = new Map();
  items.forEach((item, number) => {
    const key = alike(item);
    const place = unfolded.has(key) ? `${key}\u0000${number}` : key;
    if (groups.has(place)) groups.get(place).items.push(item);
    else groups.set(place, { key, items: [item] });
  });
  return [...groups.values()].map((group) => (group.items.length > 1 ? { ...join(group.items), folded: group } : group.items[0]));
}

function keyOfColumn(column) {
  return column.key ?? column.title.toLowerCase().replaceAll(" ", "-");
}

function has(text, words) {
  const low = text.toLowerCase();
  return words.every((word) => low.includes(word));
}

const collate = new Intl.Collator("en", { numeric: true }).compare;

/** Missing values come last, whichever way; equal ones stay as they came. */
function inOrder(items, of, down) {
  const keyed = items.map((item) => [of(item), item]);
  const none = (value) => value === null || value === undefined || Number.isNaN(value);
  keyed.sort(([a], [b]) => {
    if (none(a) || none(b)) return none(a) - none(b);
    const order = typeof a === "number" && typeof b === "number" ? a - b : collate(String(a), String(b));
    return down ? -order : order;
  });
  return keyed.map(([, item]) => item);
}
