// The mesh itself: who leads, who stands by, who decides for how many nodes, past failovers, and who changed what.

import { get, told } from "../api.js";
import { fill, h } from "../dom.js";
import { clock, count, plural, seconds, since } from "../format.js";
import { readAgain } from "../reading.js";
import { Pager, sheet, Table } from "../table.js";

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
    h("dt", {}, "Nodes"), h("dd", {}, count(nodes.total), nodes.drained ? h("span", { class: "warn" }, ` · ${count(nodes.drained)} drained`) : null));
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

function memberTable(caption) {
  return new Table({
    caption,
    columns: [
      { title: "Member", head: true, cell: (one) => one.id },
      { title: "Service", cell: (one) => one.service },
      { title: "State", cell: (one) => [
        one.leading ? h("span", { class: "tag is-lead" }, "leads") : one.service === "coordinator" ? h("span", { class: "tag" }, "stands by") : null,
        one.suspect ? h("span", { class: "tag is-warn" }, "suspect") : null,
        (one.warnings ?? []).map((warning) => h("div", { class: "warn small" }, warning)),
      ] },
      { title: "Term", number: true, cell: (one) => one.term || "–" },
      { title: "Decides for", cell: (one) => (one.service === "agent" ? `${plural(one.nodes, "node")}${one.node ? ` (on ${one.node})` : ""}` : "–") },
      { title: "Address", cell: (one) => h("code", {}, one.url || "–") },
      { title: "Version", cell: (one) => one.version || "–" },
    ],
    keyOf: (one) => `${one.service}/${one.id}`,
    empty: "No members are registered.",
  });
}

export function meshView() {
  const error = h("p", { class: "error", role: "alert" });
  const leader = h("p", { class: "soft" });
  const members = memberTable("Coordinators, binders, learner");
  const agents = memberTable("Agents");
  const terms = h("div", { class: "body" });
  const audit = new Table({
    caption: "Changes by people, newest first",
    columns: [
      { title: "Time", cell: (one) => clock(one.time) },
      { title: "By", head: true, cell: (one) => [one.by, h("span", { class: "soft" }, ` ${one.role}`)] },
      { title: "Change", cell: (one) => h("code", {}, one.route) },
      { title: "Target", cell: (one) => one.target || "–" },
      { title: "Reason", cell: (one) => one.reason || "–" },
    ],
    keyOf: (one) => one.number,
    empty: "Nobody has changed anything yet.",
  });
  const agentPages = new Pager(agents, { path: "/v1/members?service=agent", onError: () => {} });
  const pager = new Pager(audit, { path: "/v1/audit", limit: 20, onError: () => {} });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Mesh"), leader), error,
    h("div", { class: "overview" },
      h("div", { class: "column" }, sheet("Coordinators, binders, learner", {}, members.element), sheet("Agents", {}, agents.element, agentPages.element), sheet("Changes", {}, audit.element, pager.element)),
      h("div", { class: "column" }, sheet("Terms and failovers", {}, terms))));
  async function load() {
    try {
      const lists = ["coordinator", "binder", "learner"].map((service) => get(`/v1/members?service=${service}`));
      const [who, past, ...found] = await Promise.all([get("/v1/leader"), get("/v1/terms?limit=30"), ...lists]);
      fill(error);
      fill(leader, `${who.id} leads in term ${who.term} for ${since(who.since)}; its lease ends ${seconds(who.lease_ttl_s)} after it falls silent`);
      members.show(found.flatMap((list) => list.items));
      fill(terms, failoverList(past.items));
      await Promise.all([agentPages.load(), pager.load()]);
    } catch (problem) {
      fill(error, told(problem));
    }
  }
  return { title: "Mesh", element, ...readAgain(load, 5000) };
}
