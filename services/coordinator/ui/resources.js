// The resources of a node or a cluster in order: CPU and memory first, then what else there is (GPUs, other devices).

const FIRST = ["cpu_millis", "memory_bytes"];
const PLAIN = new Set([...FIRST, "pods", "ephemeral-storage"]);

/** What people call it: cpu, memory, nvidia.com/gpu. */
export function resourceWord(name) {
  return { cpu_millis: "CPU", memory_bytes: "memory" }[name] ?? name;
}

/** Names in order, without duplicates. */
export function inResourceOrder(names) {
  return [...new Set(names)].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

function rank(name) {
  const at = FIRST.indexOf(name);
  return at < 0 ? FIRST.length + (name === "pods" ? 2 : /gpu/i.test(name) ? 0 : 1) : at;
}

/** Whether it is more than every node has: a GPU or another extended resource. */
export function isExtended(name) {
  return !PLAIN.has(name) && !name.startsWith("hugepages-");
}

/** The node with the devices that claims are given among its resources, by driver. */
export function withDevices(node) {
  const allocatable = { ...node.allocatable };
  const requested = { ...node.requested };
  for (const { driver, devices, allocated } of node.devices ?? []) {
    allocatable[driver] = (allocatable[driver] ?? 0) + devices;
    requested[driver] = (requested[driver] ?? 0) + allocated;
  }
  return { ...node, allocatable, requested };
}

/** requested / allocatable; null where nothing is offered. */
export function share(node, name) {
  const offered = node.allocatable?.[name] ?? 0;
  return offered ? (node.requested?.[name] ?? 0) / offered : null;
}

/** Of [{name, share}] the fullest; null where nothing is offered of any. */
export function fullest(list) {
  return list.filter((one) => Number.isFinite(one.share)).reduce((best, one) => (best && best.share >= one.share ? best : one), null);
}

/** Of shares by name the fullest resource that only some nodes have: GPUs and other devices; null: there is none. */
export function fullestDevice(shares) {
  return fullest(Object.entries(shares ?? {}).filter(([name]) => isExtended(name)).map(([name, share]) => ({ name, share })));
}

/** A GPU cluster: so many of its nodes have a device. */
const GPU_CLUSTER = 0.05;

/** What a map of nodes opens on: of a GPU cluster the device that is used most, else whatever is fullest on each node. `shares`: by
 * resource a share for each node, null where it has none. */
export function opensOn(shares, nodes) {
  const devices = Object.entries(shares ?? {}).map(([name, list]) => [name, list.filter(Number.isFinite)]).filter(([, list]) => list.length && list.length >= nodes * GPU_CLUSTER);
  const gpus = devices.filter(([name]) => /gpu/i.test(name));
  return fullest((gpus.length ? gpus : devices).map(([name, list]) => ({ name, share: mean(list) })))?.name ?? FULLEST;
}

/** Of each node the resource that is fullest there. */
export const FULLEST = "fullest";

/** Of numbers; NaN for none. */
export function mean(list) {
  return list.length ? list.reduce((sum, value) => sum + value, 0) / list.length : NaN;
}
