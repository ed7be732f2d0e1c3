// Elements from code. Why it exists: what the cluster says (names, labels, reasons) is text that strangers write, so it
// only ever becomes a text node. Refuses markup: there is no way through here to innerHTML, inline handlers or styles.

const REFUSED = /^(on|style$|srcdoc$|innerhtml$|outerhtml$)/i;

/** An element. `props`: attributes, `onclick`-like functions, `class`; children: nodes, text, or arrays of them. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else if (REFUSED.test(name)) throw new Error(`attribute ${name} is refused`);
    else if (name === "href") setLink(element, String(value));
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** Only places inside this page, the documents beside it and plain web addresses; anything else (`javascript:`) stays text
 * without a link. */
function setLink(element, address) {
  if (/^(#|(runbooks|reasons)\.html#|https?:\/\/)/i.test(address)) element.setAttribute("href", address);
}

/** Puts the children in place of what was there. */
export function fill(element, ...children) {
  const holder = document.createDocumentFragment();
  append(holder, children);
  element.replaceChildren(holder);
}

/** Sets text where it differs: an unchanged text node costs no layout and is not announced again. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Rows of a table body by key: rows that stay keep their element, and with it focus and selection. */
export function syncRows(body, items, keyOf, build, signOf = () => "") {
  const old = new Map();
  for (const row of [...body.children]) old.set(row.rowKey, row);
  let place = body.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const sign = signOf(item);
    let row = old.get(key);
    if (!row || row.rowSign !== sign) {
      const fresh = build(item);
      fresh.rowKey = key;
      fresh.rowSign = sign;
      if (row) {
        const held = row.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
        if (place === row) place = row.nextSibling;
        row.remove();
        body.insertBefore(fresh, place);
        if (held) fresh.querySelector(`[data-focus="${CSS.escape(held)}"]`)?.focus();
      } else body.insertBefore(fresh, place);
      old.delete(key);
      continue;
    }
    old.delete(key);
    if (row === place) place = place.nextSibling;
    else body.insertBefore(row, place);
  }
  for (const row of old.values()) row.remove();
}

/** A small picture drawn with lines; decoration, so hidden from screen readers. */
export function icon(path, size = 16) {
  const space = "http://www.w3.org/2000/svg";
  const picture = document.createElementNS(space, "svg");
  for (const [name, value] of Object.entries({ viewBox: "0 0 16 16", width: size, height: size, "aria-hidden": "true", class: "icon" }))
    picture.setAttribute(name, value);
  const line = document.createElementNS(space, "path");
  line.setAttribute("d", path);
  picture.append(line);
  return picture;
}

export const ICONS = {
  close: "M3.5 3.5l9 9M12.5 3.5l-9 9",
  pause: "M5.5 3v10M10.5 3v10",
  play: "M5 3.2v9.6l7.5-4.8z",
  warn: "M8 2.2L14.4 13.4H1.6zM8 6.4v3.4M8 11.6v.1",
};
