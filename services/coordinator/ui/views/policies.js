// Which policy decides, how a candidate compares with it on the same decisions, and changing that by hand.

import { get, post, told } from "../api.js";
import { ask, say } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { clock, count, millis, percent, plural, score } from "../format.js";
import { readAgain } from "../reading.js";
import { may } from "../session.js";
import { sheet, Table } from "../table.js";

const STEPS = [["shadow", 0], ["canary", 1], ["canary", 10], ["canary", 50], ["canary", 100], ["active", 0]];
const titleOf = (ref) => (ref ? (typeof ref === "string" ? ref : `${ref.name}@${ref.version}`) : "");
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
  const error = h("p", { class: "error", role: "alert" });
  const versus = h("div");
  const windows = h("div", { class: "body" });
  const history = h("div", { class: "body" });
  const table = new Table({
    caption: "Policies there are",
    columns: [
      { title: "Policy", head: true, cell: (one) => titleOf(one) },
      { title: "Role", cell: (one) => (one.role ? h("span", { class: one.role === "active" ? "tag is-good" : "tag" }, one.percent && one.role !== "active" ? `${one.role} ${one.percent} %` : one.role) : "–") },
      { title: "From", cell: (one) => one.from },
      { title: "Weights", cell: (one) => h("code", {}, one.sha256 ? one.sha256.slice(0, 12) : "none") },
      { title: "", cell: (one) => (may("operator") && one.role !== "active" ? h("button", { type: "button", "data-focus": titleOf(one), "aria-label": `Activate ${titleOf(one)}`, onclick: () => activate(titleOf(one), load) }, "Activate …") : null) },
    ],
    keyOf: (one) => `${titleOf(one)}/${one.sha256}`,
    empty: "No policies.",
  });
  const back = h("button", { type: "button", class: "danger", onclick: () => rollBack(load) }, "Roll back …");
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Policies"), h("div", { class: "tools" }, may("operator") ? back : null)),
    error, h("div", { class: "column" }, versus,
      sheet("Comparison on the same decisions", {}, windows),
      sheet("Policies there are", {}, table.element), sheet("Changes of the pointer", {}, history)));
  async function load() {
    try {
      const [found, past] = await Promise.all([get("/v1/policies"), get("/v1/policies/history?limit=20")]);
      fill(error);
      fill(versus, sides(found));
      fill(windows, comparison(found));
      table.show(found.items);
      fill(history, changes(past.items));
    } catch (problem) {
      fill(error, told(problem));
    }
  }
  return { title: "Policies", element, ...readAgain(load, 3000) };
}

function sides({ pointer }) {
  const active = titleOf(pointer?.active) || "each agent’s own setting";
  const candidate = titleOf(pointer?.candidate);
  const share = candidate ? pointer.percent : 0;
  return h("div", { class: "versus" },
    h("div", {}, h("h2", { class: "soft" }, "Active"), h("p", { class: "title" }, active), h("p", { class: "soft" }, `decides for ${100 - share} % of the pods`),
      pointer?.previous ? h("p", { class: "soft small" }, `before it: ${titleOf(pointer.previous)}`) : null),
    h("div", {}, h("h2", { class: "soft" }, "Candidate"), candidate
      ? [h("p", { class: "title" }, candidate), h("p", { class: "soft" }, share ? `decides for ${share} % of the pods` : "decides beside the active one; nothing of it counts"), rollout(pointer)]
      : [h("p", { class: "title soft" }, "none"), pointer?.reason ? h("p", { class: "soft small" }, `Last change: ${pointer.reason}${pointer.by ? ` (by ${pointer.by})` : ""}`) : null]));
}

function rollout(pointer) {
  return h("ol", { class: "steps", "aria-label": "Stages of the rollout" }, STEPS.map((step) =>
    h("li", { "aria-current": step[0] === pointer.stage && (step[0] !== "canary" || step[1] === pointer.percent) ? "step" : null }, stepWord(step))));
}

function comparison({ pointer, comparison: seen }) {
  if (!pointer?.candidate) return h("p", { class: "soft" }, "There is no candidate. One in shadow or canary is compared with the active policy window by window.");
  const last = seen?.last_window;
  const so_far = h("p", { class: "soft" }, `${plural(seen?.windows ?? 0, "window")} so far · `, h("b", { class: "good" }, `${count(seen?.good ?? 0)} good`), " and ", h("b", { class: "bad" }, `${count(seen?.bad ?? 0)} bad`), ` in this stage · ${plural(seen?.samples ?? 0, "sample")} in the open window`);
  if (!last) return [so_far, h("p", { class: "soft small" }, "The first window is still open.")];
  const rows = [
    ["Value of its choices (higher is better)", score(last.value), score(last.active_value)],
    ["p99 of a decision", millis(last.p99_ms), millis(last.active_p99_ms)],
    ["Fallbacks to the heuristic", count(last.fallbacks), count(last.active_fallbacks)],
    ["Placements the binder refused", count(last.rejected), count(last.active_rejected)],
  ];
  return [
    so_far,
    h("table", {}, h("caption", {}, "The last closed window"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, `Of ${plural(last.samples, "decision")} that both were asked about`), h("th", { scope: "col", class: "number" }, `candidate ${titleOf(pointer.candidate)}`), h("th", { scope: "col", class: "number" }, `active ${titleOf(pointer.active)}`))),
      h("tbody", {}, rows.map(([name, mine, theirs]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "number" }, mine), h("td", { class: "number" }, theirs))),
        h("tr", {}, h("th", { scope: "row" }, "Chose the same node"), h("td", { class: "number", colspan: "2" }, `${percent(last.samples ? last.agreed / last.samples : NaN)} (${count(last.agreed)} of ${count(last.samples)})`)))),
  ];
}

function changes(items) {
  if (!items.length) return h("p", { class: "soft" }, "Nothing was activated yet.");
  return h("ol", { class: "list" }, items.map((one) => {
    const pointer = one.pointer ?? one;
    const candidate = titleOf(pointer.candidate);
    return h("li", {}, h("time", { datetime: one.at }, clock(one.at ?? one.time)),
      h("span", {}, titleOf(pointer.active), candidate ? `, candidate ${candidate} (${stepWord([pointer.stage, pointer.percent])})` : "", h("span", { class: "soft" }, ` ${pointer.reason}${pointer.by ? ` (by ${pointer.by})` : ""}`)));
  }));
}

async function activate(title, again) {
  const stages = [["shadow", "Shadow: decides, is compared, does not count"], ["canary", "Canary: decides for a share of the pods"], ["active", "Active: decides for every pod at once, not compared"]];
  const share = h("input", { type: "number", name: "percent", id: "canary-percent", min: "1", max: "100", value: "10" });
  const shareField = h("div", { class: "field", hidden: true }, h("label", { for: "canary-percent" }, "Share of the pods, in per cent"), share);
  const done = await ask({
    title: `Activate ${title}`,
    text: "A candidate that is worse for three windows, or that fails, is withdrawn by itself.",
    verb: "Activate",
    fields: [
      h("fieldset", { onchange: (event) => { shareField.hidden = event.target.value !== "canary"; } }, h("legend", {}, "Stage"),
        stages.map(([stage, words]) => h("label", {}, h("input", { type: "radio", name: "stage", value: stage, checked: stage === "shadow" }), words))),
      shareField,
    ],
    act: ({ stage, percent: given, reason }) => post("/v1/policies/activate", { name: title, stage, ...(stage === "canary" ? { percent: Number(given) } : {}), reason }),
  });
  if (done) {
    say(`${title} was activated`);
    again();
  }
}

async function rollBack(again) {
  const done = await ask({
    title: "Roll back",
    text: "Withdraws the candidate. Where there is none, the policy before the active one decides again.",
    verb: "Roll back",
    danger: true,
    act: ({ reason }) => post("/v1/policies/rollback", { reason }),
  });
  if (done) {
    say("Rolled back");
    again();
  }
}
