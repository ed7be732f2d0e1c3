// Signing in with a token. A caller whose certificate the server accepts never sees this.

import { ApiError, setToken, told } from "./api.js";
import { fill, h } from "./dom.js";
import { identify } from "./session.js";

/** What a token can be made of; anything else could not even be sent. */
const PRINTABLE = /^[\x21-\x7e]+$/;

/** The form; resolves once a token was accepted. */
const COMMANDS = [
  ["conclave up, conclave demo", "head -1 FILE", "FILE is the admin-token-file of the line that says ready"],
  ["Kubernetes", "kubectl -n conclave-system get secret conclave-admin-token -o jsonpath='{.data.viewer}' | base64 -d", "or .data.operator, .data.admin"],
  ["compose", "docker compose -f compose/docker-compose.yaml run --rm --no-deps cli cat /secrets/admin-tokens", "a line per role"],
];

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
        if (problem.status === 401) fill(error, "This token is not accepted. It is the first word of a line of the coordinator’s admin token file; where that is stands below.");
        else fill(error, told(problem));
        button.disabled = false;
        field.focus();
      }
    } }, h("div", { class: "field" }, h("label", { for: "token" }, "Admin token"), field), error, h("div", { class: "answers" }, button));
    fill(place, h("section", { class: "sign-in", "aria-labelledby": "sign-in-title" },
      h("img", { class: "mark", src: "mark.svg", alt: "" }),
      h("h1", { id: "sign-in-title" }, "Sign in to Conclave"),
      h("p", { class: "soft" }, "The token stays in this tab and is forgotten when it closes."), form, whereItIs()));
    field.focus();
  });
}

/** Where the token of each kind of installation is. The file's lines begin with it: TOKEN ROLE [NAME]. */
function whereItIs() {
  return h("section", { class: "token-places", "aria-label": "Where the token is" }, h("h2", {}, "Where the token is"), h("dl", {}, COMMANDS.map(([where, command, more]) => [
    h("dt", {}, where), h("dd", {}, h("code", {}, command), h("div", { class: "soft small" }, more))])),
    h("p", { class: "soft small" }, "Anywhere else: the first word of a line of the file that the coordinator’s --admin-token-file names."));
}
