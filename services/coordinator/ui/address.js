// The address after the `#`: which view, what is opened over it, and how its lists are searched, sorted and filtered. Why
// it exists: a link or a reload shows the same again. What is typed replaces the address, so that Back leaves the view.

let shown = { path: "#/", query: new URLSearchParams() };

/** The parts of the address and what is asked of them: `#/nodes/a%2Fb?sort=-cpu`. */
export function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  try {
    return { parts: path.split("/").map(decodeURIComponent), query: new URLSearchParams(query) };
  } catch {
    return { parts: [""], query: new URLSearchParams() };
  }
}

/** The view that is shown from now on; true where it is asked something else than before. */
export function enter(name, query) {
  const before = addressOf(shown.query);
  shown = { path: `#/${name}`, query };
  return addressOf(query) !== before;
}

/** The address of the view itself, without what is opened over it. */
export function viewAddress() {
  return addressOf(shown.query);
}

export function state(key) {
  return shown.query.get(key) ?? "";
}

/** Keeps values of the view in its address; an empty one is left out. */
export function keep(values) {
  for (const [key, value] of Object.entries(values)) {
    if (value) shown.query.set(key, value);
    else shown.query.delete(key);
  }
  if (`#/${route().parts[0]}` === shown.path && route().parts.length === 1) history.replaceState(null, "", viewAddress());
}

/** A link to a view with a state: `to("queue", {q: "train"})`. */
export function to(name, values = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value !== "" && value !== null && value !== undefined) query.set(key, value);
  return `#/${name}${query.size ? `?${query}` : ""}`;
}

/** Where a document says it: the address that the leader tells, or that section of the page beside this one. */
export function documentAt(address) {
  if (/^https?:\/\//i.test(address)) return address;
  const page = /reasons\.html|faq-pending/.test(address) ? "reasons" : "runbooks";
  return `${page}.html#${address.slice(address.indexOf("#") + 1)}`;
}

function addressOf(query) {
  return `${shown.path}${query.size ? `?${query}` : ""}`;
}
