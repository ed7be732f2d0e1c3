// One autoscaler's object in the drawer: who decides, the go, cost beside HPA's rule, replicas and load over time, services
// and the last decisions with their reasons. Also the small parts that its list shows.

import { answerInto } from "./answer.js";
import { segment } from "./api.js";
import { Chart } from "./chart.js";
import { h, setText } from "./dom.js";
import { clock, count, figure, plural, seconds, since } from "./format.js";
import { pairs, plainTable } from "./table.js";

const GO = { counts: ["is-good", "counts"], void: ["is-bad", "void: something has changed since"], none: ["is-warn", "nobody gave one"] };
const OLD_MS = 400_000;

/** Fills `place` with an object. */
export function scaledInto(place, namespace, name) {
  let draw;
  const whole = (one) => {
    const [element, drawn] = chartOf(one);
    draw = drawn;
    return parts(one, element);
  };
  return answerInto(place, `/v1/autoscalers/${segment(namespace)}/${segment(name)}`, whole, () => draw());
}

/** A link to the object; `focus`: what to call it for whom rows are renewed under. */
export function objectLink(one, focus = `${one.namespace}/${one.name}`) {
  return h("a", { href: `#/autoscalers/${segment(one.namespace)}/${segment(one.name)}`, "data-focus": focus }, `${one.namespace}/${one.name}`);
}

/** What the operator's word is worth now, as a tag. */
export function goTag(one) {
  const [level, words] = GO[one.go] ?? ["", "not needed: it only looks on"];
  return [h("span", { class: `tag ${level}` }, words), one.go_by ? h("div", { class: "soft small" }, `by ${one.go_by}`) : null];
}

/** How long ago it was decided; a record that should have been renewed stands out. */
export function ageWords(one) {
  if (!one.at) return "–";
  const old = Date.now() - Date.parse(one.at) > OLD_MS;
  return old ? h("span", { class: "tag is-warn" }, `${since(one.at)} ago`) : `${since(one.at)} ago`;
}

/** Requests per second where they are measured, else the cores that its pods use; "–" where nothing can be relied on. */
export function loadWords(one) {
  if (Number.isFinite(one.arrivals)) return `${figure(one.arrivals)}/s`;
  return Number.isFinite(one.cores) ? `${figure(one.cores)} cores` : "–";
}

/** The safeguards that changed its number, why nothing is written, and readings that cannot be relied on. */
export function safeguardTags(one) {
  const tags = one.safeguards.map((name) => h("span", { class: "tag is-warn" }, name));
  const lines = [one.held, ...one.bad].filter(Boolean).map((line) => h("div", { class: "soft small breakable" }, line));
  return tags.length || lines.length ? [...tags, ...lines] : "–";
}

function parts(one, chart) {
  const { cost } = one;
  const foreign = Object.entries(one.foreign);
  const saved = cost.hpa_replica_hours ? ` (${figure(cost.replica_hours / cost.hpa_replica_hours)} of it)` : "";
  return [
    troubles(one).map((line) => h("p", { class: "error" }, line)),
    pairs([
      ["Go", goTag(one)],
      ["Decided", ageWords(one)],
      ["Decided by", one.decided_by],
      ["Policy", one.policy],
      ["Mode", one.mode],
      ["Cost", cost.seconds ? `${figure(cost.replica_hours)} replica hours in ${seconds(cost.seconds)}; HPA’s rule would have asked for ${figure(cost.hpa_replica_hours)}${saved}` : "not known before a second decision"],
      ["Set by others", foreign.length ? foreign.map(([name, by]) => h("div", { class: "bad breakable" }, `${name} by ${by}`)) : null],
    ]),
    chart,
    h("h3", {}, "Services"),
    plainTable("Services", ["Service", "Load", { title: "Ready", number: true }, { title: "HPA", number: true }, { title: "Policy", number: true }, { title: "Allowed", number: true }, "Why, and what holds it back"],
      one.services.map((service) => [service.name, loadWords(service), `${count(service.ready)} of ${count(service.replicas)}`, count(service.hpa), count(service.wanted), count(service.allowed), [h("div", { class: "small breakable" }, service.why), service.safeguards.length || service.held || service.bad.length ? safeguardTags(service) : null]])),
    h("h3", {}, "Decisions, newest first"),
    one.decisions.length
      ? plainTable("Decisions, newest first", ["Time", "Service", { title: "Replicas", number: true }, "Why"], one.decisions.map((decision) => [
        clock(decision.at), decision.service, `${count(decision.before)} → ${count(decision.after)}`,
        [h("span", { class: "small breakable" }, decision.why), decision.written ? null : h("div", { class: "soft small" }, "not written")]]))
      : h("p", { class: "soft" }, "Nothing was to change."),
  ];
}

/** (element, draw): replicas and what HPA's rule would have had, and the load below. */
function chartOf(one) {
  const samples = held(one.history.map((moment) => ({ ...moment, at: Date.parse(moment.at), step: Infinity })), Date.now());
  if (!samples.length) return [null, () => {}];
  const span = Math.max(300_000, (Date.now() - samples[0].at) * 1.02);
  const byRequests = samples.some((sample) => Number.isFinite(sample.arrivals));
  const load = byRequests ? (sample) => sample.arrivals ?? NaN : (sample) => sample.cores ?? NaN;
  const replicas = plot("Replicas of all services", [
    { name: "replicas", colour: "--chart-1", of: (sample) => sample.replicas, fill: true }, { name: "HPA’s rule", colour: "--chart-3", of: (sample) => sample.hpa ?? NaN },
  ], [["k1", "asked for"], ["k3", "HPA’s rule"]], count);
  const loads = plot(byRequests ? "Requests per second" : "Cores in use", [{ name: "load", colour: "--chart-2", of: load, fill: true }], [], figure);
  const draw = () => { for (const [, chart] of [replicas, loads]) chart.draw(samples, span); };
  return [h("div", {}, replicas[0], loads[0], h("p", { class: "soft small" }, `${plural(one.history.length, "recorded decision")} since ${clock(one.history[0].at)}.`)), draw];
}

/** What was decided holds until the next decision, and the last one until now: each sample again, right before the next one. */
export function held(samples, now) {
  const last = samples.at(-1);
  const steps = samples.flatMap((sample, number) => (number ? [{ ...samples[number - 1], at: sample.at - 1 }, sample] : [sample]));
  return last && now > last.at ? [...steps, { ...last, at: now }] : steps;
}

/** What somebody is to look into, the gravest first: [text]. What is as it was asked for (a mode that only looks on) is none. */
export function troubles(one, now = Date.now()) {
  const bad = one.services.filter((service) => service.bad.length);
  const blocked = one.services.filter((service) => service.pending > 0);
  return [
    one.trouble,
    ...Object.entries(one.foreign).map(([name, by]) => `${name} is set by ${by}`),
    one.go === "void" ? "the go is void: something has changed since it was given" : "",
    one.go === "none" ? "nobody gave a go: nothing is written" : "",
    one.at && now - Date.parse(one.at) > OLD_MS ? `no decision for ${seconds((now - Date.parse(one.at)) / 1000)}: is the autoscaler running?` : "",
    !one.at ? "it has not been decided upon yet" : "",
    ...bad.map((service) => `${service.name}: ${service.bad[0]}`),
    ...blocked.map((service) => `${service.name}: ${plural(service.pending, "replica")} without a node`),
  ].filter(Boolean);
}

function plot(label, series, keys, words) {
  const canvas = h("canvas", { role: "img", class: "plot", "aria-label": label });
  const pointed = h("p", { class: "plotted small", "aria-live": "polite" });
  const chart = new Chart(canvas, { series, words, say: (text) => setText(pointed, text) });
  const legend = keys.length ? h("span", { class: "keys small" }, keys.map(([key, word]) => h("span", {}, h("i", { class: `key ${key}`, "aria-hidden": "true" }), word))) : null;
  return [h("figure", {}, h("figcaption", { class: "label" }, label, " ", legend), pointed, canvas), chart];
}
