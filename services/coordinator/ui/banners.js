// What must not be missed: no leader, no answer, paused. One line each, announced when it comes and when it goes.

import { get, post, told } from "./api.js";
import { ask, say, sayDone } from "./dialogs.js";
import { fill, h, icon, ICONS, setText } from "./dom.js";
import { seconds, since } from "./format.js";
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
    setInterval(() => this.#count(), 1000);
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
    const sign = JSON.stringify([lost, paused?.by, paused?.reason, paused?.since]);
    if (sign === this.#shown) return;
    this.#shown = sign;
    fill(this.#place, lost ? this.#lost(lost) : null, paused ? this.#paused(paused) : null);
  }

  #lost(kind) {
    const words = kind === "no_leader"
      ? [h("strong", {}, "No leader."), " A failover is under way: running pods are not touched, new ones wait until a coordinator leads."]
      : [h("strong", {}, "This coordinator does not answer."), " Trying again. What is shown below is old.", this.#others.map((one) => [" ", h("a", { href: `${one.admin_url}/ui/` }, `Open ${one.id}`)])];
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
    if (place) setText(place, `for ${seconds((Date.now() - this.#live.since) / 1000)}`);
  }
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
