// Changing by hand which policy decides: activate, promote, roll back. Each asks for a reason, and for nothing twice.

import { post } from "./api.js";
import { ask, say } from "./dialogs.js";
import { h } from "./dom.js";

const STAGES = [["shadow", "Shadow: decides, is compared, does not count"], ["canary", "Canary: decides for a share of the pods"], ["active", "Active: decides for every pod at once, not compared"]];
const PROMOTIONS = [["", "as the settings say"], ["manual", "by hand: it stays at its stage until somebody promotes it"], ["auto", "by itself, after good windows"]];
const GOALS = ["neutral", "balance", "gpus", "joules", "latency", "nodes", "packing", "room"];

export async function activate(title, again) {
  const share = h("input", { type: "number", name: "percent", id: "canary-percent", min: "1", max: "100", value: "10" });
  const shareField = h("div", { class: "field", hidden: true }, h("label", { for: "canary-percent" }, "Share of the pods, in per cent"), share);
  const promotion = h("select", { name: "promotion", id: "promotion" }, PROMOTIONS.map(([value, words]) => h("option", { value }, words)));
  const goal = h("select", { name: "goal", id: "goal" }, h("option", { value: "" }, "as the settings say"), GOALS.map((value) => h("option", { value }, value)));
  const compared = h("div", { class: "fields" },
    h("div", { class: "field" }, h("label", { for: "promotion" }, "Taken further"), promotion),
    h("div", { class: "field" }, h("label", { for: "goal" }, "Compared by the goal"), goal));
  const done = await ask({
    title: `Activate ${title}`,
    text: "A candidate that is worse for three windows, or that fails, is withdrawn by itself.",
    verb: "Activate",
    fields: [
      h("fieldset", { onchange: (event) => { shareField.hidden = event.target.value !== "canary"; compared.hidden = event.target.value === "active"; } }, h("legend", {}, "Stage"),
        STAGES.map(([stage, words]) => h("label", {}, h("input", { type: "radio", name: "stage", value: stage, checked: stage === "shadow" }), words))),
      shareField, compared,
    ],
    act: (given) => post("/v1/policies/activate", {
      name: title, stage: given.stage, reason: given.reason,
      ...(given.stage === "canary" ? { percent: Number(given.percent) } : {}),
      ...(given.stage !== "active" && given.promotion ? { promotion: given.promotion } : {}),
      ...(given.stage !== "active" && given.goal ? { goal: given.goal } : {}),
    }),
  });
  if (done) {
    say(`${title} was activated`);
    again();
  }
}

/** One step further, or all the way; `number`: of the pointer that the reader looked at, so that nobody steps twice. */
export async function promote(title, { then, number }, again) {
  const done = await ask({
    title: `Promote ${title}`,
    text: "One step further, or at once to decide for every pod. Rolling back withdraws it.",
    verb: "Promote",
    fields: [h("fieldset", {}, h("legend", {}, "To"),
      [["", then ? `the next step: ${then}` : "the next step"], ["active", "active: for every pod, not compared any more"]].map(([to, words]) => h("label", {}, h("input", { type: "radio", name: "to", value: to, checked: to === "" }), words))),
    h("label", {}, h("input", { type: "checkbox", name: "force", value: "yes" }), "Also where too few windows speak for it (recorded as forced)")],
    act: ({ to, force, reason }) => post("/v1/policies/promote", { name: title, reason, ...(to ? { to } : {}), ...(force ? { force: true } : {}), ...(Number.isInteger(number) ? { number } : {}) }),
  });
  if (done) {
    say(`${title} was promoted`);
    again();
  }
}

export async function rollBack(again) {
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
