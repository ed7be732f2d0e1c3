// How many pods wait, and where: the same sum and the same words on every page. Pure: the counts by place that the leader
// tells in, figures and words out.

/** In the order in which they are told; kube-scheduler's words. */
export const PLACES = ["active", "backoff", "unschedulable", "in_flight", "gated", "unsupported"];

/** A place in words. */
export function placeWords(place) {
  return place === "in_flight" ? "being placed" : String(place).replaceAll("_", " ");
}

/** All pods of ours that are on no node yet, whatever keeps them; NaN where nothing is known. */
export function waiting(counts) {
  return counts ? PLACES.reduce((sum, place) => sum + (counts[place] || 0), 0) : NaN;
}

/** The places that hold any: [place, number]. */
export function waitingBy(counts) {
  return PLACES.map((place) => [place, counts?.[place] || 0]).filter(([, number]) => number);
}
