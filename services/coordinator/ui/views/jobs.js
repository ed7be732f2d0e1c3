// Training jobs: on which GPUs they ran, how they grew and restarted, when they may end, and which policy is tried for them.

import { keep, state, to } from "../address.js";
import { get } from "../api.js";
import { fill, h, setText } from "../dom.js";
import { clock, count, exact, figure, percent, plural, seconds } from "../format.js";
import { Gantt } from "../gantt.js";
import { Listing } from "../listing.js";
import { Reading, together } from "../reading.js";
import { meter, pairs, sheet } from "../table.js";

const PHASES = ["Restarting", "Starting", "Stopping", "Reshaping", "Running", "Pending", "Paused", "Failed", "Succeeded"];
const TAGS = { Running: "is-good", Succeeded: "is-good", Failed: "is-bad", Restarting: "is-warn", Reshaping: "is-warn" };
const RANGES = [[1800, "30 min"], [7200, "2 h"], [21_600, "6 h"]];
const ROWS = [["job", "By job"], ["node", "By node"]];
const STAGES = { none: "none", shadow: "in shadow", canary: "in the canary", active: "active" };

export function jobsView() {
  let range = RANGES[1][0];
  const counts = h("p", { class: "soft" });
  const trouble = h("p", { class: "bad breakable", hidden: true });
  const gantt = new Gantt({ choose: (job) => { location.hash = to("jobs", { "jobs.q": job }); } });
  const buttons = RANGES.map(([value, words]) => h("button", { type: "button", "aria-pressed": String(value === range), onclick: () => choose(value) }, words));
  const by = () => (state("by") === "node" ? "node" : "job");
  const ways = ROWS.map(([value, words]) => h("button", { type: "button", onclick: () => { keep({ by: value === "job" ? "" : value }); again(); } }, words));
  const jobs = new Listing({
    id: "jobs",
    caption: "Jobs",
    columns: [
      { title: "Job", head: true, cell: named, sort: (one) => `${one.namespace}/${one.name}` },
      { title: "Phase", cell: (one) => h("span", { class: `tag ${TAGS[one.phase] ?? ""}` }, one.phase), sort: (one) => PHASES.indexOf(one.phase) },
      { title: "Workers", key: "workers", number: true, sort: (one) => one.workers, cell: (one) => [`${count(one.workers)} of ${count(one.target)}`, h("div", { class: "soft small" }, `${count(one.minimum)} to ${count(one.maximum)}`)] },
      { title: "GPUs", key: "gpus", number: true, sort: (one) => one.gpus, cell: (one) => exact(one.gpus) },
      { title: "Progress", key: "progress", sort: (one) => one.progress, cell: (one) => (one.progress === null ? "–" : meter(one.progress, percent(one.progress), { warns: false })) },
      { title: "May end", key: "ends", sort: (one) => one.ends || null, cell: ending },
      { title: "Restarts", key: "restarts", number: true, sort: (one) => one.restarts, cell: (one) => [count(one.restarts), one.lost_steps ? h("div", { class: "soft small" }, `${count(one.lost_steps)} steps lost`) : null] },
      { title: "Failures", key: "failures", number: true, sort: (one) => one.failures, cell: (one) => count(one.failures) },
      { title: "Why", wide: true, sort: (one) => one.reason || null, cell: (one) => [one.reason, one.message ? h("div", { class: "soft small breakable" }, one.message) : null] },
    ],
    keyOf: (one) => `${one.namespace}/${one.name}`,
    search: (one) => `${one.namespace}/${one.name} ${one.queue} ${one.reason} ${one.message}`,
    placeholder: "Job, queue or reason",
    filters: [
      { name: "phase", label: "Phase", all: "every phase", options: PHASES.map((phase) => [phase, phase]), test: (one, value) => one.phase === value },
      { name: "namespace", label: "Namespace", all: "every namespace", options: [], test: (one, value) => one.namespace === value },
    ],
    order: "phase",
    empty: "There is no TrainingJob.",
  });
  const changes = new Listing({
    id: "changes",
    caption: "Changes",
    columns: [
      { title: "When", head: true, cell: (one) => clock(one.at * 1000), sort: (one) => one.at },
      { title: "Job", cell: (one) => one.job, sort: (one) => one.job },
      { title: "What", cell: (one) => h("span", { class: `tag ${one.event === "failed" ? "is-bad" : ""}` }, one.event), sort: (one) => one.event },
      { title: "Workers", number: true, cell: (one) => (one.before === one.after ? count(one.after) : `${count(one.before)} → ${count(one.after)}`) },
    ],
    keyOf: (one) => `${one.at} ${one.job} ${one.event}`,
    search: (one) => `${one.job} ${one.event}`,
    placeholder: "Job or change",
    order: "-when",
    empty: "Nothing changed since this leader began.",
    rows: 25,
  });
  const rollout = h("div", { class: "body" });
  const board = new Reading(() => get("/v1/jobs"), { everyMs: (data) => Math.max(3000, (data?.spans.length ?? 0) * 2), show: draw });
  const policy = new Reading(() => get("/v1/jobs/policy"), { everyMs: 10_000, show: (told) => fill(rollout, policyParts(told)) });
  const element = h("div", {},
    h("div", { class: "view-head" }, h("h1", {}, "Training jobs"), counts), trouble,
    h("div", { class: "column" },
      sheet("Jobs over GPUs", { tools: [h("div", { class: "segments", role: "group", "aria-label": "Rows" }, ways), h("div", { class: "segments", role: "group", "aria-label": "How far back" }, buttons)] }, board.note, gantt.element),
      sheet("Jobs", { tools: jobs.tools }, jobs.elements),
      sheet("Policy", {}, policy.note, rollout),
      sheet("Growth and restarts", { tools: changes.tools }, changes.elements)));

  function choose(value) {
    range = value;
    buttons.forEach((button, number) => button.setAttribute("aria-pressed", String(RANGES[number][0] === value)));
    again();
  }

  function again() {
    ways.forEach((button, number) => button.setAttribute("aria-pressed", String(ROWS[number][0] === by())));
    if (board.data?.leading) gantt.show(board.data, range, by());
  }

  function draw(data) {
    trouble.hidden = !data.problem;
    setText(trouble, data.problem);
    gantt.element.hidden = !data.leading;
    again();
    jobs.offer("namespace", [...new Set(data.jobs.map((one) => one.namespace))].sort().slice(0, 500).map((value) => [value, value]));
    jobs.show(data.jobs, { more: false });
    changes.show(data.changes, { more: false });
    const run = data.jobs.filter((one) => one.workers > 0).length;
    setText(counts, data.leading ? `${plural(data.jobs.length, "job")} · ${count(run)} with workers · by ${data.policy}` : "");
  }

  return {
    title: "Training jobs", element, ...together(board, policy),
    moved() {
      again();
      jobs.moved();
      changes.moved();
    },
  };
}

/** The name; below it its queue, and who decides for it where that is the candidate. */
function named(one) {
  return h("div", {}, h("span", { class: "breakable" }, `${one.namespace}/${one.name}`),
    one.queue || one.candidate ? h("div", { class: "soft small" }, [one.queue, one.candidate ? "by the candidate" : ""].filter(Boolean).join(" · ")) : null);
}

function ending(one) {
  if (!one.ends) return one.ended ? [`ended ${clock(one.ended * 1000)}`] : "–";
  const unsure = one.by === "speed" ? `${clock(one.ends_early * 1000)} to ${clock(one.ends_late * 1000)}` : "as fast as so far";
  return [`${clock(one.ends * 1000)} (in ${seconds(Math.max(0, one.ends - Date.now() / 1000))})`, h("div", { class: "soft small" }, unsure)];
}

function policyParts(told) {
  if (!told.candidate) return h("p", { class: "soft" }, "No other policy is tried beside the settings'.");
  return pairs([
    ["Settings", told.policy], ["Candidate", `${told.candidate}, ${STAGES[told.stage] ?? told.stage}${told.stage === "canary" ? ` (${told.percent} % of the jobs)` : ""}`],
    ["Worth by its teacher’s", told.ratio ? `${figure(told.ratio)} ± ${figure(told.sd)} over the last window` : null],
    ["Good windows", told.stage === "none" ? null : count(told.good)], ["Why", told.reason], ["By", told.by], ["Since", told.since ? clock(told.since) : null],
  ]);
}
