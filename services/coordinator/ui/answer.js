// One answer of the leader, laid out: what drawers show. An answer that is a copy says how old it is. Where nobody answers
// just now, as in a failover or when a connection breaks, it is asked again while somebody looks.

import { ageOf, ApiError, get, told } from "./api.js";
import { fill, h } from "./dom.js";
import { seconds } from "./format.js";

/** From here on it is said how old an answer is. */
const OLD_S = 2;
const PAUSE_MS = [500, 1000, 2000, 4000];

/** Fills `place` with `parts(answer)` of a route, or with why there is none; `then()`: once they stand there. */
export async function answerInto(place, path, parts, then = () => {}) {
  const asking = h("p", { class: "soft", role: "status" }, "Asking the leader …");
  fill(place, asking);
  // asked at least once: the place may stand on no page yet
  for (let tried = 0; !tried || asking.isConnected; tried++) {
    try {
      const answer = await get(path);
      if (!asking.isConnected) return;
      fill(place, ageOf(answer) >= OLD_S ? h("p", { class: "as-of is-old" }, `As of ${seconds(ageOf(answer))} ago: the leader runs late and gave its last copy.`) : null, parts(answer));
      then();
      return;
    } catch (error) {
      if (!asking.isConnected) return;
      const again = passes(error);
      fill(place, h("p", { class: "error", role: "alert" }, told(error)), again ? asking : null);
      if (!again) return;
      fill(asking, "Asking again …");
      await new Promise((resolve) => setTimeout(resolve, Math.max(error.retryAfterMs, PAUSE_MS[Math.min(tried, PAUSE_MS.length - 1)])));
    }
  }
}

/** Whether a refusal is one of the moment: nobody answered, nobody leads, or too much is asked. */
export function passes(error) {
  return error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status === 503);
}
