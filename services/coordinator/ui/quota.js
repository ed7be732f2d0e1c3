// What a queue may use: a bar per resource with what is used, what of it is borrowed, the guarantee and the maximum.

import { h } from "./dom.js";
import { amount } from "./format.js";
import { resourceWord } from "./resources.js";

/** used, guarantee and maximum in words: "12 of 16, 8 guaranteed". */
export function quotaWords(one) {
  const parts = [amount(one.name, one.used)];
  if (one.maximum !== null && one.maximum !== undefined) parts.push(` of at most ${amount(one.name, one.maximum)}`);
  if (one.guaranteed !== null && one.guaranteed !== undefined) parts.push(`, ${amount(one.name, one.guaranteed)} guaranteed`);
  return parts.join("");
}

/** What the whole bar stands for, in the resource's unit: the maximum; where there is no limit at all, the cluster. */
export function quotaScale(one) {
  const limited = Math.max(one.maximum ?? 0, one.guaranteed ?? 0, one.used ?? 0);
  return one.maximum || one.guaranteed || !one.share ? limited : one.used / one.share;
}

/** A resource's bar with its words beside it. */
export function quotaBar(one) {
  const whole = quotaScale(one);
  const share = (value) => `${whole ? Math.max(0, Math.min(1, value / whole)) * 100 : 0}%`;
  // without a guarantee all is borrowed: one colour then
  const borrowed = one.guaranteed ? Math.max(0, Math.min(one.borrowed ?? 0, one.used)) : 0;
  const own = h("i", {});
  own.style.width = share(one.used - borrowed);
  const over = h("i", { class: "borrowed" });
  over.style.width = share(borrowed);
  const guarantee = one.guaranteed ? h("b", {}) : null;
  if (guarantee) guarantee.style.left = share(one.guaranteed);
  return h("div", { class: "quota" }, h("span", { class: "soft small" }, resourceWord(one.name)),
    h("span", { class: "quota-bar", "aria-hidden": "true" }, own, over, guarantee), h("span", { class: "small" }, quotaWords(one)));
}

/** All resources of a queue. */
export function quotaBars(queue) {
  return queue.resources?.length ? queue.resources.map(quotaBar) : h("span", { class: "soft" }, "–");
}
