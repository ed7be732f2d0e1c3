// Which policy decides, how a candidate compares with it on the same decisions, and changing that by hand.

import { get, getAll } from "../api.js";
import { fill, h } from "../dom.js";
import { clock, count, score } from "../format.js";
import { Listing } from "../listing.js";
import { activate, promote, rollBack } from "../policy_changes.js";
import { comparison, titleOf, valuesOverTime } from "../policy_values.js";
import { Reading, together } from "../reading.js";
import { may } from "../session.js";
import { sheet } from "../table.js";

const STEPS = [["shadow", 0], ["canary", 1], ["canary", 10], ["canary", 50], ["canary", 100], ["active", 0]];
const stepWord = ([stage, share]) => (stage === "canary" ? `canary ${share} %` : stage);

/** The overview's few lines. */
export function policyLine({ pointer, comparison }) {
  if (!pointer?.active) return h("p", {}, "No policy was activated: every agent decides by its own setting.");
  const candidate = titleOf(pointer.candidate);
  const last = comparison?.last_window;
  return h("dl", { class: "pairs" },
    h("dt", {}, "Active"), h("dd", {}, titleOf(pointer.active)),
    candidate ? [h("dt", {}, "Candidate"), h("dd", {}, candidate, h("span", { class: "soft" }, `, ${stepWord([pointer.stage, pointer.percent])}`))] : null,
    candidate && last ? [h("dt", {}, "Value"), h("dd", {}, `${score(last.value)} against ${score(last.active_value)}`)] : null,
    candidate ? [h("dt", {}, "Windows"), h("dd", {}, `${count(comparison?.good ?? 0)} good, ${count(comparison?.bad ?? 0)} bad`)] : null,
    pointer.reason ? [h("dt", {}, "Because"), h("dd", { class: "soft" }, pointer.reason)] : null);
}

export function policiesView() {
  const versus = h("div");
  const windows = h("div", { class: "body" });
  const values = valuesOverTime();
  const history = new Listing({
    id: "changes",
    caption: "Changes of the pointer, newest first",
    columns: [
      { title: "Time", cell: (one) => clock(one.at ?? one.time), sort: (one) => one.at ?? one.time },
      { title: "Active", head: true, cell: (one) => titleOf(pointerOf(one).active), sort: (one) => titleOf(pointerOf(one).active) },
      { title: "Candidate", cell: (one) => (pointerOf(one).candidate ? `${titleOf(pointerOf(one).candidate)} (${stepWord([pointerOf(one).stage, pointerOf(one).percent])})` : "–") },
      { title: "By", cell: (one) => pointerOf(one).by || "–", sort: (one) => pointerOf(one).by || null },
      { title: "Because", cell: (one) => pointerOf(one).reason || "–" },
    ],
    keyOf: (one) => pointerOf(one).number ?? one.at,
    search: (one) => `${titleOf(pointerOf(one).active)} ${titleOf(pointerOf(one).candidate)} ${pointerOf(one).by} ${pointerOf(one).reason}`,
    placeholder: "Policy, who or why",
    order: "-time",
    empty: "Nothing was activated yet.",
    rows: 20,
  });
  const list = new Listing({
    caption: "Policies there are",
    columns: [
      { title: "Policy", head: true, cell: (one) => titleOf(one), sort: titleOf },
      { title: "Role", cell: (one) => (one.role ? h("span", { class: one.role === "active" ? "tag is-good" : "tag" }, one.percent && one.role !== "active" ? `${one.role} ${one.percent} %` : one.role) : "–"), sort: (one) => one.role || null },
      { title: "From", cell: (one) => one.from, sort: (one) => one.from },
      { title: "Weights", cell: (one) => h("code", {}, one.sha256 ? one.sha256.slice(0, 12) : "none") },
      { title: "", cell: (one) => (may("operator") && one.role !== "active" ? h("button", { type: "button", "data-focus": titleOf(one), "aria-label": `Activate ${titleOf(one)}`, onclick: () => activate(titleOf(one), again) }, "Activate …") : null) },
    ],
    keyOf: (one) => `${titleOf(one)}/${one.sha256}`,
    search: (one) => `${titleOf(one)} ${one.role} ${one.from} ${one.sha256}`,
    placeholder: "Policy or digest",
    empty: "No policies.",
  });
  const step = h("button", { type: "button", hidden: true, onclick: () => {
    const { pointer, comparison: seen } = found.data;
    promote(titleOf(pointer.candidate), { then: seen?.rules?.find((one) => one.kind === "promote")?.then, number: pointer.number }, again);
  } }, "Promote …");
  const back = h("button", { type: "button", class: "danger", onclick: () => rollBack(again) }, "Roll back …");
  const found = new Reading(() => get("/v1/policies"), {
    everyMs: 3000,
    show(answer) {
      fill(versus, sides(answer));
      fill(windows, comparison(answer));
      list.show(answer.items);
      step.hidden = !may("operator") || !answer.pointer?.candidate || !answer.comparison?.promotion;
    },
  });
  const past = new Reading(() => getAll("/v1/policies/history", { most: 1000 }), { everyMs: 10_000, show: ({ items, more }) => history.show(items, { more }) });
  const over = new Reading(() => getAll("/v1/policies/windows", { most: 1000 }), { everyMs: 15_000, show: ({ items }) => values.show(items) });
  const again = () => { found.now(); past.now(); };
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Policies"), h("div", { class: "tools" }, step, may("operator") ? back : null)),
    found.note, h("div", { class: "column" }, versus,
      sheet("Comparison on the same decisions", {}, windows),
      sheet("Value over time", {}, h("div", { class: "body" }, over.note, values.element)),
      sheet("Policies there are", { tools: list.tools }, list.elements), sheet("Changes of the pointer", { tools: history.tools }, past.note, history.elements)));
  return { title: "Policies", element, ...together(found, past, over), moved: () => { list.moved(); history.moved(); values.moved(); } };
}

const pointerOf = (one) => one.pointer ?? one;

function sides({ pointer, comparison: seen }) {
  const active = titleOf(pointer?.active) || "each agent’s own setting";
  const candidate = titleOf(pointer?.candidate);
  const share = candidate ? pointer.percent : 0;
  return h("div", { class: "versus" },
    h("div", {}, h("h2", { class: "soft" }, "Active"), h("p", { class: "title" }, active), h("p", { class: "soft" }, `decides for ${100 - share} % of the pods`),
      pointer?.previous ? h("p", { class: "soft small" }, `before it: ${titleOf(pointer.previous)}`) : null),
    h("div", {}, h("h2", { class: "soft" }, "Candidate"), candidate
      ? [h("p", { class: "title" }, candidate), h("p", { class: "soft" }, share ? `decides for ${share} % of the pods` : "decides beside the active one; nothing of it counts"), rollout(pointer), promotionWords(pointer, seen)]
      : [h("p", { class: "title soft" }, "none"), pointer?.reason ? h("p", { class: "soft small" }, `Last change: ${pointer.reason}${pointer.by ? ` (by ${pointer.by})` : ""}`) : null]));
}

function rollout(pointer) {
  return h("ol", { class: "steps", "aria-label": "Stages of the rollout" }, STEPS.map((step) =>
    h("li", { "aria-current": step[0] === pointer.stage && (step[0] !== "canary" || step[1] === pointer.percent) ? "step" : null }, stepWord(step))));
}

/** Who takes it further, where the server tells. */
function promotionWords(pointer, seen) {
  if (!seen?.promotion) return null;
  const goal = seen.goal ? `; compared by the goal ${seen.goal}` : "";
  return h("p", { class: "soft small" }, seen.promotion === "auto" ? `Promoted by itself after good windows${goal}.` : `Stays at ${stepWord([pointer.stage, pointer.percent])} until it is promoted by hand${goal}.`);
}
