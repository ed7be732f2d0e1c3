// Why a pod is where it is: the leader's own explanation, laid out. Shows what there is and leaves out what is missing;
// adds no judgement of its own.

import { get, segment, told } from "./api.js";
import { fill, h } from "./dom.js";
import { amount, count, figure, plural, score, seconds } from "./format.js";
import { meter, pairs } from "./table.js";

const STATES = { bound: "is-good", pending: "is-warn", placing: "is-warn", invalid: "is-bad" };
const SHOWN = 5;

/** Fills `place` with the explanation of a pod. */
export async function explainInto(place, namespace, name) {
  fill(place, h("p", { class: "soft", role: "status" }, "Asking the leader …"));
  try {
    fill(place, parts(await get(`/v1/pods/${segment(namespace)}/${segment(name)}/explain`)));
  } catch (error) {
    fill(place, h("p", { class: "error", role: "alert" }, told(error)));
  }
}

function parts(answer) {
  return [
    h("div", {}, h("span", { class: `tag ${STATES[answer.state] ?? ""}` }, answer.state), " ", answer.summary),
    pairs([
      ["Node", answer.node && h("a", { href: `#/nodes/${segment(answer.node)}` }, answer.node)],
      ["Nominated to", answer.nominated_node],
      ["Placed by", answer.policy],
      ["Priority", answer.priority],
      ["Condition", [answer.condition?.reason, answer.condition?.message].filter(Boolean).join(": ")],
      ["Not looked at", answer.missing?.length ? answer.missing.join(", ") : null],
      ["Uid", h("code", {}, answer.uid)],
    ]),
    answer.queue ? queue(answer.queue) : null,
    answer.decision ? decision(answer.decision) : null,
    answer.reasons ? reasons(answer.reasons) : null,
    answer.nodes ? nodes(answer.nodes) : null,
    answer.preemption ? preemption(answer.preemption) : null,
    answer.state === "bound" && !answer.decision
      ? h("p", { class: "soft" }, "This leader does not remember the decision: it is an older one, or another leader’s.") : null,
  ];
}

function part(title, ...children) {
  return h("section", { "aria-label": title }, h("h3", {}, title), children);
}

function queue(seen) {
  return part("In the queue", pairs([
    ["Place", seen.place],
    ["Ahead of it", seen.ahead],
    ["Failed attempts", seen.attempts],
    ["Pending for", seconds(seen.waiting_s)],
    ["Tried again", seen.next_retry_s === null ? null : `in ${seconds(seen.next_retry_s)}${seen.place === "unschedulable" ? ", or when something helps" : ""}`],
    ["Waits for events about", seen.rejected_by?.join(", ")],
  ]));
}

function decision(made) {
  const rows = made.candidates ?? made.considered ?? [];
  const scores = rows.map((row) => row.score);
  const low = Math.min(...scores);
  const span = Math.max(...scores) - low;
  return part(
    `Decided ${seconds(made.ago_s)} ago by ${made.policy}@${made.policy_version}`,
    h("table", {}, h("caption", { class: "hidden-text" }, "Nodes considered"),
      h("thead", {}, h("tr", {}, ["Node considered", "Score", "Policy’s advice"].map((title) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, rows.map((row) => h("tr", {},
        h("th", { scope: "row" }, row.node, row.node === made.node ? [" ", h("span", { class: "tag is-good" }, "chosen")] : null),
        h("td", {}, meter(span ? 0.06 + 0.94 * ((row.score - low) / span) : 1, score(row.score), { warns: false })),
        h("td", {}, row.accepted ? "take it" : "better not"))))),
  );
}

function reasons(given) {
  const { chosen, runner_up: second } = given;
  return part(
    `How ${given.policy} sees it now`,
    h("p", { class: "small soft" }, `${chosen.node} gets ${score(chosen.score)} (accept ${score(chosen.q_accept)}, reject ${score(chosen.q_reject)}). What moved that most, against the other nodes on average:`),
    effects(given.moved, "others"),
    second ? [
      h("p", { class: "small soft" }, `Best alternative: ${second.node} with ${score(second.score)}, ${score(Math.abs(given.ahead_by))} ${given.ahead_by >= 0 ? "behind" : "ahead"}. What decides between the two:`),
      effects(given.decisive, "there"),
    ] : null,
  );
}

function effects(list, where) {
  const most = Math.max(...list.map((one) => Math.abs(one.effect)), 1e-12);
  return h("ul", { class: "list effects" }, list.map((one) => {
    const bar = h("i", { class: one.effect < 0 ? "against" : null });
    const half = (Math.abs(one.effect) / most) * 50;
    bar.style.width = `${half}%`;
    bar.style.left = `${one.effect < 0 ? 50 - half : 50}%`;
    return h("li", { class: "effect" },
      h("span", {}, one.feature.replaceAll("_", " "), h("span", { class: "soft" }, ` ${figure(one.value)} (${where} ${figure(one.others)})`)),
      h("span", { class: "axis", "aria-hidden": "true" }, bar),
      h("span", { class: "number" }, `${one.effect > 0 ? "+" : ""}${Number(one.effect.toPrecision(2))}`));
  }));
}

function nodes(seen) {
  return part(
    `${count(seen.feasible)} of ${plural(seen.nodes, "node")} take it now`,
    seen.unowned ? h("p", { class: "warn small" }, `${plural(seen.unowned, "node")} have no agent`) : null,
    seen.groups.map(group),
    seen.candidates.length ? h("table", {}, h("caption", { class: "hidden-text" }, "Nodes that take the pod"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Node that takes it"), h("th", { scope: "col", class: "number" }, "Total"), h("th", { scope: "col" }, "Scores by rule"))),
      h("tbody", {}, seen.candidates.map((one) => h("tr", {}, h("th", { scope: "row" }, one.name), h("td", { class: "number" }, one.total),
        h("td", { class: "small soft" }, Object.entries(one.scores).map(([rule, value]) => `${rule} ${value}`).join(", ")))))) : null,
  );
}

function group(one) {
  return h("div", { class: "group" },
    h("p", {}, h("span", { class: "tag" }, plural(one.count, "node")), h("b", {}, one.plugin), one.stage === "Filter" ? "" : ` (${one.stage})`, ": ", one.reasons.join(", ")),
    h("ul", { class: "small soft" }, one.nodes.slice(0, SHOWN).map(member), one.count > SHOWN ? h("li", {}, `and ${count(one.count - Math.min(SHOWN, one.nodes.length))} more`) : null),
    one.change ? h("p", { class: "small" }, h("b", {}, "Would help: "), one.change) : null);
}

function member(node) {
  const short = node.shortages.map((s) => `${s.resource}: asked ${amount(s.resource, s.requested)}, free ${amount(s.resource, s.free)} of ${amount(s.resource, s.allocatable)}`);
  const texts = [...short, ...(node.numbers ?? []).map((number) => number.text)];
  return h("li", {}, texts.length ? `${node.name}: ${texts.join("; ")}` : node.name);
}

function preemption(seen) {
  return part("Preemption", h("p", {}, seen.summary), h("ul", { class: "small" }, seen.candidates.map((one) =>
    h("li", {}, `${one.node}: ${one.victims.slice(0, SHOWN).map((victim) => `${victim.pod} (priority ${victim.priority}${victim.breaks_budget ? ", breaks its budget" : ""})`).join(", ")}${one.allowed ? "" : "; not done, budgets are strict"}`))));
}
