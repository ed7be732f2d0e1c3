// What the choices of policies are worth: the last window side by side, the rules that change the pointer next, and every
// window over time by each goal.

import { keep, state } from "./address.js";
import { Chart } from "./chart.js";
import { fill, h, setText } from "./dom.js";
import { clock, count, millis, percent, plural, score, seconds } from "./format.js";
import { plainTable } from "./table.js";

const VERDICTS = { good: "is-good", bad: "is-bad", unsure: "is-warn" };

export const titleOf = (ref) => (ref ? (typeof ref === "string" ? ref : `${ref.name}@${ref.version}`) : "");

/** How the candidate does in its present stage, and what comes next. */
export function comparison({ pointer, comparison: seen }) {
  if (!pointer?.candidate) return h("p", { class: "soft" }, "There is no candidate. One in shadow or canary is compared with the active policy window by window.");
  const last = seen?.last_window;
  const so_far = h("p", { class: "soft" }, `${plural(seen?.windows ?? 0, "window")} so far · `, h("b", { class: "good" }, `${count(seen?.good ?? 0)} good`), " and ", h("b", { class: "bad" }, `${count(seen?.bad ?? 0)} bad`), ` in this stage · ${plural(seen?.samples ?? 0, "sample")}${seen?.min_samples ? ` of ${count(seen.min_samples)}` : ""} in the open window`);
  const next = seen?.rules?.length ? h("ul", { class: "rules" }, seen.rules.map(rule)) : null;
  const sampled = seen?.sampling?.why ? h("p", { class: "soft small" }, `The window lacks samples: ${seen.sampling.why}.`) : null;
  if (!last) return [so_far, sampled, next, h("p", { class: "soft small" }, "The first window is still open.")];
  const goal = last.goal && last.goal !== "neutral" ? `Value by the goal ${last.goal}` : "Value of its choices";
  const rows = [
    [`${goal} (higher is better)`, score(last.value), score(last.active_value)],
    ...(last.goal && last.goal !== "neutral" && Number.isFinite(last.neutral_value) ? [["Value by the neutral goal", score(last.neutral_value), score(last.active_neutral_value)]] : []),
    ["p99 of a decision", millis(last.p99_ms), millis(last.active_p99_ms)],
    ["Fallbacks to the heuristic", count(last.fallbacks), count(last.active_fallbacks)],
    ["Placements the binder refused", count(last.rejected), count(last.active_rejected)],
    ["Chose the same node", `${percent(last.samples ? last.agreed / last.samples : NaN)} (${count(last.agreed)} of ${count(last.samples)})`, ""],
  ];
  return [
    so_far, sampled, next,
    plainTable("The last closed window", [`Of ${plural(last.samples, "decision")} that both were asked about`, { title: `candidate ${titleOf(pointer.candidate)}`, number: true }, { title: `active ${titleOf(pointer.active)}`, number: true }], rows, { captionShown: true }),
    last.verdict ? h("p", { class: "small" }, h("span", { class: `tag ${VERDICTS[last.verdict] ?? ""}` }, last.verdict), last.why ? ` ${last.why}` : "") : null,
  ];
}

function rule(one) {
  const when = one.in_s > 0 ? `, at the earliest in ${seconds(one.in_s)}` : one.so_far >= one.needed ? ", which holds now" : "";
  const how = one.kind === "promote" && !one.automatic ? `An operator promotes it to ${one.then}. Its windows speak for that with ` : `By itself ${one.kind === "promote" ? `to ${one.then}` : one.then} with `;
  return h("li", {}, h("span", { class: `tag ${one.kind === "withdraw" ? "is-warn" : "is-good"}` }, `${count(one.so_far)} of ${count(one.needed)}`), " ", how, one.rule, when, ".");
}

/** {element, show(windows, newest first)}: a chart per goal, and what the windows said. */
export function valuesOverTime() {
  const note = h("p", { class: "soft small" });
  const goals = h("select", { id: "policy-goal", onchange: () => { keep({ goal: goals.value }); draw(); } });
  const canvas = h("canvas", { role: "img", class: "plot tall" });
  const pointed = h("p", { class: "plotted small", "aria-live": "polite" });
  const of = (side) => (sample) => sample.values[side];
  const chart = new Chart(canvas, {
    series: [
      { name: (sample) => sample.window.active || "active", colour: "--chart-1", of: of("active"), fill: true },
      { name: (sample) => `candidate ${sample.window.candidate}`, colour: "--chart-3", of: of("candidate") },
    ], words: score, floor: 0.001, say: (text) => setText(pointed, text),
  });
  const field = h("p", { class: "tools" }, h("label", { for: "policy-goal" }, "Goal"), goals, h("span", { class: "keys small" }, h("span", {}, h("i", { class: "key k1", "aria-hidden": "true" }), "active"), h("span", {}, h("i", { class: "key k3", "aria-hidden": "true" }), "candidate")));
  let windows = [];
  function draw() {
    const names = [...new Set(windows.flatMap((one) => one.values.map((value) => value.goal)))];
    const chosen = names.includes(state("goal")) ? state("goal") : (names[0] ?? "");
    fill(goals, names.map((name) => h("option", { value: name }, name)));
    goals.value = chosen;
    field.hidden = canvas.hidden = pointed.hidden = !windows.length;
    if (!windows.length) return setText(note, "No window has closed yet: one closes when enough decisions were judged.");
    const samples = windows.toReversed().map((window) => ({ at: Date.parse(window.time), step: Infinity, window, values: valueOf(window, chosen) }));
    const span = Math.max(300_000, (Date.now() - samples[0].at) * 1.02);
    const known = samples.map((one) => one.values.active).filter(Number.isFinite);
    setText(note, `${plural(windows.length, "window")} since ${clock(windows.at(-1).time)}. 1 is the best that could be chosen each time by this goal, 0 the worst; a window that told no nodes apart has no value.`);
    canvas.setAttribute("aria-label", `Value of the policies’ choices by the goal ${chosen}: the active one between ${score(Math.min(...known))} and ${score(Math.max(...known))}`);
    return chart.draw(samples, span);
  }
  return {
    element: h("div", {}, field, canvas, pointed, note),
    show(found) {
      windows = found;
      draw();
    },
    moved: draw,
  };
}

function valueOf(window, goal) {
  const found = window.values.find((one) => one.goal === goal);
  return { active: found?.active ?? null, candidate: found?.candidate ?? null };
}
