// What must not be missed: no leader, no answer, old figures, what the leader finds wrong, paused. One line each,
// announced when it comes and when it goes; it holds no figure that would be announced each second.

import { get, post, told } from "./api.js";
import { ask, say, sayDone } from "./dialogs.js";
import { fill, h, icon, ICONS, setText } from "./dom.js";
import { seconds, since } from "./format.js";
import { shortOf, SILENT_S, verdictOf } from "./health.js";
import { may } from "./session.js";

/** Milliseconds without an answer before it is worth a banner: a reconnect takes less. */
const PATIENCE_MS = 1200;

export class Banners {
  #place;
  #live;
  #shown = "";
  #others = [];

  constructor(place, live) {
    this.#place = place;
    this.#live = live;
    live.addEventListener("connection", () => { this.show(); setTimeout(() => this.show(), PATIENCE_MS + 50); });
    live.addEventListener("overview", () => this.show());
    setInterval(() => { this.show(); this.#count(); }, 1000);
  }

  /** Other coordinators whose pages a reader could open while this one is silent. */
  async learnOthers() {
    const found = await get("/v1/members?service=coordinator").catch(() => null);
    if (found) this.#others = found.items.filter((one) => one.admin_url && !one.admin_url.startsWith(location.origin));
  }

  show() {
    const { connection, overview, since: from } = this.#live;
    const paused = overview?.scheduling?.paused ? overview.scheduling : null;
    const lost = connection === "no_leader" || (connection === "unreachable" && Date.now() - from >= PATIENCE_MS) ? connection : "";
    const silent = !lost && this.#live.age_s() >= SILENT_S ? "silent" : "";
    const found = lost || silent ? [] : verdictOf(this.#live).findings.filter((one) => one.code !== "scheduling_paused");
    const sign = JSON.stringify([lost, silent, found.map((one) => [one.code, one.severity]), paused?.by, paused?.reason, paused?.since]);
    if (sign === this.#shown) return;
    this.#shown = sign;
    fill(this.#place, lost || silent ? this.#lost(lost || silent) : null, found.length ? findings(found) : null, paused ? this.#paused(paused) : null);
    this.#count();
  }

  #lost(kind) {
    const others = this.#others.map((one) => [" ", h("a", { href: `${one.admin_url}/ui/` }, `Open ${one.id}`)]);
    const words = kind === "no_leader"
      ? [h("strong", {}, "No leader."), " A failover is under way: running pods are not touched, new ones wait until a coordinator leads."]
      : kind === "silent" ? [h("strong", {}, "No figures come."), " The leader is busy or gone; what is shown below is old.", others]
      : [h("strong", {}, "This coordinator does not answer."), " Trying again. What is shown below is old.", others];
    return h("div", { class: "is-bad", "data-banner": kind }, h("p", { class: "banner" }, icon(ICONS.warn), h("span", {}, words), h("span", { class: "elapsed", "aria-hidden": "true" })));
  }

  #paused(state) {
    const words = [state.by && ` by ${state.by}`, ` ${since(state.since)} ago`, state.reason && `: ${state.reason}`].filter(Boolean).join("");
    return h("div", { class: "is-warn", "data-banner": "paused" }, h("div", { class: "banner" }, icon(ICONS.pause),
      h("span", {}, h("strong", {}, "Scheduling is paused"), words, ". Pods wait in the queue; what was under way finishes."),
      may("operator") ? h("button", { type: "button", onclick: () => askPause(true) }, "Resume …") : null));
  }

  #count() {
    const place = this.#place.querySelector(".elapsed");
    const { connection, since: from } = this.#live;
    const past = ["no_leader", "unreachable"].includes(connection) ? (Date.now() - from) / 1000 : this.#live.age_s();
    if (place) setText(place, `for ${seconds(past)}`);
  }
}

/** What the leader finds wrong with itself, by name; the page Health says what to do. */
function findings(found) {
  const bad = found.some((one) => one.severity === "bad");
  return h("div", { class: bad ? "is-bad" : "is-warn", "data-banner": "findings" }, h("p", { class: "banner" }, icon(ICONS.warn),
    h("span", {}, h("strong", {}, bad ? "In trouble: " : "Degraded: "), found.map(shortOf).join(", "), ". ", h("a", { href: "#/health" }, "What it means and what to do"))));
}

/** Asks, then pauses or resumes scheduling. */
export function askPause(paused) {
  return ask({
    title: paused ? "Resume scheduling" : "Pause scheduling",
    text: paused ? "Waiting pods are placed at once." : "Nothing new is placed until it is resumed, by whichever leader. What is under way finishes; running pods are not touched.",
    verb: paused ? "Resume" : "Pause",
    danger: !paused,
    act: async ({ reason }) => {
      const state = await post(`/v1/scheduling/${paused ? "resume" : "pause"}`, { reason });
      sayDone(paused ? "Scheduling goes on" : "Scheduling is paused", state);
      return state;
    },
  }).catch((error) => say(told(error), true));
}
