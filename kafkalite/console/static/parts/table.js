/**
 * A table whose server searches, sorts and cuts into pages: the browser holds one page of rows, however many there are.
 *
 * Its state is in the address (q, sort, page). Arrow keys, j and k move through the rows, Enter opens one, left
 * and right turn the page.
 */

import { isAbort } from "./api.js";
import { h, replace } from "./element.js";
import { count } from "./format.js";
import { stale } from "./freshness.js";
import { icon } from "./icons.js";
import { notice } from "./notice.js";

const TYPING_PAUSE_MS = 200;
const SHOW_BUSY_AFTER_MS = 150;

/**
 * @typedef {{
 *   title: string, cell: (row: any) => any, sort?: string, descending?: boolean, number?: boolean,
 *   help?: string, wide?: boolean, class?: string,
 * }} Column  `sort` names it to the server; `wide` columns are left out on small screens
 */

export class Table {
  /**
   * @param {{
   *   view: import("./router.js").View, label: string, columns: Column[],
   *   load: (query: { q: string, sort: string, page: number }, signal: AbortSignal) => Promise<any>,
   *   href?: (row: any) => string, search?: string, controls?: any, empty?: (q: string) => Node, sort?: string,
   * }} options
   */
  constructor(options) {
    this.options = options;
    const { query } = options.view;
    this.q = query.get("q") ?? "";
    this.sort = query.get("sort") ?? options.sort ?? "";
    this.page = Math.max(1, Number(query.get("page")) || 1);
    this.pages = 1;
    this.asked = null;
    this.body = h("tbody");
    this.head = h("thead");
    this.message = h("div");
    this.footer = h("div", { class: "table-footer" });
    this.scroller = h("div", { class: "table-scroller" }, this.table());
    this.element = h("section", { class: "table-box" }, this.toolbar(), this.scroller, this.message, this.footer);
    this.body.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.open(event));
  }

  table() {
    return h("table", { "aria-label": this.options.label }, this.head, this.body);
  }

  toolbar() {
    const { search, controls } = this.options;
    if (!search && !controls) return null;
    let timer = 0;
    const typed = () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.show({ q: input.value, page: 1 }), TYPING_PAUSE_MS);
    };
    const input = h("input", { type: "search", placeholder: search, "aria-label": search, "data-search": true });
    input.value = this.q;
    input.addEventListener("input", typed);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") this.focusRow(0);
      if (event.key === "Escape") input.blur();
    });
    const box =
      search && h("div", { class: "search" }, icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/"));
    return h("div", { class: "toolbar" }, box, controls && h("div", { class: "controls" }, controls));
  }

  /** Show another part. @param {{ q?: string, sort?: string, page?: number }} change */
  show(change) {
    Object.assign(this, change);
    this.options.view.update({ q: this.q, sort: this.sort, page: this.page > 1 ? this.page : "" });
    return this.refresh().catch(stale);
  }

  /** Load the same part again; the row in focus keeps the focus. If it fails, old rows stay and the caller gets the
   * error; without rows, the table shows the error. */
  async refresh() {
    this.asked?.abort();
    const asked = new AbortController();
    this.asked = asked;
    const signal = AbortSignal.any([asked.signal, this.options.view.signal]);
    const busy = setTimeout(() => this.scroller.setAttribute("aria-busy", "true"), SHOW_BUSY_AFTER_MS);
    try {
      const answer = await this.options.load({ q: this.q, sort: this.sort, page: this.page }, signal);
      if (!signal.aborted) this.draw(answer);
    } catch (error) {
      if (isAbort(error)) return;
      if (this.body.rows.length) throw error;
      const again = () => this.refresh().catch(stale);
      replace(this.message, notice(error, again));
    } finally {
      clearTimeout(busy);
      if (!signal.aborted) this.scroller.removeAttribute("aria-busy");
    }
  }

  draw({ items, total, page_size: size }) {
    const focused = [...this.body.rows].indexOf(document.activeElement?.closest?.("tr"));
    const kept = focused >= 0 && document.activeElement?.tagName === "TR";
    this.pages = Math.max(1, Math.ceil(total / Math.max(1, size)));
    replace(this.head, this.heading());
    replace(
      this.body,
      items.map((row) => this.row(row)),
    );
    this.first();
    const nothing = items.length === 0;
    this.scroller.hidden = nothing && !this.q;
    replace(this.message, nothing && (this.options.empty?.(this.q) ?? h("p", { class: "empty" }, "Nothing here.")));
    this.paging(total, size);
    if (kept) this.focusRow(Math.min(focused, items.length - 1));
  }

  heading() {
    return h(
      "tr",
      null,
      this.options.columns.map((column) => {
        const shape = `${column.number ? "number" : ""} ${column.wide ? "wide-only" : ""} ${column.class ?? ""}`;
        if (!column.sort) return h("th", { scope: "col", class: shape, title: column.help }, heading(column));
        const name = this.sort.replace(/^-/, "");
        const sorted = name === column.sort && (this.sort.startsWith("-") ? "descending" : "ascending");
        const next = sorted
          ? sorted === "ascending"
            ? `-${name}`
            : name
          : (column.descending ? "-" : "") + column.sort;
        const press = () => this.show({ sort: next, page: 1 });
        const arrow = h("span", { class: `sort-arrow ${sorted || ""}`, "aria-hidden": "true" });
        const button = h("button", { type: "button", on: { click: press } }, heading(column), arrow);
        return h("th", { scope: "col", class: shape, title: column.help, "aria-sort": sorted || null }, button);
      }),
    );
  }

  row(item) {
    const cells = this.options.columns.map((column) =>
      h(
        "td",
        { class: `${column.number ? "number" : ""} ${column.wide ? "wide-only" : ""} ${column.class ?? ""}` },
        column.cell(item),
      ),
    );
    const href = this.options.href?.(item);
    return h("tr", { tabindex: -1, "data-href": href ?? null, class: href ? "opens" : "" }, cells);
  }

  paging(total, size) {
    const from = total === 0 ? 0 : (this.page - 1) * size + 1;
    const shown = h(
      "span",
      { "aria-live": "polite" },
      `${count(from)}–${count(Math.min(total, this.page * size))} of ${count(total)}`,
    );
    const turn = (name, text, page) =>
      h(
        "button",
        {
          type: "button",
          class: "plain",
          "aria-label": text,
          disabled: page < 1 || page > this.pages,
          on: { click: () => this.show({ page }) },
        },
        icon(name),
      );
    replace(
      this.footer,
      shown,
      this.pages > 1 &&
        h(
          "span",
          { class: "turn" },
          turn("left", "Previous page", this.page - 1),
          h("span", null, `${count(this.page)} / ${count(this.pages)}`),
          turn("right", "Next page", this.page + 1),
        ),
    );
    this.footer.hidden = total === 0;
  }

  /** One row at a time can be reached with Tab: the others follow with the arrow keys. */
  first() {
    this.body.rows[0]?.setAttribute("tabindex", "0");
  }

  focusRow(index) {
    const row = this.body.rows[index];
    if (!row) return;
    for (const other of this.body.querySelectorAll("tr[tabindex='0']")) other.setAttribute("tabindex", "-1");
    row.setAttribute("tabindex", "0");
    row.focus();
  }

  key(event) {
    const row = event.target.closest("tr");
    if (event.target !== row && event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    const index = [...this.body.rows].indexOf(row);
    const moves = {
      ArrowDown: index + 1,
      j: index + 1,
      ArrowUp: index - 1,
      k: index - 1,
      Home: 0,
      End: this.body.rows.length - 1,
    };
    if (event.key in moves) {
      event.preventDefault();
      this.focusRow(moves[event.key]);
    } else if (event.key === "ArrowRight" && this.page < this.pages) {
      this.turned(this.page + 1);
    } else if (event.key === "ArrowLeft" && this.page > 1) {
      this.turned(this.page - 1);
    } else if (event.key === "Enter") {
      const way = row.dataset.href ? row.querySelector("a[href]") : row.querySelector("button");
      way?.click();
    }
  }

  async turned(page) {
    await this.show({ page });
    this.focusRow(0);
  }

  /** A click anywhere in a row opens it, except on something that has a purpose of its own. */
  open(event) {
    const row = event.target.closest("tr[data-href]");
    if (!row || event.target.closest("a, button, input, label") || getSelection()?.toString()) return;
    row.querySelector("a[href]")?.click();
  }
}

/** A table without paging, for the few rows of one topic, group or broker. */
export function plainTable(label, columns, rows, nothing = "Nothing here.") {
  if (rows.length === 0) return h("p", { class: "empty" }, nothing);
  const shape = (column) => `${column.number ? "number" : ""} ${column.wide ? "wide-only" : ""} ${column.class ?? ""}`;
  const head = columns.map((column) =>
    h("th", { scope: "col", class: shape(column), title: column.help }, heading(column)),
  );
  const body = rows.map((row) =>
    h(
      "tr",
      null,
      columns.map((column) => h("td", { class: shape(column) }, column.cell(row))),
    ),
  );
  const table = h("table", { "aria-label": label }, h("thead", null, h("tr", null, head)), h("tbody", null, body));
  return h(
    "div",
    { class: "table-box" },
    h("div", { class: "table-scroller", tabindex: 0, role: "region", "aria-label": label }, table),
  );
}

/** The title of a column; a hidden one is only for screen readers. */
const heading = (column) => (column.hidden ? h("span", { class: "visually-hidden" }, column.title) : column.title);
