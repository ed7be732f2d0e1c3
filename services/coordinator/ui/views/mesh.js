// The mesh itself: who leads, who stands by, who decides for how many nodes, past failovers, and who changed what.

import { get, getAll } from "../api.js";
import { fill, h } from "../dom.js";
import { clock, count, plural, seconds, since } from "../format.js";
import { Listing } from "../listing.js";
import { nodeLink } from "../names.js";
import { Reading, together } from "../reading.js";
import { sheet } from "../table.js";

/** The overview's few lines about the members; `leaderless`: nobody leads now, whatever it said last. */
export function memberSummary(overview, leaderless) {
  const { members = {}, nodes = {} } = overview;
  const leader = leaderless ? null : overview.leader;
  const others = Math.max(0, (members.coordinator ?? 0) - 1);
  return h("dl", { class: "pairs" },
    h("dt", {}, "Leader"), h("dd", {}, leader?.id ? [h("span", { class: "tag is-lead" }, leader.id), h("span", { class: "soft small" }, `term ${leader.term}, for ${since(leader.since)}`)] : h("span", { class: "bad" }, "none: a failover is under way")),
    h("dt", {}, "Standing by"), h("dd", {}, others ? plural(others, "coordinator") : h("span", { class: "warn" }, "nobody: a failover would wait for a restart")),
    h("dt", {}, "Agents"), h("dd", {}, count(members.agent), nodes.unowned ? h("span", { class: "bad" }, ` · ${plural(nodes.unowned, "node")} without one`) : null),
    h("dt", {}, "Binders"), h("dd", {}, count(members.binder)),
    h("dt", {}, "Learner"), h("dd", {}, members.learner ? count(members.learner) : "none"),
    h("dt", {}, "Nodes"), h("dd", {}, h("a", { href: "#/nodes" }, count(nodes.total)), [["not_ready", "not ready", "bad"], ["pressure", "under pressure", "warn"], ["cordoned", "cordoned", "warn"], ["drained", "drained", "warn"]].map(([name, word, look]) =>
      (nodes[name] ? [" · ", h("a", { class: look, href: `#/nodes?state=${name}` }, `${count(nodes[name])} ${word}`)] : null))));
}

/** Terms, newest first: each is a leader; all but the oldest shown began with a failover or a hand-over. */
export function failoverList(terms) {
  if (!terms.length) return h("p", { class: "soft small" }, "No terms are recorded.");
  return h("ol", { class: "list" }, terms.map((one, number) => h("li", {},
    h("time", { datetime: one.began }, clock(one.began)),
    h("span", {}, number === 0 ? h("span", { class: "tag is-lead" }, one.id) : one.id, h("span", { class: "soft" }, ` term ${one.term}${ended(one.ended_by)}`)))));
}

function ended(by) {
  if (!by) return "";
  return typeof by === "object" ? `, followed by ${by.id ?? by.term}` : `, ended by ${by}`;
}

function memberList(id, caption, columns, filters) {
  return new Listing({
    id, caption, columns, filters,
    keyOf: (one) => `${one.service}/${one.id}`,
    search: (one) => `${one.id} ${one.service} ${one.node} ${one.url} ${one.version} ${(one.warnings ?? []).join(" ")}`,
    placeholder: "Name, address, version",
    empty: "No members are registered.",
  });
}

/** What a member is doing, as tags: never nothing. */
function stateOf(one) {
  return [
    one.leading ? h("span", { class: "tag is-lead" }, "leads") : ["coordinator", "binder"].includes(one.service) ? h("span", { class: "tag" }, "stands by") : null,
    one.suspect ? h("span", { class: "tag is-warn" }, "suspected") : ["agent", "learner"].includes(one.service) ? h("span", { class: "tag is-good" }, one.service === "agent" ? "answers" : "registered") : null,
    (one.warnings ?? []).map((warning) => h("div", { class: "warn small" }, warning)),
  ];
}

const NAME = { title: "Member", key: "member", head: true, cell: (one) => one.id, sort: (one) => one.id };
const STATE = { title: "State", cell: stateOf, sort: (one) => (one.suspect ? 0 : one.leading ? 1 : 2) };
const ADDRESS = { title: "Address", cell: (one) => h("code", {}, one.url || "–"), sort: (one) => one.url || null };
const VERSION = { title: "Version", cell: (one) => one.version || "–", sort: (one) => one.version || null };

export function meshView() {
  const leader = h("p", { class: "soft" });
  const members = memberList("members", "Coordinators, binders, learner", [
    NAME, { title: "Service", cell: (one) => one.service, sort: (one) => one.service }, STATE,
    { title: "Term", number: true, cell: (one) => one.term || "–", sort: (one) => one.term || null }, ADDRESS, VERSION,
  ]);
  const agents = memberList("agents", "Agents", [
    NAME, STATE, { title: "Decides for", key: "nodes", number: true, cell: (one) => h("a", { href: `#/nodes?agent=${encodeURIComponent(one.id)}` }, plural(one.nodes, "node")), sort: (one) => one.nodes },
    { title: "On node", key: "on", cell: (one) => (one.node ? nodeLink(one.node) : "–"), sort: (one) => one.node || null }, ADDRESS, VERSION,
  ], [{ name: "state", label: "State of the agents", all: "any state", options: [["suspect", "suspected"], ["answers", "answers"]], test: (one, value) => (value === "suspect") === Boolean(one.suspect) }]);
  const audit = new Listing({
    id: "changes",
    caption: "Changes by people, newest first",
    columns: [
      { title: "Time", cell: (one) => clock(one.time), sort: (one) => one.time },
      { title: "By", head: true, cell: (one) => [one.by, h("span", { class: "soft" }, ` ${one.role}`)], sort: (one) => one.by },
      { title: "Change", cell: (one) => h("code", {}, one.route), sort: (one) => one.route },
      { title: "Target", cell: (one) => one.target || "–", sort: (one) => one.target || null },
      { title: "Result", cell: (one) => one.result || "–", sort: (one) => one.result || null },
      { title: "Reason", cell: (one) => one.reason || "–" },
    ],
    keyOf: (one) => one.number,
    search: (one) => `${one.by} ${one.role} ${one.route} ${one.target} ${one.result ?? ""} ${one.reason}`,
    placeholder: "Who, what or why",
    order: "-time",
    empty: "Nobody has changed anything yet.",
    rows: 20,
  });
  const terms = h("div", { class: "body" });
  const who = new Reading(() => get("/v1/leader"), { everyMs: 5000, show: (found) => fill(leader, `${found.id} leads in term ${found.term} for ${since(found.since)}; its lease ends ${seconds(found.lease_ttl_s)} after it falls silent`) });
  const past = new Reading(() => get("/v1/terms?limit=30"), { everyMs: 10_000, show: (found) => fill(terms, failoverList(found.items)) });
  const all = new Reading(() => getAll("/v1/members"), {
    everyMs: (data) => Math.max(5000, (data?.items.length ?? 0) * 10),
    show({ items, more }) {
      members.show(items.filter((one) => one.service !== "agent"));
      agents.show(items.filter((one) => one.service === "agent"), { more });
    },
  });
  const changes = new Reading(() => getAll("/v1/audit", { most: 1000 }), { everyMs: 15_000, show: ({ items, more }) => audit.show(items, { more }) });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Mesh"), leader), who.note,
    h("div", { class: "overview" },
      h("div", { class: "column" }, sheet("Coordinators, binders, learner", { tools: members.tools }, all.note, members.elements), sheet("Agents", { tools: agents.tools }, agents.elements), sheet("Changes", { tools: audit.tools }, changes.note, audit.elements)),
      h("div", { class: "column" }, sheet("Terms and failovers", {}, past.note, terms))));
  return { title: "Mesh", element, ...together(who, past, all, changes), moved: () => [members, agents, audit].forEach((list) => list.moved()) };
}
