// When a view reads what it shows, and how old that is. Why it exists: views that no stream feeds ask again every so
// often, only while somebody can see them, and less and less often while they are refused; meanwhile what was read last
// stays, with its age and the reason beside it. An answer that is the leader's last copy counts from when that was made. One
// refusal for being busy holds all of them back.

import { ageOf, heldForMs, told } from "./api.js";
import { h, setText } from "./dom.js";
import { seconds } from "./format.js";

const MOST_WAIT_MS = 60_000;
const readings = new Set();
setInterval(() => { for (const one of readings) one.tick(); }, 1000);

/**
 * One thing that is read again and again. `read()`: resolves to it; `show(data)`: puts it on the page; `everyMs`: a
 * number, or made of the data that was read. `note` says how old the data are, whenever that is worth saying.
 */
export class Reading {
  data = null;
  /** Milliseconds of the clock when the data came; 0: none yet. */
  at = 0;
  error = null;
  #read;
  #show;
  #everyMs;
  #failures = 0;
  #due = 0;
  #asking = null;
  #runs = false;
  #turn = 0;
  #words;
  #age;
  #again;

  constructor(read, { show = () => {}, everyMs }) {
    this.#read = read;
    this.#show = show;
    this.#everyMs = everyMs;
    this.#words = h("span", { role: "status" });
    this.#age = h("span", {});
    this.#again = h("button", { type: "button", class: "link", hidden: true, onclick: () => this.now() }, "Try now");
    this.note = h("p", { class: "as-of", hidden: true }, this.#age, this.#words, " ", this.#again);
  }

  start() {
    this.#runs = true;
    readings.add(this);
    if (this.data !== null) this.#show(this.data);
    this.#due = 0;
    this.tick();
  }

  stop() {
    this.#runs = false;
    readings.delete(this);
  }

  /** Asks at once, also while it would wait. Resolves when it was answered or refused. */
  async now() {
    while (this.#asking) await this.#asking;
    return this.#ask();
  }

  /** Something else is to be read from now on: what was read before does not answer it. */
  restart() {
    this.#turn += 1;
    this.data = null;
    this.at = 0;
    this.error = null;
    this.#failures = 0;
    this.#due = 0;
    if (this.#runs) return this.now();
    return undefined;
  }

  tick() {
    if (!document.hidden && !this.#asking && performance.now() >= this.#due) this.#ask();
    this.#tell();
  }

  #ask() {
    const reading = (this.#asking = this.#once().finally(() => { if (this.#asking === reading) this.#asking = null; }));
    return reading;
  }

  async #once() {
    const turn = this.#turn;
    let data;
    try {
      data = await this.#read();
    } catch (error) {
      if (turn === this.#turn) this.#refused(error);
      return;
    }
    if (turn !== this.#turn) return;
    this.data = data;
    this.at = Date.now() - 1000 * ageOf(data);
    this.error = null;
    this.#failures = 0;
    this.#due = performance.now() + this.#pause();
    this.#show(data);
    this.#tell();
  }

  #refused(error) {
    this.error = error;
    this.#failures += 1;
    const wait = Math.min(MOST_WAIT_MS, this.#pause() * 2 ** (this.#failures - 1)) * (0.85 + Math.random() * 0.3);
    this.#due = performance.now() + Math.max(heldForMs(), wait);
    this.#tell();
  }

  #pause() {
    return typeof this.#everyMs === "function" ? this.#everyMs(this.data) : this.#everyMs;
  }

  #tell() {
    const age_s = (Date.now() - this.at) / 1000;
    const old = this.at && (this.error !== null || age_s > (this.#pause() / 1000) * 2 + 3);
    this.note.hidden = Boolean(this.at) && !old;
    this.note.classList.toggle("is-old", Boolean(old));
    if (this.note.hidden) return;
    setText(this.#age, this.at ? `Shown as of ${seconds(age_s)} ago. ` : "");
    const next_s = Math.max(0, this.#due - performance.now()) / 1000;
    setText(this.#words, this.error === null ? (this.at ? "" : "Reading …") : `${sentence(told(this.error))} Asking again${next_s >= 1.5 ? " in a moment" : ""}.`);
    this.#again.hidden = this.error === null || next_s < 1.5;
  }
}

function sentence(text) {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}`;
}

/** Several readings of one view, and an error of any of them beside its own part. */
export function together(...all) {
  return {
    start: () => all.forEach((one) => one.start()),
    stop: () => all.forEach((one) => one.stop()),
    failover: () => all.forEach((one) => one.now()),
  };
}

/** The line under a list that says why it is empty: nothing read yet, refused, or nothing there. */
export function emptyWords(reading, words) {
  if (reading.at) return words;
  return reading.error ? "Not read yet." : "Reading …";
}

