// Puts the page together: sign in, follow the mesh, show the view that the address names. Decides nothing else.

import { enter, route, viewAddress } from "./address.js";
import { ahead, ApiError, onUnauthenticated, setToken, token, told } from "./api.js";
import { scaledInto } from "./autoscaler_panel.js";
import { askPause, Banners } from "./banners.js";
import { closeDrawer, openDrawer, say } from "./dialogs.js";
import { fill, h, setText } from "./dom.js";
import { explainInto } from "./explain.js";
import { seconds, since } from "./format.js";
import { verdictOf } from "./health.js";
import { Live } from "./live.js";
import { nodeInto } from "./node_panel.js";
import { identify, may, who } from "./session.js";
import { signIn } from "./sign_in.js";
import { startTheme } from "./theme.js";
import { queueInto, unitInto } from "./unit_panel.js";
import { autoscalingView } from "./views/autoscaling.js";
import { decisionsView } from "./views/decisions.js";
import { healthView } from "./views/health.js";
import { jobsView } from "./views/jobs.js";
import { meshView } from "./views/mesh.js";
import { nodesView } from "./views/nodes.js";
import { overviewView } from "./views/overview.js";
import { pendingView } from "./views/pending.js";
import { policiesView } from "./views/policies.js";
import { queueView } from "./views/queue.js";
import { queuesView } from "./views/queues.js";
import { rebalanceView } from "./views/rebalance.js";

const VIEWS = {
  "": overviewView, nodes: nodesView, pending: pendingView, queue: queueView, queues: queuesView, jobs: jobsView, rebalance: rebalanceView, decisions: decisionsView, policies: policiesView, autoscaling: autoscalingView, mesh: meshView, health: healthView,
};
const RETRY_MS = 1000;

const at = (id) => document.getElementById(id);
const live = new Live();
const made = new Map();
let view = null;
let viewName = null;
const pause = h("button", { type: "button", class: "quiet", id: "pause" }, "Pause …");

function show() {
  const { parts: [first, second, third], query } = route();
  if (first === "pods" && third) {
    if (!view) open("");
    const place = drawer(`${second}/${third}`);
    explainInto(place, second, third);
    return;
  }
  if (first === "nodes" && second) {
    if (!view) open("nodes");
    nodeInto(drawer(second), second, () => view.changed?.());
    return;
  }
  if (first === "units" && third) {
    if (!view) open("queues");
    unitInto(drawer(`${second}/${third}`), second, third);
    return;
  }
  if (first === "autoscalers" && third) {
    if (!view) open("autoscaling");
    scaledInto(drawer(`${second}/${third}`), second, third);
    return;
  }
  if (first === "queues" && second) {
    if (!view) open("queues");
    queueInto(drawer(second), second);
    return;
  }
  closeDrawer();
  open(first in VIEWS ? first : "", query);
}

/** The drawer of this address; closed by the reader, the view's own address stands again. */
function drawer(title) {
  const address = location.hash;
  // the browser tells that a dialog was closed a turn later: what the reader has gone to meanwhile stays
  return openDrawer(title, () => { if (location.hash === address) history.pushState(null, "", viewAddress()); });
}

function open(name, query = new URLSearchParams()) {
  const moves = enter(name, query);
  if (viewName === name && view) {
    if (moves) view.moved?.();
    return;
  }
  view?.stop();
  const moved = view !== null;
  viewName = name;
  if (!made.has(name)) made.set(name, VIEWS[name]({ live, go: (hash) => { location.hash = hash; } }));
  view = made.get(name);
  view.moved?.();
  fill(at("main"), view.element);
  view.start();
  title();
  for (const link of at("views").children) {
    if (link.getAttribute("href") === `#/${name}`) {
      link.setAttribute("aria-current", "page");
      link.parentElement.scrollTo({ left: link.offsetLeft - link.parentElement.clientWidth / 2 });
    }
    else link.removeAttribute("aria-current");
  }
  if (moved) {
    at("main").focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

function title() {
  const cluster = live.overview?.cluster?.name ?? "";
  const words = [view?.title, cluster, "Conclave"].filter(Boolean).join(" · ");
  if (document.title !== words) document.title = words;
  at("cluster").hidden = !cluster;
  setText(at("cluster"), cluster);
}

function leading() {
  title();
  const leader = live.connection === "no_leader" ? null : live.overview?.leader;
  fill(at("leading"), leader?.id ? [h("b", {}, leader.id), ` leads, term ${leader.term}, for ${since(leader.since)}`] : "No coordinator leads");
  const paused = Boolean(live.overview?.scheduling?.paused);
  pause.hidden = !may("operator") || paused;
}

/** The one verdict, each second too: figures grow old by themselves. */
function health() {
  const { level, words } = verdictOf(live);
  at("link-state").dataset.level = level;
  setText(at("link-words"), words);
}

function connection() {
  health();
  leading();
  view?.connection?.();
}

function follow() {
  const banners = new Banners(at("banners"), live);
  let ticks = 0;
  live.addEventListener("connection", connection);
  live.addEventListener("overview", () => {
    if (ticks++ % 60 === 0) banners.learnOthers();
    if (document.hidden) return;
    health();
    leading();
    view?.overview?.();
  });
  setInterval(health, 1000);
  live.addEventListener("failover", ({ detail }) => {
    const gap = detail.without_s ? ` after ${seconds(detail.without_s)} without a leader` : "";
    setText(at("announcer"), `${detail.to} leads now, term ${detail.term}${gap}.`);
    say(`${detail.to} leads now, term ${detail.term}${gap}`);
    view?.failover?.();
  });
  live.watchVisibility();
  live.start();
  live.load().catch(() => {});
}

/** Resolves once the server knows us; who we are it tells without a leader, so that nothing but silence is waited out. */
async function signedIn() {
  for (;;) {
    try {
      return await identify();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return signIn(at("main"));
      fill(at("main"), h("p", { class: "opening", role: "status" }, `${told(error)}. Trying again …`));
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

async function main() {
  startTheme(at("theme"));
  at("theme").before(pause);
  pause.hidden = true;
  pause.addEventListener("click", () => askPause(false));
  at("sign-out").addEventListener("click", () => { setToken(""); location.reload(); });
  onUnauthenticated(() => {
    if (viewName === null) return;
    setToken("");
    location.reload();
  });
  if (token() && route().parts[0] === "") ahead("/v1/nodes/map");
  await signedIn();
  for (const id of ["views", "leading", "link-state", "sign-out"]) at(id).hidden = false;
  const { name, role } = who();
  setText(at("footer-words"), role ? `signed in as ${name || role}, ${role}` : "");
  addEventListener("hashchange", show);
  show();
  follow();
}

main();
