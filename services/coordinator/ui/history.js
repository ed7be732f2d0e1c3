// The last hour in figures. Why it exists: the leader remembers an hour in steps of ten seconds, the stream tells each
// second; together they make a chart that is full when the page opens and fine at its end. What an earlier leader told
// stays: the new one begins with nothing. Bounded: an hour in steps, five minutes in seconds.

import { get } from "./api.js";
import { Reading } from "./reading.js";
import { PLACES } from "./waiting.js";

export const RANGES = { "5m": 300_000, "1h": 3_600_000 };
const STEP_MS = 10_000;

export class History extends EventTarget {
  #fine = [];
  #steps = new Map();
  #before = null;
  #last = "";
  #reading;
  /** What this clock is ahead of the leader's, milliseconds: the leader's steps are drawn by ours. */
  #ahead = 0;

  constructor() {
    super();
    this.#reading = new Reading(() => get(this.#last ? `/v1/history?minutes=60&since=${this.#last}` : "/v1/history?minutes=60"), {
      show: (answer) => this.#take(answer), everyMs: STEP_MS,
    });
  }

  start() {
    this.#reading.start();
  }

  stop() {
    this.#reading.stop();
  }

  /** Another leader counts its own steps. */
  begin() {
    this.#last = "";
    this.#reading.now();
  }

  /** One overview of the stream. */
  add(now) {
    const at = Date.now();
    this.#ahead = aheadOf(at, now.time, this.#ahead);
    const elapsed = this.#before ? Math.max(0.2, (Date.parse(now.time) - Date.parse(this.#before.time)) / 1000) : 1;
    const same = this.#before && this.#before.leader?.term === now.leader?.term;
    const per_s = (field) => (same ? Math.max(0, (now[field] - this.#before[field]) / elapsed) : null);
    this.#before = now;
    this.#fine.push({
      at, step: 1000, placed: now.rates?.pods_per_s_10s, queue: now.queue ?? {}, p50: now.latency_ms?.p50 || null, p99: now.latency_ms?.p99 || null,
      conflicts: per_s("conflicts"), alloc: Object.fromEntries((now.resources ?? []).map((one) => [one.name, one.share])),
    });
    const oldest = at - RANGES["5m"];
    while (this.#fine.length && this.#fine[0].at < oldest) this.#keepStep(this.#fine.shift());
  }

  /** Samples of a range, oldest first. Seconds stand in for steps where the stream told them. */
  samples(range) {
    const now = Date.now();
    const from = now - RANGES[range];
    const fine = (range === "5m" ? this.#fine : this.#tail()).filter((one) => one.at >= from);
    const steps = [...this.#steps.values()].filter((one) => one.at >= from);
    return merged(steps, completed(fine, [...this.#steps.values()]));
  }

  /** Steps alone: what only the leader measures. */
  steps(range = "1h") {
    const from = Date.now() - RANGES[range];
    return [...this.#steps.values()].filter((one) => one.at >= from && one.told).sort((a, b) => a.at - b.at);
  }

  #tail() {
    let last = 0;
    for (const at of this.#steps.keys()) last = Math.max(last, at);
    return this.#fine.filter((one) => one.at > last);
  }

  /** What the stream told serves as a step where the leader's memory has none: an older leader, or a failover. */
  #keepStep(sample) {
    const at = Math.floor(sample.at / STEP_MS) * STEP_MS;
    if (!this.#steps.has(at)) this.#steps.set(at, { ...sample, at, step: STEP_MS });
    this.#forget();
  }

  #take({ times = [], series = {}, allocation = {}, step_s = 10 }) {
    const of = (name, i) => series[name]?.[i] ?? null;
    times.forEach((time, i) => {
      const at = Math.floor((time * 1000 + this.#ahead) / STEP_MS) * STEP_MS;
      this.#steps.set(at, {
        at, step: step_s * 1000, told: true, placed: of("bound_per_s", i), evicted: of("evicted_per_s", i),
        queue: Object.fromEntries(PLACES.map((place) => [place, of(`pending_${place}`, i)])),
        p50: of("latency_p50_ms", i), p99: of("latency_p99_ms", i), turn: of("turn_longest_ms", i), busy: of("turn_busy_share", i),
        events: of("events_waiting", i), writes: of("writes_queued", i), health: of("health", i), notReady: of("nodes_not_ready", i),
        alloc: Object.fromEntries(Object.entries(allocation).map(([name, list]) => [name, list[i] ?? null])),
      });
    });
    if (times.length) this.#last = String(times.at(-1));
    this.#forget();
    this.dispatchEvent(new Event("steps"));
  }

  #forget() {
    const oldest = Date.now() - RANGES["1h"] - STEP_MS;
    for (const at of this.#steps.keys()) if (at < oldest) this.#steps.delete(at);
  }
}

/** Less than this between two clocks is the way of the answer. */
const SKEW_MS = 2000;

/** What our clock is ahead of that which told `time`, where it is more than the way takes; `before` where nothing can be told. */
export function aheadOf(now, time, before = 0) {
  const ahead = now - Date.parse(time ?? "");
  if (!Number.isFinite(ahead)) return before;
  return Math.abs(ahead) > SKEW_MS ? ahead : 0;
}

/** Seconds with what only steps tell, such as evictions: as the newest step before each of them told it. */
export function completed(fine, steps) {
  const told = steps.filter((one) => one.told).sort((a, b) => a.at - b.at);
  let next = 0;
  return fine.map((one) => {
    while (next < told.length && told[next].at <= one.at) next++;
    return next ? { ...one, evicted: told[next - 1].evicted } : one;
  });
}

/** Steps and seconds in order of time, each step only where no second of it is known: also in a gap between seconds. */
export function merged(steps, fine) {
  const known = new Set(fine.map((one) => Math.floor(one.at / STEP_MS)));
  return [...steps.filter((one) => !known.has(Math.floor(one.at / STEP_MS))), ...fine].sort((a, b) => a.at - b.at);
}
