// A document as a page: the runbooks, which alerts and findings link to, and the reasons for which pods wait. Why it exists:
// whoever is woken may have neither the repository nor a token. It reads the documentation's own file, which is served
// beside it and which the page names (`data-reads`); of Markdown it knows what these files use. Like everything here it
// makes text nodes and no markup.

import { fill, h } from "./dom.js";

const INLINE = /<a id="([\w-]+)"><\/a>|`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\[([^\]]+)\]\(([^)]+)\)/g;

/** The name by which a heading is linked to. */
export function anchorOf(title) {
  return title.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-");
}

/** {title, blocks, sections: [{title, anchor, blocks}]}; a block is {kind: "text" or "code", text}, {kind: "table", rows} or
 * {kind: "list", items}. */
export function parsed(markdown) {
  const page = { title: "", blocks: [], sections: [] };
  let place = page;
  for (const block of blocksOf(markdown)) {
    const heading = /^(#+) (.*)$/.exec(block);
    if (!heading) place.blocks.push(typed(block));
    else if (heading[1] === "#") page.title = heading[2];
    else page.sections.push((place = { title: heading[2], anchor: anchorOf(heading[2]), blocks: [] }));
  }
  return page;
}

/** Parts between empty lines; of a fenced one the empty lines are its own, and a heading stands alone. */
function blocksOf(markdown) {
  const found = [];
  let lines = [];
  let fenced = false;
  const end = () => {
    if (lines.length) found.push(lines.join("\n"));
    lines = [];
  };
  for (const line of markdown.split("\n")) {
    const fence = line.startsWith("```");
    if (!fenced && (fence || !line.trim() || line.startsWith("#"))) end();
    if (fenced || line.trim()) lines.push(line);
    if (fence) fenced = !fenced;
    if (!fenced && (fence || line.startsWith("#"))) end();
  }
  end();
  return found;
}

function typed(block) {
  if (block.startsWith("```")) return { kind: "code", text: block.split("\n").slice(1, -1).join("\n") };
  if (block.startsWith("- ")) return { kind: "list", items: block.slice(2).split(/\n- /).map((item) => item.replaceAll(/\s+/g, " ")) };
  if (!block.startsWith("|")) return { kind: "text", text: block.replaceAll("\n", " ") };
  const rows = block.split("\n").filter((row) => !/^\|[-|: ]+\|$/.test(row));
  return { kind: "table", rows: rows.map((row) => row.replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim())) };
}

/** [{text, code?, bold?, link?, id?}]; `id`: a place that is linked to; a link to another file of the documentation is its
 * text alone: it is not served here. */
export function inline(text) {
  const parts = [];
  let at = 0;
  for (const found of text.matchAll(INLINE)) {
    if (found.index > at) parts.push({ text: text.slice(at, found.index) });
    const [whole, id, code, bold, soft, words, address] = found;
    if (id) parts.push({ text: "", id });
    else if (code) parts.push({ text: code, code: true });
    else if (bold || soft) parts.push({ text: bold ?? soft, bold: Boolean(bold) });
    else parts.push({ text: words, link: address.startsWith("#") ? address : undefined });
    at = found.index + whole.length;
  }
  if (at < text.length) parts.push({ text: text.slice(at) });
  return parts;
}

function shown(text) {
  return inline(text).map((part) => (part.code ? h("code", {}, part.text) : part.bold ? h("b", {}, part.text) : part.link ? h("a", { href: part.link }, part.text) : part.id ? h("a", { id: part.id }) : part.text));
}

function block({ kind, text, rows, items }) {
  if (kind === "list") return h("ul", {}, items.map((item) => h("li", {}, shown(item))));
  if (kind === "code") return h("pre", {}, h("code", {}, text));
  if (kind === "text") return h("p", {}, shown(text));
  const [heads, ...cells] = rows;
  return h("div", { class: "scroll" }, h("table", {}, h("caption", { class: "hidden-text" }, heads.flatMap(inline).map((part) => part.text).join(", ")), h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, shown(head))))),
    h("tbody", {}, cells.map((row) => h("tr", {}, row.map((cell) => h("td", {}, shown(cell))))))));
}

async function main() {
  const main = document.getElementById("main");
  const page = parsed(await (await fetch(main.dataset.reads)).text());
  fill(main, h("div", { class: "runbooks" }, h("h1", {}, page.title), page.blocks.map(block),
    page.sections.map((section) => h("section", { class: "runbook", id: section.anchor, "aria-label": section.title }, h("h2", {}, section.title), section.blocks.map(block)))));
  const go = () => document.getElementById(location.hash.slice(1))?.scrollIntoView();
  addEventListener("hashchange", go);
  go();
}

if (globalThis.document) main();
