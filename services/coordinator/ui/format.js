// Figures as people read them. Pure: a value in, text out; "–" where there is none.

const NONE = "–";
const WHOLE = new Intl.NumberFormat("en-GB");

/** 1,204 or 12.4k from a hundred thousand on. */
export function count(value) {
  if (!Number.isFinite(value)) return NONE;
  return Math.abs(value) >= 100_000 ? `${WHOLE.format(Math.round(value / 1000))}k` : WHOLE.format(Math.round(value));
}

/** Three digits that matter: 0.42, 12.3, 312. */
export function figure(value) {
  if (!Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 100) return WHOLE.format(Math.round(value));
  return size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

// en-US: its M is a million; the m of en-GB would read as a thousandth
const COMPACT = new Intl.NumberFormat("en-US", { notation: "compact", maximumSignificantDigits: 4 });

/** A score or a value of a policy; at most four digits that matter: 0.8123, 471M. */
export function score(value) {
  if (!Number.isFinite(value)) return NONE;
  return Math.abs(value) >= 100_000 ? COMPACT.format(value) : String(Number(value.toPrecision(4)));
}

/** Milliseconds: 0.8 ms, 42 ms, 1.3 s. */
export function millis(value) {
  if (!Number.isFinite(value)) return NONE;
  if (value >= 1000) return `${figure(value / 1000)} s`;
  return value >= 10 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
}

/** Seconds of waiting: 0.4 s, 12 s, 5 min, 3 h, 2 d. */
export function seconds(value) {
  if (!Number.isFinite(value)) return NONE;
  if (value < 10) return `${Math.max(0, value).toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  return value < 172_800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86_400)} d`;
}

/** How long ago an RFC 3339 time is; `now` in milliseconds. */
export function since(time, now = Date.now()) {
  const at = Date.parse(time ?? "");
  return Number.isNaN(at) ? NONE : seconds(Math.max(0, now - at) / 1000);
}

const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The time of day, local; of another day its date and the minute, and of another year the date alone. */
export function clock(time, now = new Date()) {
  const at = new Date(time ?? "");
  if (Number.isNaN(at.getTime())) return NONE;
  if (at.toDateString() === now.toDateString()) return at.toTimeString().slice(0, 8);
  return at.getFullYear() === now.getFullYear() ? `${DAY.format(at)} ${at.toTimeString().slice(0, 5)}` : at.toISOString().slice(0, 10);
}

/** A share of one as a percentage. */
export function percent(share) {
  return Number.isFinite(share) ? `${Math.round(share * 100)} %` : NONE;
}

const EXACT = new Intl.NumberFormat("en-GB", { maximumFractionDigits: 3 });

/** An amount of cores or GPUs, exact to a thousandth and always in the same style: 0.25, 1.5, 1,353.3, 4,000. */
export function exact(value) {
  return Number.isFinite(value) ? EXACT.format(value) : NONE;
}

/** CPU in cores, from millicores. */
export function cores(millis) {
  return exact(millis / 1000);
}

/** Bytes with binary prefixes. */
export function bytes(value) {
  if (!Number.isFinite(value)) return NONE;
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (value >= size) return `${Number(figure(value / size).replaceAll(",", ""))} ${unit}`;
  return `${WHOLE.format(value)} B`;
}

/** An amount of a named resource. */
export function amount(resource, value) {
  if (resource === "cpu" || resource === "cpu_millis") return cores(value);
  if (/memory|storage|hugepages/.test(resource)) return bytes(value);
  return exact(value);
}

/** "1 pod", "2 pods". */
export function plural(number, word) {
  return `${count(number)} ${word}${number === 1 ? "" : "s"}`;
}
