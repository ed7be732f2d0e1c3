// How many pods wait, and where: the same sum and the same words on every page. Pure: the counts by place that the leader
// tells in, figures and words out.

import { documentAt } from "./address.js";
import { h } from "./dom.js";

/** In the order in which they are told; kube-scheduler's words. */
export const PLACES = ["active", "backoff", "unschedulable", "in_flight", "gated", "unsupported"];

const STATES = {
  not_ours: "another scheduler's", gated: "held by scheduling gates", terminating: "Terminating", placing: "being placed",
  unsupported: "not supported", invalid: "cannot be read",
};
const HELD = { QueueQuota: "held by quota", QueueUnusable: "held, its queue cannot be used" };

/** What an explained pod does, in words: the command line's. */
export function stateWords({ state, queue }) {
  return HELD[queue?.reason] ?? STATES[state] ?? state;
}

/** What holds a unit back in its queue, in words. */
export function heldWords(reason) {
  return HELD[reason] ?? "held by its queue";
}

/** Why it waits: the word as a link to where it is explained, and what it means. */
export function reasonWords({ reason, means, page }) {
  const word = reason.replaceAll("+", " + ");
  return [page ? h("a", { class: "breakable", href: documentAt(page), target: "_blank", rel: "noopener" }, word) : h("span", { class: "breakable" }, word),
    means ? h("span", { class: "soft" }, `: ${means}`) : null];
}

/** A place in words. */
export function placeWords(place) {
  return place === "in_flight" ? "being placed" : String(place).replaceAll("_", " ");
}

/** All pods of ours that are on no node yet, whatever keeps them; NaN where nothing is known. */
export function waiting(counts) {
  return counts ? PLACES.reduce((sum, place) => sum + (counts[place] || 0), 0) : NaN;
}

/** The places that hold any: [place, number]. */
export function waitingBy(counts) {
  return PLACES.map((place) => [place, counts?.[place] || 0]).filter(([, number]) => number);
}
