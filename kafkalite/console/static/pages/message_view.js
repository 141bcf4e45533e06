/**
 * Messages of a topic: a search with its progress that can be stopped, or a live tail.
 *
 * The page keeps at most KEPT_ROWS rows, however much a search finds and however long a tail runs, and all that are
 * open; the server cuts values, and a whole value is loaded only when the user opens it. A tail pauses on demand and
 * when a row is opened; if it is interrupted it says so and resumes at the next record.
 */

import { events, isAbort } from "../parts/api.js";
import { h, replace } from "../parts/element.js";
import { bytes, clock, count, duration, plural } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { empty, notice, remark } from "../parts/notice.js";
import { progress } from "../parts/progress.js";
import { toast } from "../parts/toast.js";
import { exportRecords } from "./export.js";
import { MessageQuery } from "./message_query.js";
import { messageRow } from "./message_row.js";

const KEPT_ROWS = 1000;

const RESUME_MS = 2000;

const REASONS = {
  end: "all were searched",
  limit: "there may be more",
  max_records: "stopped at the limit of records: raise it under More, or continue",
  max_bytes: "stopped at the limit of bytes: continue",
  max_ms: "stopped at the limit of time: continue",
};

/** The clause about records that retention deleted before they were read. */
const deleted = (data) => (data.deleted ? `; ${plural(data.deleted, "offset")} deleted meanwhile` : "");

/** The records on which the expression could not be evaluated. */
const failing = (data) =>
  `The filter expression fails for ${plural(data.filter_faults, "record")}, which are left out: ${data.filter_fault}`;

export class MessageView {
  /** @param {import("../parts/router.js").View} view @param {any} topic */
  constructor(view, topic) {
    this.view = view;
    this.topic = topic;
    this.asked = null;
    this.waiting = [];
    this.frame = 0;
    this.query = new MessageQuery(view, topic, () => this.search());
    this.progress = progress(() => this.stop());
    this.positions = {};
    this.isPaused = false;
    this.pauser = h("button", { type: "button", hidden: true, on: { click: () => this.pause(!this.isPaused) } });
    this.body = h("tbody");
    this.paths = [];
    this.opens = view.query.get("open") === "true";
    this.message = h("div");
    this.more = h("div", { class: "go-on" });
    this.table = this.makeTable();
    this.element = h(
      "div",
      { class: "stack" },
      this.query.element,
      h("div", { class: "result-bar" }, this.progress.element, this.actions()),
      this.message, // above the rows: with a thousand of them nothing below is seen
      this.table,
      this.more,
    );
    const escape = (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) this.stop();
    };
    document.addEventListener("keydown", escape, { signal: view.signal });
    view.signal.addEventListener("abort", () => this.stop());
  }

  makeTable() {
    const titles = [
      ["Partition", "number"],
      ["Offset", "number"],
      ["Time", "wide-only"],
      ["Key", ""],
      ["Value", ""],
      ["Size", "number wide-only"],
    ];
    const th = ([title, shape]) => h("th", { scope: "col", class: shape }, title);
    this.heading = () => [...titles.slice(0, 4), ...this.paths.map(({ text }) => [text, "wide-only"]), ...titles.slice(4)].map(th);
    this.head = h("thead");
    const table = h("table", { class: "messages", "aria-label": `Messages of ${this.topic.name}` }, this.head, this.body);
    this.body.addEventListener("keydown", (event) => this.key(event));
    return h("div", { class: "table-box", hidden: true }, h("div", { class: "table-scroller" }, table));
  }

  actions() {
    const press = () => {
      try {
        exportRecords(this.path, this.query.parameters(), this.view.session);
      } catch (error) {
        toast(error.message, "error");
      }
    };
    const button = h("button", { type: "button", class: "quiet", on: { click: press } }, icon("download"), "Export");
    return h("div", { class: "actions" }, this.pauser, button);
  }

  get path() {
    return `/api/topics/${encodeURIComponent(this.topic.name)}`;
  }

  stop() {
    this.asked?.abort();
  }

  /** Start a search, or continue one after its last record. @param {Record<string, number>} [next] */
  async search(next = undefined) {
    this.stop();
    const asked = new AbortController();
    this.asked = asked;
    if (!next) replace(this.body);
    replace(this.message);
    replace(this.more);
    this.progress.start();
    try {
      if (!next) {
        this.query.keep();
        this.paths = this.query.paths;
        replace(this.head, h("tr", null, this.heading()));
      }
      const parameters = next
        ? { ...this.query.parameters(), ...continued(this.query.parameters(), next) }
        : this.query.parameters();
      this.pause(false);
      this.pauser.hidden = !this.query.isTail;
      await (this.query.isTail ? this.tail(parameters, asked.signal) : this.read(parameters, asked.signal));
    } catch (error) {
      if (this.asked !== asked) return;
      this.pause(false);
      this.pauser.hidden = true;
      this.progress.end(isAbort(error) ? "Stopped." : "");
      const again = () => this.search();
      if (!isAbort(error)) replace(this.message, notice(error, again));
    }
  }

  /** Read until it is stopped; after an interruption from the next record on, so that none is left out. */
  async tail(parameters, signal) {
    this.positions = {};
    for (;;) {
      let fault = new Error("The console has ended the stream.");
      try {
        await this.read({ ...parameters, offsets: offsetsOf(this.positions) }, signal);
      } catch (error) {
        if (signal.aborted || isAbort(error) || !isPassing(error)) throw error;
        fault = error;
      }
      if (signal.aborted) return;
      this.flush();
      this.progress.show(null, `Interrupted at ${clock(Date.now())}: ${fault.message} Resuming.`);
      await pause(RESUME_MS, signal);
    }
  }

  /** Hold back new rows, or show those held back. @param {boolean} isPaused */
  pause(isPaused) {
    this.isPaused = isPaused;
    if (!isPaused) this.flush();
    this.drawPause();
  }

  drawPause() {
    const text = this.isPaused ? `Resume (${count(this.waiting.length)} new)` : "Pause";
    replace(this.pauser, icon(this.isPaused ? "play" : "pause"), text);
  }

  async read(parameters, signal) {
    for await (const { event, data } of events(`${this.path}/messages`, parameters, signal)) {
      if (event === "record") this.add(data);
      else if (event === "progress") this.report(data);
      else if (event === "done") this.finish(data);
      else if (event === "error") throw Object.assign(new Error(data.message), { code: data.error });
    }
  }

  report(data) {
    const found = `${count(data.matched)} found`;
    const seen = `${plural(data.scanned, "record")} and ${bytes(data.scanned_bytes)} searched${deleted(data)}`;
    const ratio = this.query.isTail || !data.total ? null : data.scanned / data.total;
    this.progress.show(ratio, this.query.isTail ? `Live: ${seen}, ${found}` : `${seen}, ${found}`);
    if (data.next) this.positions = { ...this.positions, ...data.next };
  }

  finish(data) {
    this.flush();
    const seen = `${plural(data.matched, "message")} of ${plural(data.scanned, "record")} in ${duration(data.elapsed_ms)}`;
    const isNothing = data.scanned === 0 && data.reason === "end";
    this.progress.end(isNothing ? "No messages." : `${seen}${deleted(data)}; ${REASONS[data.reason] ?? data.reason}.`);
    if (data.filter_faults) replace(this.message, remark(failing(data), "warning"));
    if (this.body.rows.length === 0) this.message.append(this.nothing(data));
    const isResumable = data.next && Object.keys(data.next).length > 0 && data.reason !== "end";
    if (isResumable) {
      replace(
        this.more,
        h("button", { type: "button", on: { click: () => this.search(data.next) } }, icon("down"), "Continue"),
      );
    }
  }

  nothing({ scanned, total, reason }) {
    if (scanned === 0)
      return empty("No messages here", "The topic is empty, or empty from this point on. Try “From the beginning”.");
    if (reason !== "end")
      return empty("No match yet", `${plural(scanned, "record")} of about ${count(total)} searched. Continue to search on.`);
    return empty("Nothing matches", `None of ${plural(scanned, "record")} matches the filters.`);
  }

  /** Rows wait for the next frame: a search may find thousands in one. */
  add(record) {
    this.positions[record.partition] = record.offset + 1;
    this.waiting.push(record);
    if (this.waiting.length > KEPT_ROWS) this.waiting.shift();
    this.frame ||= requestAnimationFrame(() => this.flush());
  }

  flush() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    if (this.isPaused) return this.drawPause();
    const opened = () => this.query.isTail && !this.pauser.hidden && this.pause(true);
    const shown = { ...this.view, paths: this.paths, formats: () => this.query.formats(), changed: () => this.search() };
    const rows = this.waiting.map((record) => messageRow(record, this.topic, shown, opened));
    this.waiting = [];
    if (rows.length === 0) return;
    this.table.hidden = false;
    if (this.query.isTail) this.body.prepend(...rows.reverse());
    else this.body.append(...rows);
    this.trim();
    if (this.opens) rows[0].click();
    this.opens = false;
    if (!this.body.querySelector("tr[tabindex='0']")) this.body.rows[0].tabIndex = 0;
  }

  /** The rows that are not open, up to KEPT_ROWS of them: of a tail the newest. */
  trim() {
    const rows = [...this.body.rows].filter(({ classList }) => classList.contains("message") && !classList.contains("is-open"));
    const extra = rows.length - KEPT_ROWS;
    if (extra > 0) for (const row of this.query.isTail ? rows.slice(-extra) : rows.slice(0, extra)) row.remove();
  }

  key(event) {
    const row = event.target;
    if (!(row instanceof HTMLTableRowElement)) return;
    const rows = [...this.body.querySelectorAll("tr.message")];
    const index = rows.indexOf(row);
    const moves = {
      ArrowDown: index + 1,
      j: index + 1,
      ArrowUp: index - 1,
      k: index - 1,
      Home: 0,
      End: rows.length - 1,
    };
    if (!(event.key in moves) || !rows[moves[event.key]]) return;
    event.preventDefault();
    row.tabIndex = -1;
    rows[moves[event.key]].tabIndex = 0;
    rows[moves[event.key]].focus();
  }
}

/** The parameters that continue a search: backwards if it runs from the end, else forwards. */
function continued(parameters, next) {
  return { from: parameters.from === "end" ? "end" : "offset", offsets: offsetsOf(next), offset: "", time_ms: "" };
}

/** @param {Record<string, number>} positions by partition */
const offsetsOf = (positions) =>
  Object.entries(positions)
    .map(([partition, offset]) => `${partition}:${offset}`)
    .join(",");

/** Whether an error of a stream may be gone in a moment: a broker or the console is away. */
const isPassing = (error) => error.code === "UNREACHABLE" || error.status >= 500 || error instanceof TypeError;

/** @param {number} ms @param {AbortSignal} signal ends it with an AbortError */
function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => reject(signal.reason, clearTimeout(timer)), { once: true });
  });
}
