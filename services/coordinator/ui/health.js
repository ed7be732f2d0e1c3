// One verdict of health: what the leader says of itself, and what this page sees of the leader. Why it exists: a stream
// that stands open says nothing of a leader that is late; figures that are old must never look live.

import { heldForMs } from "./api.js";
import { seconds } from "./format.js";

/** So long without figures, which come each second, is late; and so long is as good as no answer. */
export const LATE_S = 3.5;
export const SILENT_S = 15;

const SHORT = {
  leader_late: "Leader late", events_behind: "Events behind", agents_suspected: "Agents suspected", no_agents: "No agents",
  nodes_unowned: "Nodes without an agent", writes_queued: "Writes queued", plans_waiting: "Plans waiting", no_binder: "No binder",
  not_placing: "Not placing", scheduling_paused: "Paused", etcd_slow: "etcd slow",
  etcd_full: "etcd full", etcd_short: "etcd short of room", watches_blind: "Watches blind", policy_rolled_back: "Policy rolled back",
};

/** A finding in two words; a code that this page does not know is told as it is. */
export function shortOf(finding) {
  return SHORT[finding.code] ?? String(finding.code ?? "finding").replaceAll("_", " ");
}

/**
 * {level, words, findings}: `level` is ok, degraded, bad or unknown; `words` are short; `findings` are the leader's, as
 * long as it is the leader that tells.
 */
export function verdictOf(live, now = Date.now()) {
  const { connection, overview } = live;
  if (connection === "unreachable") return { level: "bad", words: "No answer", findings: [] };
  if (connection === "no_leader") return { level: "bad", words: "No leader", findings: [] };
  if (!overview) return { level: "unknown", words: "Connecting", findings: [] };
  const age_s = live.age_s(now);
  const findings = overview.health?.findings ?? [];
  if (age_s >= SILENT_S) return { level: "bad", words: `No figures for ${seconds(age_s)}`, findings };
  if (age_s >= LATE_S) return { level: overview.health?.verdict === "bad" ? "bad" : "degraded", words: `Late: ${seconds(age_s)} old`, findings };
  const level = overview.health?.verdict ?? "unknown";
  const pace = connection === "polling" ? "Every 2 s" : "Live";
  if (level === "ok" || level === "unknown") return { level: level === "ok" && connection === "polling" ? "degraded" : level, words: heldForMs() > 1000 ? `${pace}, held back` : pace, findings };
  const others = findings.length - 1;
  return { level, words: findings.length ? `${shortOf(findings[0])}${others > 0 ? ` and ${others} more` : ""}` : level, findings };
}

/** A value with its unit, as a finding tells it. */
export function measured(value, unit) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (unit === "s" && value >= 10) return seconds(value);
  return `${Math.round(value * 100) / 100}${unit ? ` ${unit}` : ""}`;
}
