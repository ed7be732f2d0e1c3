// Why a pod is where it is: the leader's own explanation, laid out. Shows what there is and leaves out what is missing;
// adds no judgement of its own.

import { answerInto } from "./answer.js";
import { segment } from "./api.js";
import { h } from "./dom.js";
import { amount, count, figure, plural, score, seconds } from "./format.js";
import { nodeLink } from "./names.js";
import { meter, pairs, plainTable } from "./table.js";
import { placeWords, reasonWords, stateWords } from "./waiting.js";

const STATES = { bound: "is-good", pending: "is-warn", placing: "is-warn", invalid: "is-bad", evicted: "is-bad", gone: "" };
const OUTCOMES = { asked: "asked to leave", evicted: "evicted", refused: "its eviction was refused", gone: "has left" };
const SHOWN = 5;

/** Fills `place` with the explanation of a pod. */
export function explainInto(place, namespace, name) {
  return answerInto(place, `/v1/pods/${segment(namespace)}/${segment(name)}/explain`, parts);
}

function parts(answer) {
  return [
    h("div", {}, h("span", { class: `tag ${STATES[answer.state] ?? ""}` }, stateWords(answer)), " ", answer.summary),
    pairs([
      ["Node", answer.node && nodeLink(answer.node)],
      ["Nominated to", answer.nominated_node && nodeLink(answer.nominated_node)],
      ["Placed by", answer.policy],
      ["Priority", answer.priority],
      ["Condition", [answer.condition?.reason, answer.condition?.message].filter(Boolean).join(": ")],
      ["Not looked at", answer.missing?.length ? answer.missing.join(", ") : null],
      ["Uid", h("code", {}, answer.uid)],
    ]),
    answer.victim_of ? victim(answer.victim_of) : null,
    answer.evicted?.length ? evicted(answer.evicted) : null,
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
    ["Reason", seen.reason ? reasonWords(seen) : null],
    ["Place", placeWords(seen.place)],
    ["Ahead of it", seen.ahead],
    ["Failed attempts", seen.attempts],
    ["Pending for", seconds(seen.waiting_s)],
    ["Tried again", seen.next_retry_s === null ? null : `in ${seconds(seen.next_retry_s)}${seen.place === "unschedulable" ? ", or when something helps" : ""}`],
    ["Refused by", seen.rejected_by?.join("+") === seen.reason ? null : seen.rejected_by?.join(", ")],
    ["Would help", seen.place === "gated" ? seen.remedy : null],
  ]));
}

/** Bars begin at nothing, or at the least score where there are scores below nothing: a close second looks close. */
function decision(made) {
  const rows = made.candidates ?? made.considered ?? [];
  const scores = rows.map((row) => row.score).filter(Number.isFinite);
  const low = Math.min(0, ...scores);
  const span = Math.max(...scores) - low;
  return part(
    `Decided ${seconds(made.ago_s)} ago by ${made.policy}@${made.policy_version}`,
    plainTable("Nodes considered", ["Node considered", "Score", "Policy’s advice"], rows.map((row) => [
      [nodeLink(row.node), row.node === made.node ? [" ", h("span", { class: "tag is-good" }, "chosen")] : null],
      meter(span > 0 ? (row.score - low) / span : 0, score(row.score), { warns: false }),
      row.accepted ? "take it" : "better not"])),
  );
}

/** "namespace/name" as a link to its explanation. */
export function podLink(pod) {
  const [namespace, name] = String(pod).split("/");
  return name ? h("a", { href: `#/pods/${segment(namespace)}/${segment(name)}` }, pod) : String(pod);
}

function victim(by) {
  return part("Preempted", h("p", {}, "Evicted on ", nodeLink(by.node), ` ${seconds(by.ago_s)} ago, to make room for `, podLink(by.pod), Number.isFinite(by.priority) ? ` (priority ${by.priority}).` : "."));
}

function evicted(list) {
  return part("Evicted for it", h("ul", { class: "small" }, list.map((one) => h("li", {}, podLink(one.pod), ` (priority ${one.priority}) on `, nodeLink(one.node), `: ${OUTCOMES[one.outcome] ?? one.outcome}, ${seconds(one.ago_s)} ago`))));
}

function reasons(given) {
  const { chosen, runner_up: second } = given;
  return part(
    `How ${given.policy} sees it now`,
    h("p", { class: "small soft" }, `${chosen.node} gets ${score(chosen.score)} (accept ${score(chosen.q_accept)}, reject ${score(chosen.q_reject)}${network(chosen)}). What moved that most, against the other nodes on average:`),
    effects(given.moved, "others"),
    second ? [
      h("p", { class: "small soft" }, `Best alternative: ${second.node} with ${score(second.score)}${network(second)}, ${score(Math.abs(given.ahead_by))} ${given.ahead_by >= 0 ? "behind" : "ahead"}. What decides between the two:`),
      effects(given.decisive, "there"),
    ] : null,
    uses(given.use),
  );
}

/** Which network judged the node, where classes of nodes have their own. */
function network(candidate) {
  const name = candidate.network;
  return name ? `; by the ${name === "shared" ? "shared network" : `network of ${name}`}` : "";
}

/** Of the two nodes: what is in use, and whether that was measured, when and by whom, or is requested. */
function uses(given) {
  return Object.entries(given ?? {}).map(([node, parts]) => h("p", { class: "small soft" }, "In use on ", nodeLink(node), ": ", parts.map((one) =>
    `${one.part} ${(100 * one.share).toFixed(1)} % (${one.how}${one.age_s === null ? "" : ` ${seconds(one.age_s)} ago by ${one.source}`})`).join(", ")));
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
    seen.candidates.length ? scoresByRule(seen.candidates, seen.score_rules ?? {}) : null,
    seen.groups.map(group),
  );
}

/** One row per node that takes it, one column per rule: what the total is made of. */
function scoresByRule(candidates, rules) {
  const names = [...new Set(candidates.flatMap((one) => Object.keys(one.scores)))];
  const weight = (name) => (rules[name]?.weight && rules[name].weight !== 1 ? ` ×${rules[name].weight}` : "");
  const title = (name) => [name.replace(/([a-z])([A-Z])/g, "$1\u200b$2"), weight(name)].join("");
  const most = names.filter((name) => rules[name]).map((name) => `${name} gives at most ${count(rules[name].most * (rules[name].weight || 1))}`);
  return [
    plainTable("Nodes that take the pod, with the score of each rule", ["Node that takes it", { title: "Total", number: true }, ...names.map((name) => ({ title: title(name), number: true }))],
      candidates.map((one) => [nodeLink(one.name), h("b", {}, score(one.total)), ...names.map((name) => (name in one.scores ? score(one.scores[name]) : "–"))])),
    most.length ? h("p", { class: "soft small" }, `${most.join(", ")}. Each with its weight in it; the total is their sum.`) : null,
  ];
}

function group(one) {
  const alone = Number.isFinite(one.count_only) && one.count_only < one.count ? h("p", { class: "small soft" }, `${count(one.count_only)} of them ${one.count_only === 1 ? "fails" : "fail"} by this alone; the others have more against them.`) : null;
  return h("div", { class: "group" },
    h("p", {}, h("span", { class: "tag" }, plural(one.count, "node")), h("b", {}, one.plugin), one.stage === "Filter" ? "" : ` (${one.stage})`, ": ", one.reasons.join(", ")),
    alone,
    h("ul", { class: "small soft" }, one.nodes.slice(0, SHOWN).map(member), one.count > SHOWN ? h("li", {}, `and ${count(one.count - Math.min(SHOWN, one.nodes.length))} more`) : null),
    one.change ? h("p", { class: "small" }, h("b", {}, "Would help: "), one.change) : null);
}

/** A node with what it is short of; every further rule that refuses it below. */
function member(node) {
  const short = (node.shortages ?? []).map((s) => `${s.resource}: asked ${amount(s.resource, s.requested)}, free ${amount(s.resource, s.free)} of ${amount(s.resource, s.allocatable)}`);
  const texts = [...short, ...(node.numbers ?? []).map((number) => number.text)];
  const more = (node.failing ?? []).slice(1);
  return h("li", {}, nodeLink(node.name), texts.length ? `: ${texts.join("; ")}` : "",
    more.length ? h("ul", {}, more.map((rule) => h("li", {}, "also ", h("b", {}, rule.plugin), `: ${rule.reasons.join(", ")}`))) : null);
}

function preemption(seen) {
  return part("Preemption", h("p", {}, seen.summary), h("ul", { class: "small" }, seen.candidates.map((one) =>
    h("li", {}, nodeLink(one.node), ": would evict ", one.victims.slice(0, SHOWN).map((victim, i) => [i ? ", " : "", podLink(victim.pod), ` (priority ${victim.priority}${victim.breaks_budget ? ", breaks its budget" : ""})`]), one.count > SHOWN ? ` and ${count(one.count - SHOWN)} more` : "", one.allowed ? "" : "; not done, budgets are strict"))));
}
