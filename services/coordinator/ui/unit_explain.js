// What an attempt at a pod group would give now: the leader's own explanation, laid out. Shows what there is and leaves
// out what is missing; adds no judgement of its own.

import { answerInto } from "./answer.js";
import { segment } from "./api.js";
import { h } from "./dom.js";
import { podLink } from "./explain.js";
import { count, plural } from "./format.js";
import { nodeLink } from "./names.js";

const SHOWN = 5;

/** The explanation of a pod group, asked for when this is called. */
export function unitExplained(namespace, name) {
  const place = h("div", {});
  answerInto(place, `/v1/units/${segment(namespace)}/${segment(name)}/explain`, parts);
  return h("section", { "aria-label": "Tried now" }, h("h3", {}, "If it were tried now"), place);
}

function parts({ summary, message, blocked, now }) {
  return [
    h("p", {}, summary),
    blocked && blocked !== message ? said("Held by quota", blocked) : null,
    now?.failed.map((one) => failed(one, now.change)),
    now?.domains.length ? said(`Members that each ${now.topology} takes`, now.domains.map((one) => `${one.value} ${count(one.members)}`).join(", ")) : null,
    now?.preemption ? said("Preemption", preemption(now.preemption)) : null,
    now?.change ? said("Would help the group", now.change) : null,
  ];
}

function said(title, text) {
  return h("p", { class: "small breakable" }, h("b", {}, `${title}: `), text);
}

/** Members that fail alike: why, where the least is lacking, what would help. */
function failed(one, ofGroup) {
  const rest = one.count - Math.min(SHOWN, one.pods.length);
  return h("div", { class: "group" },
    h("p", { class: "breakable" }, h("span", { class: "tag is-warn" }, `${plural(one.count, "member")} without a node`), " ",
      one.pods.slice(0, SHOWN).map((pod, number) => [number ? ", " : "", podLink(pod)]), rest > 0 ? ` and ${count(rest)} more` : "", ": ", one.why),
    one.nearest.length ? h("ul", { class: "small soft" }, one.nearest.map((near) =>
      h("li", {}, nodeLink(near.node), " lacks ", Object.entries(near.lacks).map(([resource, lacking]) => `${lacking} ${resource}`).join(", ")))) : null,
    one.change && one.change !== ofGroup ? said("Would help", one.change) : null);
}

function preemption(seen) {
  return [
    seen.helps ? "would " : "", seen.summary,
    seen.violations ? `; breaks the budget of ${plural(seen.violations, "pod")}` : "",
    seen.broken.length ? `; breaks the gang ${seen.broken.join(", ")}` : "",
  ].join("");
}
