// The drawer that explains one thing, the question before a change, and the line that says how it went. Native dialogs:
// the browser keeps the focus inside and gives it back.

import { told } from "./api.js";
import { fill, h, icon, ICONS } from "./dom.js";

let drawer = null;

/** Opens the drawer with a title; `onClose` once it is closed by the reader. Returns where its content goes. */
export function openDrawer(title, onClose) {
  closeDrawer();
  const body = h("div", { class: "dialog-body" });
  const heading = h("h2", { id: "drawer-title" }, title);
  const dialog = h(
    "dialog", { class: "drawer", "aria-labelledby": "drawer-title" },
    h("div", { class: "dialog-head" }, heading, h("button", { type: "button", class: "quiet square", "aria-label": "Close", onclick: () => dialog.close() }, icon(ICONS.close))),
    body,
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (drawer === dialog) {
      drawer = null;
      onClose();
    }
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  drawer = dialog;
  document.body.append(dialog);
  dialog.showModal();
  return body;
}

/** Closes it without calling `onClose`. */
export function closeDrawer() {
  const dialog = drawer;
  drawer = null;
  dialog?.close();
}

/**
 * Asks before a change. `fields`: elements with a name, put above the reason; `act(values)` makes the change, and a
 * refusal of it stays in the dialog. Resolves to what `act` gave, or null where the reader went back.
 */
export function ask({ title, text, verb, danger = false, fields = [], reason = true, act }) {
  return new Promise((resolve) => {
    let result = null;
    const error = h("p", { class: "error", role: "alert" });
    const yes = h("button", { type: "submit", class: danger ? "danger" : "primary" }, verb);
    const why = h("input", { type: "text", name: "reason", id: "question-reason", maxlength: "200", autocomplete: "off" });
    const form = h(
      "form", { method: "dialog" },
      h("h2", { id: "question-title" }, title),
      text ? h("p", { class: "soft", id: "question-text" }, text) : null,
      fields,
      reason ? h("div", { class: "field" }, h("label", { for: "question-reason" }, "Reason, for the audit log"), why) : null,
      error,
      h("div", { class: "answers" }, h("button", { type: "button", onclick: () => dialog.close() }, "Back"), yes),
    );
    const dialog = h("dialog", { class: "question", "aria-labelledby": "question-title", "aria-describedby": text ? "question-text" : null }, form);
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      yes.disabled = true;
      fill(error, "");
      try {
        result = await act(Object.fromEntries(new FormData(form)));
        dialog.close();
      } catch (problem) {
        fill(error, told(problem));
        yes.disabled = false;
      }
    });
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(result);
    });
    document.body.append(dialog);
    dialog.showModal();
    if (reason) why.focus();
  });
}

/** Says that a change was made, or that it is stored and the leader has not said yet that it goes by it. */
export function sayDone(text, answer) {
  if (answer.obeyed) say(text);
  else say(`${text}, as soon as the leader hears of it: it is stored, and was not confirmed in time`, true);
}

let toast = null;

/** One line at the edge for a few seconds; announced. */
export function say(text, bad = false) {
  toast?.remove();
  const line = (toast = h("p", { class: bad ? "toast is-bad" : "toast", role: bad ? "alert" : "status" }, text));
  document.body.append(line);
  setTimeout(() => line.remove(), bad ? 9000 : 5000);
}
