// Signing in with a token. A caller whose certificate the server accepts never sees this.

import { ApiError, setToken, told } from "./api.js";
import { fill, h } from "./dom.js";
import { identify } from "./session.js";

/** What a token can be made of; anything else could not even be sent. */
const PRINTABLE = /^[\x21-\x7e]+$/;

/** The form; resolves once a token was accepted. */
export function signIn(place) {
  return new Promise((resolve) => {
    const field = h("input", { type: "password", id: "token", name: "token", autocomplete: "current-password", required: true, spellcheck: "false" });
    const error = h("p", { class: "error", role: "alert" });
    const button = h("button", { type: "submit", class: "primary" }, "Sign in");
    const form = h("form", { onsubmit: async (event) => {
      event.preventDefault();
      button.disabled = true;
      fill(error);
      try {
        if (!PRINTABLE.test(field.value.trim())) throw new ApiError(401, "unauthenticated", "");
        setToken(field.value.trim());
        resolve(await identify());
      } catch (problem) {
        setToken("");
        if (problem.status === 401) fill(error, "This token is not accepted. It is one line of the coordinator’s admin token file.");
        else fill(error, told(problem));
        button.disabled = false;
        field.focus();
      }
    } }, h("div", { class: "field" }, h("label", { for: "token" }, "Admin token"), field), error, h("div", { class: "answers" }, button));
    fill(place, h("section", { class: "sign-in", "aria-labelledby": "sign-in-title" },
      h("img", { class: "mark", src: "mark.svg", alt: "" }),
      h("h1", { id: "sign-in-title" }, "Sign in to Conclave"),
      h("p", { class: "soft" }, "The token stays in this tab and is forgotten when it closes."), form));
    field.focus();
  });
}
