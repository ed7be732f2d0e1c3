// One answer of the leader, asked for once and laid out: what drawers show. An answer that is a copy says how old it is.

import { ageOf, get, told } from "./api.js";
import { fill, h } from "./dom.js";
import { seconds } from "./format.js";

/** From here on it is said how old an answer is. */
const OLD_S = 2;

/** Fills `place` with `parts(answer)` of a route, or with why there is none; `then()`: once they stand there. */
export async function answerInto(place, path, parts, then = () => {}) {
  fill(place, h("p", { class: "soft", role: "status" }, "Asking the leader …"));
  try {
    const answer = await get(path);
    fill(place, ageOf(answer) >= OLD_S ? h("p", { class: "as-of is-old" }, `As of ${seconds(ageOf(answer))} ago: the leader runs late and gave its last copy.`) : null, parts(answer));
    then();
  } catch (error) {
    fill(place, h("p", { class: "error", role: "alert" }, told(error)));
  }
}
