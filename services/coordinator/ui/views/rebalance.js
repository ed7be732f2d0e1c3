// Rebalancing: the plan of the present round batch by batch, where its moves are, what rounds won, and for which goal.

import { get } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { clock, count, figure, plural } from "../format.js";
import { Listing } from "../listing.js";
import { Reading, together } from "../reading.js";
import { pairs, sheet } from "../table.js";

const STATES = ["failed", "leaving", "reserving", "reserved", "arrived", "waiting", "done"];
const TAGS = { done: "is-good", arrived: "is-good", failed: "is-bad", leaving: "is-warn", reserving: "is-warn", reserved: "is-warn" };
const STAGES = { none: "none", shadow: "in shadow: nobody is moved", canary: "in the canary", active: "active" };

export function rebalanceView() {
  const counts = h("p", { class: "soft" });
  const trouble = h("p", { class: "bad breakable", hidden: true });
  const moves = new Listing({
    id: "moves",
    caption: "Moves of the plan",
    columns: [
      { title: "Batch", key: "batch", number: true, sort: (one) => one.batch, cell: (one) => count(one.batch) },
      { title: "Pod", head: true, sort: (one) => one.pod, cell: (one) => h("span", { class: "breakable" }, one.pod) },
      { title: "From", sort: (one) => one.source, cell: (one) => one.source },
      { title: "To", sort: (one) => one.target, cell: (one) => one.target },
      { title: "State", sort: (one) => STATES.indexOf(one.state), cell: (one) => (one.state ? h("span", { class: `tag ${TAGS[one.state] ?? ""}` }, one.state) : "planned") },
      { title: "Wins", number: true, sort: (one) => one.gain, cell: (one) => figure(one.gain) },
      { title: "Why now", wide: true, sort: (one) => one.why, cell: (one) => [one.why, one.failed ? h("div", { class: "bad small breakable" }, one.failed) : null, h("div", { class: "soft small breakable" }, one.disturbs)] },
    ],
    keyOf: (one) => `${one.uid}/${one.batch}`,
    search: (one) => `${one.pod} ${one.source} ${one.target} ${one.disturbs}`,
    placeholder: "Pod, node or workload",
    filters: [{ name: "state", label: "State", all: "every state", options: STATES.map((state) => [state, state]), test: (one, value) => one.state === value }],
    order: "batch",
    empty: "The plan moves nobody.",
  });
  const rounds = new Listing({
    id: "rounds",
    caption: "Rounds",
    columns: [
      { title: "When", key: "when", head: true, sort: (one) => one.at, cell: (one) => clock(one.at * 1000) },
      { title: "Goal", sort: (one) => one.goal, cell: (one) => [one.goal, h("div", { class: "soft small" }, one.stage)] },
      { title: "Measure then", number: true, sort: (one) => one.before, cell: (one) => [figure(one.before), h("div", { class: "soft small" }, one.unit)] },
      { title: "Planned for", number: true, sort: (one) => one.hoped, cell: (one) => figure(one.hoped) },
      { title: "Moves", number: true, sort: (one) => one.made, cell: (one) => `${count(one.made)} of ${count(one.planned)}` },
      { title: "Failed", number: true, sort: (one) => one.failed, cell: (one) => count(one.failed) },
      { title: "Why no more", wide: true, sort: (one) => one.why || null, cell: (one) => h("span", { class: "breakable" }, one.why) },
    ],
    keyOf: (one) => `${one.at} ${one.since}`,
    search: (one) => `${one.goal} ${one.why}`,
    placeholder: "Goal or reason",
    order: "-when",
    empty: "No round has been yet.",
    rows: 25,
  });
  const summary = h("div", { class: "body" });
  const rollout = h("div", { class: "body" });
  const board = new Reading(() => get("/v1/rebalance"), { everyMs: (data) => (data?.moving ? 2000 : 10_000), show: draw });
  const policy = new Reading(() => get("/v1/rebalance/policy"), { everyMs: 10_000, show: (told) => fill(rollout, policyParts(told)) });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Rebalancing"), counts), trouble,
    h("div", { class: "column" },
      sheet("Plan", {}, board.note, summary),
      sheet("Moves", { tools: moves.tools }, moves.elements),
      sheet("Rounds", { tools: rounds.tools }, rounds.elements),
      sheet("Goal that is tried", {}, policy.note, rollout)));

  function draw(data) {
    trouble.hidden = data.leading;
    setText(trouble, data.leading ? "" : data.why);
    const plan = data.plan;
    const planned = plan?.moves ?? [];
    moves.show(planned.map((one) => {
      const told = data.moves[`${one.uid}/${one.batch}`];
      return { ...one, pod: `${one.namespace}/${one.name}`, state: told?.state ?? "", failed: told?.state === "failed" ? told.why : "", disturbs: one.disturbs.join("; ") };
    }), { more: false });
    rounds.show(data.rounds, { more: false });
    fill(summary, plan ? pairs([
      ["Goal", data.goal], ["Measure", `${figure(plan.before)} → ${figure(plan.after)} ${plan.unit}`],
      ["Carried out", data.moving ? "yes" : "no"], ["Why not", data.moving ? null : data.why],
      ["Namespaces", data.stage === "canary" ? data.namespaces.join(", ") : null],
      ["Nodes freed", plan.freed.length ? plan.freed.join(", ") : null], ["No further move", plan.stopped],
      ["Left out", plan.left_out.length ? plan.left_out.map((one) => `${one.pod}: ${one.why}`).join("; ") : null],
      ["Who stays", Object.entries(plan.protected).map(([name, number]) => `${count(number)} ${name}`).join(", ")],
      ["Notes", plan.notes.join("; ")],
    ]) : h("p", { class: "soft" }, data.why || "No plan has been made yet."));
    const batches = new Set(planned.map((one) => one.batch)).size;
    setText(counts, plan ? `${plural(planned.length, "move")} in ${count(batches)} ${batches === 1 ? "batch" : "batches"}` : "");
  }

  return {
    title: "Rebalancing", element, ...together(board, policy),
    moved() {
      moves.moved();
      rounds.moved();
    },
  };
}

function policyParts(told) {
  if (!told.candidate) return h("p", { class: "soft" }, "None: nobody is moved. 'conclave policy try GOAL --for rebalance' begins with one in shadow.");
  return pairs([
    ["Goal", told.candidate], ["Stage", `${STAGES[told.stage] ?? told.stage}${told.stage === "canary" ? ` (${told.percent} % of the namespaces)` : ""}`],
    ["Good windows", told.stage === "none" ? null : count(told.good)], ["Why", told.reason], ["By", told.by], ["Since", told.since ? clock(told.since) : null],
  ]);
}
