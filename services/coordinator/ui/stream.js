// Server-sent events over fetch. Why it exists: EventSource cannot send a token. Reconnects with back-off, notices a
// silent connection, and says what it meets; it refuses to decide what that means for the page (live.js does).

import { headers, refusal } from "./api.js";

/** The server sends an overview each second and a comment each 15; this much silence is a dead connection. */
export const SILENCE_MS = 17_000;
export const BACKOFF_MS = [300, 600, 1200, 2500, 5000];

/** Cuts a text stream into events; `push` gives those that are complete. */
export class EventParser {
  #rest = "";

  push(text) {
    this.#rest = (this.#rest + text).replace(/\r\n/g, "\n");
    const blocks = this.#rest.split("\n\n");
    this.#rest = blocks.pop();
    return blocks.map(parseBlock).filter((event) => event.data !== "");
  }
}

function parseBlock(block) {
  let name = "message";
  let id = "";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("id:")) id = line.slice(3).trim();
    else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
  }
  return { name, id, data: data.join("\n") };
}

/**
 * Follows a stream until `signal` aborts. `onEvents(list)`: whatever came at once; `onOpen()`; `onGone(error)`: it ended
 * or was refused, and is tried again after `onGone` returned (a number of milliseconds overrides the back-off), from after
 * the event that `lastId()` names.
 */
export async function follow(path, { onEvents, onOpen, onGone, lastId, signal }) {
  let failures = 0;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener("abort", stop, { once: true });
    let gone = null;
    try {
      await read(path, attempt, lastId(), (events) => {
        failures = 0;
        onEvents(events);
      }, onOpen);
    } catch (error) {
      gone = error;
    }
    signal.removeEventListener("abort", stop);
    if (signal.aborted) return;
    const wanted = onGone(gone);
    const pause = wanted ?? Math.max(gone?.retryAfterMs ?? 0, BACKOFF_MS[Math.min(failures, BACKOFF_MS.length - 1)] * (0.75 + Math.random() / 2));
    failures += 1;
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, pause);
      signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
    });
  }
}

async function read(path, attempt, lastId, onEvents, onOpen) {
  let timer = setTimeout(() => attempt.abort(), SILENCE_MS);
  try {
    const response = await fetch(path, {
      headers: headers({ Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) }), cache: "no-store", signal: attempt.signal,
    });
    if (!response.ok) throw await refusal(response);
    onOpen();
    const parser = new EventParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => attempt.abort(), SILENCE_MS);
      const events = parser.push(value);
      if (events.length) onEvents(events);
    }
  } finally {
    clearTimeout(timer);
  }
}
