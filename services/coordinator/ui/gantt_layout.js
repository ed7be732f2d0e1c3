// Where a bar of the Gantt stands: a row per job, as high as it has GPUs, or a row per node that is in use, with lanes for
// its GPUs. Pure: what the server says in, places out, so that drawing has nothing to decide.

/** Lanes of a node that has more GPUs than are drawn one by one. */
export const MOST_LANES = 16;

/**
 * `board`: the answer of /v1/jobs; `from` and `to`: seconds since 1970 at the edges. A row for each job that had GPUs, those that have
 * most now first: [{name, job, now, most, bars: [{gpus, began, ended, left, width, height, expected}]}]. `left` and `width` are shares of
 * the row, `height` the share of the most GPUs that the job had. What is expected stands behind the last bar, to the predicted end.
 */
export function jobRows(board, from, to) {
  const jobs = jobsOf(board);
  const spans = new Map();
  for (const span of shownSpans(board, from, to)) spans.set(span.job, [...(spans.get(span.job) ?? []), span]);
  const rows = [...spans].map(([name, list]) => jobRow(name, list, board, jobs.get(name) ?? null, from, to));
  return rows.sort((a, b) => b.now - a.now || b.used - a.used || a.name.localeCompare(b.name, undefined, { numeric: true }));
}

function jobRow(name, spans, board, job, from, to) {
  const steps = stepsOf(spans, board.now);
  const most = Math.max(...steps.map((step) => step.gpus));
  const now = spans.filter((span) => !span.ended).reduce((sum, span) => sum + span.gpus, 0);
  const bars = steps.filter((step) => step.gpus > 0 && step.ended > from).map((step) => ({ ...step, ...placed(step.began, step.ended, from, to), height: step.gpus / most, expected: false }));
  if (now > 0 && job?.ends > board.now) bars.push({ gpus: now, began: board.now, ended: job.ends, ...placed(board.now, job.ends, from, to), height: now / most, expected: true });
  return { name, job, now, most, used: steps.reduce((sum, step) => sum + step.gpus * (step.ended - Math.max(step.began, from)), 0), bars };
}

/** How many GPUs from when to when: [{gpus, began, ended}]. */
function stepsOf(spans, now) {
  const changes = new Map();
  const change = (at, gpus) => changes.set(at, (changes.get(at) ?? 0) + gpus);
  for (const span of spans) {
    change(span.began, span.gpus);
    change(span.ended || now, -span.gpus);
  }
  const times = [...changes.keys()].sort((a, b) => a - b);
  let gpus = 0;
  return times.slice(0, -1).map((at, number) => ({ gpus: (gpus += changes.get(at)), began: at, ended: times[number + 1] }));
}

/**
 * A row for each node that a job used, those used most first: [{node, lanes, gpus, bars: [{span, job, lane, lanes, left, width,
 * expected}]}]; each worker takes lanes of its own.
 */
export function nodeRows(board, from, to) {
  const jobs = jobsOf(board);
  const byNode = new Map();
  for (const span of shownSpans(board, from, to)) byNode.set(span.node, [...(byNode.get(span.node) ?? []), span]);
  const rows = [...byNode].map(([node, spans]) => nodeRow(node, spans, board, jobs, from, to));
  return rows.sort((a, b) => b.gpus - a.gpus || b.used - a.used || a.node.localeCompare(b.node, undefined, { numeric: true }));
}

function nodeRow(node, spans, board, jobs, from, to) {
  const ends = [];
  const bars = [];
  for (const span of spans.sort((one, two) => one.began - two.began || one.pod.localeCompare(two.pod))) {
    const wanted = Math.max(1, Math.ceil(span.gpus));
    const lane = freeLane(ends, wanted, span.began);
    for (let number = lane; number < lane + wanted; number++) ends[number] = span.ended || Infinity;
    const job = jobs.get(span.job) ?? null;
    const bar = (began, ended, expected) => ({ span, job, lane, lanes: wanted, ...placed(began, ended, from, to), expected });
    bars.push(bar(span.began, span.ended || board.now, false));
    if (!span.ended && job?.ends > board.now) bars.push(bar(board.now, job.ends, true));
  }
  const gpus = spans.filter((span) => !span.ended).reduce((sum, span) => sum + span.gpus, 0);
  return { node, lanes: Math.min(MOST_LANES, Math.max(board.nodes[node] ?? 0, ends.length, 1)), gpus, used: gpuSeconds(spans, board, from), bars };
}

/** The jobs with a colour of their own, those that used most first: Map(job, 1 to `colours`). */
export function colouredJobs(board, from, to, colours) {
  const used = new Map();
  for (const span of shownSpans(board, from, to)) used.set(span.job, (used.get(span.job) ?? 0) + gpuSeconds([span], board, from));
  const order = [...used].sort(([a, more], [b, less]) => less - more || a.localeCompare(b));
  return new Map(order.slice(0, colours).map(([job], number) => [job, number + 1]));
}

function jobsOf(board) {
  return new Map(board.jobs.map((job) => [`${job.namespace}/${job.name}`, job]));
}

function shownSpans(board, from, to) {
  return board.spans.filter((span) => (span.ended || to) >= from && span.began <= to && span.gpus > 0);
}

function gpuSeconds(spans, board, from) {
  return spans.reduce((sum, span) => sum + span.gpus * Math.max(0, (span.ended || board.now) - Math.max(span.began, from)), 0);
}

/** The first lanes beside each other that are free at this time; shares of a GPU may overlap on the lanes after. */
function freeLane(ends, wanted, at) {
  for (let lane = 0; ; lane++) {
    let free = 0;
    while (free < wanted && (ends[lane + free] ?? 0) <= at) free++;
    if (free === wanted) return lane;
  }
}

function placed(began, ended, from, to) {
  const left = clamp((began - from) / (to - from));
  return { left, width: clamp((ended - from) / (to - from)) - left };
}

function clamp(share) {
  return Math.min(1, Math.max(0, share));
}
