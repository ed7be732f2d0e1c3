// What the page knows now, kept current. Why it exists: views show, this follows. Stream first; where a stream gives
// nothing (too many readers, a proxy that holds it back) it asks every other second instead, and says so.

import { ApiError, get, heldForMs } from "./api.js";
import { History } from "./history.js";
import { follow } from "./stream.js";

const DECISIONS_KEPT = 200;
const STALE_MS = 4000;
const POLL_MS = 2000;
const MOST_POLL_MS = 30_000;
const NO_LEADER_RETRY_MS = 500;
const HIDDEN_MS = 60_000;

/** Events: `overview`, `decisions`, `connection`, `failover` (detail: from, to, term, without_s). */
export class Live extends EventTarget {
  overview = null;
  /** connecting, live, polling, no_leader or unreachable. */
  connection = "connecting";
  /** Milliseconds of the clock since which there is no leader, or no answer. */
  since = 0;
  /** Milliseconds of the clock when the last overview came; 0: none yet. */
  at = 0;
  dropped = 0;
  history = new History();
  #raw = [];
  #leader = null;
  #leaderless = 0;
  #seen = 0;
  #running = null;
  #polling = false;
  #pollDue = 0;
  #pollFailures = 0;
  #lastId = "";

  /** Follow until `stop`. */
  start() {
    if (this.#running) return;
    const running = (this.#running = new AbortController());
    this.#seen = 0;
    this.history.start();
    const ticker = setInterval(() => this.#poll(), POLL_MS);
    running.signal.addEventListener("abort", () => clearInterval(ticker), { once: true });
    follow("/v1/decisions/stream?events=overview,decision,leader", {
      signal: running.signal,
      lastId: () => this.#lastId,
      onOpen: () => {},
      onEvents: (events) => this.#take(events),
      onGone: (error) => this.#gone(error),
    });
  }

  stop() {
    this.#running?.abort();
    this.#running = null;
    this.history.stop();
  }

  /** A page that nobody sees holds no stream for long. */
  watchVisibility() {
    let timer = 0;
    document.addEventListener("visibilitychange", () => {
      clearTimeout(timer);
      if (document.hidden) timer = setTimeout(() => { if (this.#running) { this.stop(); this.paused = true; } }, HIDDEN_MS);
      else if (this.paused) { this.paused = false; this.start(); }
    });
  }

  /** The newest decisions, newest first; read when shown, since hundreds a second may come. */
  decisions(limit) {
    const found = [];
    for (let i = this.#raw.length - 1; i >= 0 && found.length < limit; i--) {
      const held = this.#raw[i];
      if (typeof held === "string") this.#raw[i] = JSON.parse(held);
      found.push(this.#raw[i]);
    }
    return found;
  }

  /** Seconds since the last figures came. */
  age_s(now = Date.now()) {
    return this.at ? (now - this.at) / 1000 : 0;
  }

  /** Decisions of before this page was opened, from the leader's memory. */
  async load(limit = 50) {
    const answer = await get(`/v1/decisions?limit=${limit}`);
    if (!this.#raw.length) this.#raw = answer.items.toReversed?.() ?? [...answer.items].reverse();
    this.#tell("decisions");
  }

  #take(events) {
    let decided = false;
    for (const event of events) {
      if (event.id) this.#lastId = event.id;
      if (event.name === "decision") { this.#raw.push(event.data); decided = true; }
      else if (event.name === "overview") this.#overviewed(JSON.parse(event.data), "live");
      else if (event.name === "leader") this.#ledBy(leaderIn(JSON.parse(event.data)));
      else if (event.name === "dropped") this.dropped += Number(JSON.parse(event.data).count ?? 0);
    }
    if (this.#raw.length > DECISIONS_KEPT) this.#raw.splice(0, this.#raw.length - DECISIONS_KEPT);
    if (decided) this.#tell("decisions");
  }

  #gone(error) {
    if (!(error instanceof ApiError)) {
      if (error?.name === "TypeError") this.#lost(new ApiError(0, "unreachable", ""));
      return undefined;
    }
    if (error.status === 401) return 60_000;
    this.#lost(error);
    return ["no_leader", "not_ready"].includes(error.code) ? NO_LEADER_RETRY_MS : undefined;
  }

  #lost(error) {
    if (error.code === "unreachable") this.#connect("unreachable");
    else if (["no_leader", "not_ready"].includes(error.code)) { this.#leaderless ||= Date.now(); this.#connect("no_leader"); }
  }

  async #poll() {
    if (this.#polling || !this.#running || document.hidden || performance.now() - this.#seen < STALE_MS) return;
    if (performance.now() < this.#pollDue) return;
    this.#polling = true;
    try {
      this.#overviewed(await get("/v1/overview", 3000), "polling");
      this.#pollFailures = 0;
      this.#pollDue = 0;
      const answer = await get("/v1/decisions?limit=50", 3000);
      this.#raw = [...answer.items].reverse();
      this.#tell("decisions");
    } catch (error) {
      // seldomer and seldomer, and not before the server wants it
      this.#pollDue = performance.now() + Math.max(heldForMs(), Math.min(MOST_POLL_MS, POLL_MS * 2 ** this.#pollFailures++ - POLL_MS / 2));
      if (error instanceof ApiError) this.#lost(error);
    } finally {
      this.#polling = false;
    }
  }

  #overviewed(overview, how) {
    if (how === "live") this.#seen = performance.now();
    this.history.add(overview);
    this.overview = overview;
    this.at = Date.now();
    this.#ledBy(overview.leader ?? null);
    this.#connect(overview.leader?.id ? how : "no_leader");
    this.#tell("overview");
  }

  #ledBy(leader) {
    if (!leader?.id) {
      this.#leaderless ||= Date.now();
      this.#connect("no_leader");
      return;
    }
    const before = this.#leader;
    this.#leader = leader;
    if (before && before.term !== leader.term) {
      const without_s = this.#leaderless ? (Date.now() - this.#leaderless) / 1000 : 0;
      this.history.begin();
      this.dispatchEvent(new CustomEvent("failover", { detail: { from: before.id, to: leader.id, term: leader.term, without_s } }));
    }
    this.#leaderless = 0;
  }

  #connect(state) {
    if (this.connection === state) return;
    this.connection = state;
    this.since = Date.now();
    this.#tell("connection");
  }

  #tell(name) {
    this.dispatchEvent(new Event(name));
  }
}

/** The leader of a `leader` event: the record itself, or under `leader`; null while there is none. */
function leaderIn(data) {
  const leader = data && "leader" in data ? data.leader : data;
  return leader?.id ? leader : null;
}
