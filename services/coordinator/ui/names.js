// Names of nodes as people read them: what nearly all names of a cluster share is left out where names are long, and told
// whole on hover. Why it exists: clouds begin and end names alike (ip-10-0-…eu-west-1.compute.internal), and what tells
// two nodes apart must stand on one line. Above the bar pure; the one thing that is kept is what the names share.

import { segment } from "./api.js";
import { h } from "./dom.js";

/** Longer names are shortened. */
const LONG = 16;
/** Less is not worth a dot. */
const LEAST_CUT = 4;
/** So many of the names must have the part: one odd name keeps the others no longer. */
const NEARLY_ALL = 0.8;

/** What nearly all names begin and end with, up to a separator: {head, tail}; empty where there is nothing. */
export function shared(names) {
  const enough = Math.max(2, Math.ceil(names.length * NEARLY_ALL));
  const head = longest(names, (name) => ends(name).map((at) => name.slice(0, at)), enough);
  const rest = head ? names.filter((name) => name.startsWith(head)).map((name) => name.slice(head.length)) : names;
  const tail = longest(rest, (name) => ends(name).map((at) => name.slice(at - 1)), enough);
  return { head, tail };
}

/** The name without what is shared, where it is long; no two names become one. */
export function shortened(name, { head, tail }) {
  if (name.length <= LONG) return name;
  const from = head && name.startsWith(head) ? head.length : 0;
  const to = tail && name.endsWith(tail) && name.length - tail.length > from ? name.length - tail.length : name.length;
  return `${from ? "…" : ""}${name.slice(from, to)}${to < name.length ? "…" : ""}`;
}

/** Places right after a separator, the last character never among them. */
function ends(name) {
  const found = [];
  for (let at = 1; at < name.length; at++) if ("-._".includes(name[at - 1])) found.push(at);
  return found;
}

function longest(names, partsOf, enough) {
  const counts = new Map();
  for (const name of names) for (const part of partsOf(name)) counts.set(part, (counts.get(part) ?? 0) + 1);
  let best = "";
  for (const [part, count] of counts) if (count >= enough && part.length >= LEAST_CUT && part.length > best.length) best = part;
  return best;
}

// --- what this page knows of the cluster's names ---

let common = { head: "", tail: "" };
let known = 0;

/** Names of nodes that were read; those of the whole cluster count more than those of a page. */
export function learn(names) {
  if (names.length < known) return;
  known = names.length;
  common = shared(names);
}

/** A node's name on one line, whole on hover. */
export function nodeName(name) {
  return h("span", { class: "node-name", title: name }, shortened(String(name), common));
}

/** The same as a link to the node. `focus`: what to call it for whom rows are renewed under. */
export function nodeLink(name, focus) {
  const short = shortened(String(name), common);
  return h("a", { class: "node-name", href: `#/nodes/${segment(name)}`, title: name, "aria-label": short === name ? null : name, "data-focus": focus }, short);
}
