// The admin API over fetch. Why it exists: one place that knows the token and what a refusal looks like. It keeps the
// token in this tab alone (sessionStorage) and refuses to send it anywhere but to the server this page came from.

const KEY = "conclave-token";

/** A refusal or no answer: `status` 0 is a server that cannot be reached. */
export class ApiError extends Error {
  constructor(status, code, message, requestId = "", retryAfterMs = 0) {
    super(message);
    this.retryAfterMs = retryAfterMs;
    this.status = status;
    this.code = code;
    this.requestId = requestId;
  }
}

let heldUntil = 0;

/** Milliseconds for which the server wants no more reads of this page: it said 429, and after how long to come back. */
export function heldForMs() {
  return Math.max(0, heldUntil - performance.now());
}

export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** What every request carries. */
export function headers(extra = {}) {
  const found = { Accept: "application/json", ...extra };
  if (token()) found.Authorization = `Bearer ${token()}`;
  return found;
}

const unauthenticated = new Set();

/** Called when the server no longer accepts the token. */
export function onUnauthenticated(listener) {
  unauthenticated.add(listener);
}

/** The refusal in an answer that is not 2xx. */
export async function refusal(response) {
  const requestId = response.headers.get("X-Request-Id") ?? "";
  let code = `http_${response.status}`;
  let message = response.statusText || "refused";
  try {
    const body = await response.json();
    code = String(body.code ?? code);
    message = String(body.message ?? message);
  } catch {
    // no JSON: a proxy in between answered
  }
  if (response.status === 401) for (const listener of unauthenticated) listener();
  const retryAfterMs = 1000 * Math.min(60, Number(response.headers.get("Retry-After")) || 0);
  return new ApiError(response.status, code, message, requestId, retryAfterMs);
}

const ages = new WeakMap();

/** Seconds since the leader made this answer; 0 for one that it made when it was asked. */
export function ageOf(answer) {
  return ages.get(answer) ?? 0;
}

async function call(method, path, body, timeoutMs) {
  const init = { method, headers: headers(), cache: "no-store", signal: AbortSignal.timeout(timeoutMs) };
  if (body !== undefined) {
    init.headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(path, init);
    if (response.ok) return aged(await response.json(), Number(response.headers.get("Age")) || 0);
  } catch (error) {
    const slow = error?.name === "TimeoutError";
    throw new ApiError(0, slow ? "timeout" : "unreachable", slow ? "no answer in time" : "this coordinator does not answer");
  }
  const refused = await refusal(response);
  if (refused.status === 429) heldUntil = Math.max(heldUntil, performance.now() + (refused.retryAfterMs || 1000));
  throw refused;
}

function aged(answer, age_s) {
  if (age_s > 0) ages.set(answer, age_s);
  return answer;
}

const early = new Map();

/** Asks before anybody needs it; the next `get` of the path takes that answer. */
export function ahead(path) {
  const answer = call("GET", path, undefined, 8000);
  answer.catch(() => {});
  early.set(path, answer);
}

export function get(path, timeoutMs = 8000) {
  const begun = early.get(path);
  if (begun) {
    early.delete(path);
    return begun;
  }
  return call("GET", path, undefined, timeoutMs);
}

/** All items of a list route, page after page, `most` of them at the most: {items, more, first}. */
export async function getAll(path, { most = 20_000, limit = 500, pauseMs = 40 } = {}) {
  const items = [];
  const mark = path.includes("?") ? "&" : "?";
  let first = null;
  let oldest_s = 0;
  for (let from = ""; ;) {
    const page = await get(`${path}${mark}limit=${limit}${from ? `&continue=${encodeURIComponent(from)}` : ""}`);
    first ??= page;
    oldest_s = Math.max(oldest_s, ageOf(page));
    for (const item of page.items) items.push(item);
    from = page.continue ?? "";
    if (!from || items.length >= most) return aged({ items, more: Boolean(from), first }, oldest_s);
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}

export function post(path, body, timeoutMs = 15_000) {
  return call("POST", path, body, timeoutMs);
}

/** One line for people, with the id to ask an administrator about. */
export function told(error) {
  if (!(error instanceof ApiError)) return String(error?.message ?? error);
  const words = { forbidden: "Your role may not do this", no_leader: "No coordinator leads just now", route_unknown: "This leader does not tell this: it is of another version", not_ready: "The leader has just begun and is not ready yet" };
  const text = words[error.code] ?? error.message;
  return error.requestId ? `${text} (request ${error.requestId})` : text;
}

/** Part of a path from a name that may hold anything. */
export const segment = encodeURIComponent;
