// The map of nodes with what belongs to it: what the colour stands for, how it is grouped, the legend, the node under the
// pointer. Its choices stand in the address.

import { keep, state } from "./address.js";
import { get } from "./api.js";
import { fill, h, setText } from "./dom.js";
import { count, plural } from "./format.js";
import { learn } from "./names.js";
import { NodeMap, NOT_READY, PRESSURE, shades, UNOWNED } from "./node_map.js";
import { Reading } from "./reading.js";
import { FULLEST, opensOn } from "./resources.js";
import { sheet } from "./table.js";
import { onTheme } from "./theme.js";

const HINT = "Point at a node, or walk the map with the arrow keys; Enter opens one.";
const METRICS = [[FULLEST, "The fullest"], ["cpu", "CPU"], ["memory", "Memory"]];
const OF = { [FULLEST]: "the fullest resource", cpu: "CPU", memory: "memory" };
const GROUPS = { zone: "zone", region: "region", pool: "pool" };

export function mapSheet(go) {
  const pointed = h("span", { class: "pointed", role: "status" }, HINT);
  const told = h("span", {});
  const of = h("span", {});
  const canvas = h("canvas", { tabindex: "0", role: "application", "aria-roledescription": "map of nodes", "aria-label": "Nodes: arrow keys walk, Enter opens one" });
  const holder = h("div", { class: "map-holder" }, canvas);
  const map = new NodeMap(canvas, { holder, say: (text) => setText(pointed, text || HINT), open: (name) => go(`#/nodes/${encodeURIComponent(name)}`) });
  const metric = h("select", { id: "map-metric", onchange: () => { keep({ colour: metric.value === standard ? "" : metric.value }); paint(); tell(reading.data); } });
  const groupBy = h("select", { id: "map-group", onchange: () => { keep({ group: groupBy.value }); reading.now(); } });
  let asked = "";
  let standard = FULLEST;
  const chosen = () => state("colour") || standard;
  const reading = new Reading(() => { asked = state("group"); return get(asked ? `/v1/nodes/map?groupBy=${encodeURIComponent(asked)}` : "/v1/nodes/map"); }, {
    everyMs: (data) => Math.max(3000, (data?.names.length ?? 0) * 2), show: draw,
  });
  const ramp = h("canvas", { "aria-hidden": "true", width: "132", height: "10" });
  const paintRamp = () => {
    const pen = ramp.getContext("2d");
    shades().forEach((shade, step, all) => {
      pen.fillStyle = shade;
      pen.fillRect(step < all.length - 1 ? step * 3.3 : 118.8, 0, 14, 10);
    });
  };
  onTheme(paintRamp);
  paintRamp();
  const legend = h("span", { class: "legend" }, h("span", {}, "╱ cordoned"), h("span", {}, "╳ drained"), h("span", {}, h("i", { class: "cell-key not-ready", "aria-hidden": "true" }), "not ready"), h("span", {}, h("i", { class: "cell-key pressure", "aria-hidden": "true" }), "pressure"), h("span", {}, h("i", { class: "cell-key alone", "aria-hidden": "true" }), "no agent"));
  const element = sheet("Nodes", { tools: [h("span", { class: "choice" }, h("label", { for: "map-metric" }, "Colour"), metric), h("span", { class: "choice" }, h("label", { for: "map-group" }, "Group"), groupBy), h("a", { class: "small", href: "#/nodes" }, "As a table")] },
    h("div", { class: "body" }, reading.note, holder,
      h("div", { class: "map-under" }, pointed, told, h("span", { class: "ramp" }, "0", ramp, "100 % requested ", of), legend)));

  function paint() {
    map.setMetric(chosen());
    setText(of, `of ${OF[chosen()] ?? chosen()}`);
  }
  function choices(found) {
    const more = Object.keys(found?.shares ?? {});
    standard = opensOn(found?.shares, found?.names.length);
    offer(metric, [...METRICS, ...more.map((name) => [name, name])], chosen());
    const keys = (found?.group_keys ?? []).map((key) => [key, GROUPS[key] ?? key.replace(/^label:/, "label ")]);
    offer(groupBy, [["", "none"], ...keys], state("group"));
    groupBy.disabled = found !== null && !keys.length;
  }
  function draw(found) {
    choices(found);
    paint();
    // an answer to what was asked before somebody chose again is not shown as the new grouping
    if (asked !== state("group")) return;
    learn(found.names);
    map.show(found);
    performance.mark("nodes-drawn");
    tell(found);
  }
  function tell(found) {
    if (!found) return;
    const total = found.names.length;
    const flagged = (bit) => found.flags.filter((flags) => flags & bit).length;
    const also = [[NOT_READY, "not ready"], [PRESSURE, "under pressure"], [UNOWNED, "without an agent"]].map(([bit, words]) => [flagged(bit), words]).filter(([number]) => number);
    setText(told, total ? [plural(total, "node"), ...also.map(([number, words]) => `${count(number)} ${words}`)].join(" · ") : "The cluster has no nodes.");
  }
  choices(null);
  return {
    element,
    reading,
    moved() {
      choices(reading.data);
      paint();
      if (reading.at && asked !== state("group")) reading.now();
    },
  };
}

function offer(select, options, chosen) {
  const all = options.some(([value]) => value === chosen) ? options : [...options, [chosen, chosen]];
  const sign = JSON.stringify(all);
  if (select.dataset.sign !== sign) {
    select.dataset.sign = sign;
    fill(select, all.map(([value, words]) => h("option", { value }, words)));
  }
  select.value = chosen;
}
