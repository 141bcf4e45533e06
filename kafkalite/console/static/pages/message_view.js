/**
 * Messages of a topic: a search with its progress that can be stopped, or a live tail.
 *
 * The page keeps at most KEPT_ROWS rows, however much a search finds and however long a tail runs; the server cuts
 * values, and a whole value is loaded only when the user opens it.
 */

import { events, isAbort } from "../parts/api.js";
import { h, replace } from "../parts/element.js";
import { bytes, count, duration, plural } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { empty, notice } from "../parts/notice.js";
import { progress } from "../parts/progress.js";
import { toast } from "../parts/toast.js";
import { exportRecords } from "./export.js";
import { MessageQuery } from "./message_query.js";
import { messageRow } from "./message_row.js";

const KEPT_ROWS = 1000;

const REASONS = {
  end: "all were searched",
  limit: "there may be more",
  max_records: "stopped after as many records as allowed: raise it under More, or continue",
  max_bytes: "stopped after as many bytes as allowed: continue from here",
  max_ms: "stopped after as much time as allowed: continue from here",
};

/** The clause about records that retention deleted before they were read. */
const deleted = (data) => (data.deleted ? `; ${plural(data.deleted, "offset")} deleted meanwhile` : "");

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
    this.body = h("tbody");
    this.message = h("div");
    this.more = h("div", { class: "go-on" });
    this.table = this.makeTable();
    this.element = h(
      "div",
      { class: "stack" },
      this.query.element,
      h("div", { class: "result-bar" }, this.progress.element, this.actions()),
      this.table,
      this.message,
      this.more,
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.stop();
    });
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
    const head = h(
      "thead",
      null,
      h(
        "tr",
        null,
        titles.map(([title, shape]) => h("th", { scope: "col", class: shape }, title)),
      ),
    );
    const table = h("table", { class: "messages", "aria-label": `Messages of ${this.topic.name}` }, head, this.body);
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
    return h("div", { class: "actions" }, button);
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
      if (!next) this.query.keep();
      const parameters = next
        ? { ...this.query.parameters(), ...continued(this.query.parameters(), next) }
        : this.query.parameters();
      await this.read(parameters, asked.signal);
    } catch (error) {
      if (this.asked !== asked) return;
      this.progress.end(isAbort(error) ? "Stopped." : "");
      const again = () => this.search();
      if (!isAbort(error)) replace(this.message, notice(error, again));
    }
  }

  async read(parameters, signal) {
    let scanned = 0;
    for await (const { event, data } of events(`${this.path}/messages`, parameters, signal)) {
      if (event === "record") this.add(data);
      else if (event === "progress") scanned = this.report(data);
      else if (event === "done") this.finish(data);
      else if (event === "error") throw Object.assign(new Error(data.message), { code: data.error });
    }
    if (this.query.isTail) this.progress.end(`The tail has ended after ${plural(scanned, "record")}.`);
  }

  report(data) {
    const found = `${count(data.matched)} found`;
    const seen = `${plural(data.scanned, "record")} and ${bytes(data.scanned_bytes)} searched${deleted(data)}`;
    const ratio = this.query.isTail || !data.total ? null : data.scanned / data.total;
    this.progress.show(ratio, this.query.isTail ? `Live: ${seen}, ${found}` : `${seen}, ${found}`);
    return data.scanned;
  }

  finish(data) {
    this.flush();
    const seen = `${plural(data.matched, "message")} of ${plural(data.scanned, "record")} in ${duration(data.elapsed_ms)}`;
    this.progress.end(`${seen}${deleted(data)}; ${REASONS[data.reason] ?? data.reason}.`);
    if (this.body.rows.length === 0) replace(this.message, this.nothing(data));
    const isResumable = data.next && Object.keys(data.next).length > 0 && data.reason !== "end";
    if (isResumable) {
      replace(
        this.more,
        h("button", { type: "button", on: { click: () => this.search(data.next) } }, icon("down"), "Continue"),
      );
    }
  }

  nothing({ scanned }) {
    if (scanned === 0)
      return empty("No messages here", "The topic is empty, or empty from this point on. Try “From the beginning”.");
    return empty("Nothing matches", `None of ${plural(scanned, "record")} matches the filters.`);
  }

  /** Rows wait for the next frame: a search may find thousands in one. */
  add(record) {
    this.waiting.push(record);
    if (this.waiting.length > KEPT_ROWS) this.waiting.shift();
    this.frame ||= requestAnimationFrame(() => this.flush());
  }

  flush() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    const rows = this.waiting.map((record) => messageRow(record, this.topic, this.view));
    this.waiting = [];
    if (rows.length === 0) return;
    this.table.hidden = false;
    if (this.query.isTail) this.body.prepend(...rows.reverse());
    else this.body.append(...rows);
    while (this.body.rows.length > KEPT_ROWS) {
      (this.query.isTail ? this.body.lastElementChild : this.body.firstElementChild).remove();
    }
    if (!this.body.querySelector("tr[tabindex='0']")) this.body.rows[0].tabIndex = 0;
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
  const offsets = Object.entries(next)
    .map(([partition, offset]) => `${partition}:${offset}`)
    .join(",");
  return { from: parameters.from === "end" ? "end" : "offset", offsets, offset: "", time_ms: "" };
}
