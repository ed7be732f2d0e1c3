// Where a bar of the Gantt stands: rows are nodes, as high as they have GPUs, and each worker takes lanes of its own. Pure:
// what the server says in, places out, so that drawing has nothing to decide.

/** Lanes of a node that has more GPUs than are drawn one by one. */
export const MOST_LANES = 16;

/**
 * `board`: the answer of /v1/jobs; `from` and `to`: seconds since 1970 at the edges. Returns rows
 * [{node, lanes, bars: [{span, job, lane, lanes, left, width, expected}]}]; `left` and `width` are shares of the row.
 * What of a job is expected stands behind its last bar, to its predicted end.
 */
export function ganttRows(board, from, to) {
  const jobs = new Map(board.jobs.map((job) => [`${job.namespace}/${job.name}`, job]));
  const byNode = new Map(Object.keys(board.nodes).map((node) => [node, []]));
  for (const span of board.spans) {
    if ((span.ended || to) < from || span.began > to || !(span.gpus > 0)) continue;
    if (!byNode.has(span.node)) byNode.set(span.node, []);
    byNode.get(span.node).push(span);
  }
  return [...byNode].sort(([a], [b]) => a.localeCompare(b, undefined, { numeric: true })).map(([node, spans]) => rowOf(node, spans, board, jobs, from, to));
}

function rowOf(node, spans, board, jobs, from, to) {
  const ends = [];
  const bars = [];
  for (const span of spans.sort((one, two) => one.began - two.began || one.pod.localeCompare(two.pod))) {
    const wanted = Math.max(1, Math.ceil(span.gpus));
    const lane = freeLane(ends, wanted, span.began);
    for (let number = lane; number < lane + wanted; number++) ends[number] = span.ended || Infinity;
    const job = jobs.get(span.job) ?? null;
    bars.push(bar(span, job, lane, wanted, span.began, span.ended || board.now, from, to, false));
    if (!span.ended && job?.ends > board.now) bars.push(bar(span, job, lane, wanted, board.now, job.ends, from, to, true));
  }
  return { node, lanes: Math.min(MOST_LANES, Math.max(board.nodes[node] ?? 0, ends.length, 1)), bars };
}

/** The first lanes beside each other that are free at this time; shares of a GPU may overlap on the lanes after. */
function freeLane(ends, wanted, at) {
  for (let lane = 0; ; lane++) {
    let free = 0;
    while (free < wanted && (ends[lane + free] ?? 0) <= at) free++;
    if (free === wanted) return lane;
  }
}

function bar(span, job, lane, lanes, began, ended, from, to, expected) {
  const left = clamp((began - from) / (to - from));
  return { span, job, lane, lanes, left, width: clamp((ended - from) / (to - from)) - left, expected };
}

function clamp(share) {
  return Math.min(1, Math.max(0, share));
}

/** The same number for the same job, 1 to `colours`. */
export function colourOf(name, colours) {
  let sum = 0;
  for (const char of name) sum = (sum * 31 + char.codePointAt(0)) >>> 0;
  return (sum % colours) + 1;
}
