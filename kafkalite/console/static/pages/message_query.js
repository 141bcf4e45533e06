/** The form above messages: the start, the filters and the limits of a search. They are in the address. */

import { field, select, timeField } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { fieldTime, momentOf, numbersOf } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { pathsOf } from "../parts/json_path.js";
import { keep, kept } from "../parts/store.js";
import { MessageSchema } from "./message_schema.js";
import { savedSearches } from "./saved_searches.js";

const STARTS = [
  ["end", "Newest first"],
  ["beginning", "From the beginning"],
  ["offset", "From an offset"],
  ["time", "From a time"],
  ["tail", "Live: new messages"],
];
const MATCHES = [
  ["contains", "contains"],
  ["contains_any_case", "contains, any case"],
  ["equals", "equals"],
  ["regex", "matches"],
  ["json", "path"],
];
const FILTERS = ["key", "value", "header"];
const PLACEHOLDERS = { key: "any key", value: "any value", header: "any header: TEXT or NAME=TEXT" };

export class MessageQuery {
  /** @param {import("../parts/router.js").View} view @param {any} topic @param {() => void} search */
  constructor(view, topic, search) {
    this.view = view;
    this.topic = topic;
    const value = (name, otherwise = "") => view.query.get(name) ?? otherwise;
    this.from = select("from", STARTS, value("from", "end"));
    this.offset = h("input", {
      name: "offset",
      type: "number",
      min: 0,
      value: value("offset", "0"),
      "aria-label": "Offset",
    });
    this.time = h("input", {
      name: "time",
      type: "datetime-local",
      step: "0.001",
      value: fieldTime(value("time_ms")) || value("time"),
      "aria-label": "Time",
    });
    this.until = h("input", {
      name: "until",
      type: "datetime-local",
      step: "0.001",
      value: fieldTime(value("until_ms")),
      "aria-label": "Until",
    });
    this.partitions = h("input", {
      name: "partitions",
      placeholder: `all ${topic.partitions}, or 0, 2-4`,
      value: value("partitions"),
      inputmode: "numeric",
    });
    this.limit = select(
      "limit",
      ["20", "50", "200", "1000"].map((number) => [number, number]),
      value("limit", "50"),
    );
    this.filters = FILTERS.map((name) => this.filter(name, value));
    this.isolation = select(
      "isolation",
      [
        ["read_uncommitted", "all records"],
        ["read_committed", "committed only"],
      ],
      value("isolation"),
    );
    this.control = h("input", { type: "checkbox", checked: value("control") === "true" });
    this.maxRecords = select(
      "max_records",
      [
        ["100000", "100 thousand"],
        ["1000000", "1 million"],
        ["10000000", "10 million"],
      ],
      value("max_records"),
    );
    this.expression = h("input", {
      type: "search",
      name: "filter",
      placeholder: 'value.total > 100.0 && key.startsWith("C")',
      value: value("filter"),
      spellcheck: "false",
      autocomplete: "off",
    });
    const saved = kept(this.key, {});
    this.columns = h("input", {
      name: "columns",
      placeholder: "$.customer, key.id, headers.trace-id",
      value: value("columns", saved.columns ?? ""),
      spellcheck: "false",
      autocomplete: "off",
    });
    this.schemas = ["key", "value"].map((side) => {
      const { format = "auto", message = "", ...schemas } = saved[side] ?? {};
      return new MessageSchema(side, value(`${side}_format`, format), value(`${side}_message`, message), schemas);
    });
    this.element = this.form(search);
    this.showStart();
  }

  form(search) {
    const go = h("button", { type: "submit", class: "primary" }, icon("search"), "Search");
    const more = h(
      "details",
      { class: "more", open: this.hasMore() },
      h("summary", null, "More"),
      h(
        "div",
        { class: "query-row" },
        timeField(this.until, "Until"),
        field("Isolation", this.isolation),
        field("Search at most", this.maxRecords),
        field("Columns", this.columns),
        this.schemas.map(({ choice }) => choice),
        h("label", { class: "check" }, this.control, "Transaction markers"),
      ),
      this.schemas.map(({ element }) => element),
    );
    const form = h(
      "form",
      { class: "card message-query" },
      h(
        "div",
        { class: "query-row" },
        field("Start", this.from),
        this.startField(),
        field("Partitions", this.partitions),
        field("Show", this.limit),
        go,
      ),
      h(
        "div",
        { class: "query-row filters" },
        this.filters.map(({ element }) => element),
      ),
      h(
        "div",
        { class: "query-row expression" },
        field("Filter expression", this.expression, "CEL over key, value, headers, partition, offset, timestamp and size"),
        savedSearches(this.view, this.topic, () => this.keep()),
      ),
      more,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      search();
    });
    this.from.addEventListener("change", () => this.showStart());
    return form;
  }

  filter(name, value) {
    const text = h("input", {
      type: "search",
      name,
      placeholder: PLACEHOLDERS[name],
      value: value(name),
      "aria-label": `${name} filter`,
      "data-search": name === "value" ? true : null,
    });
    const match = select(
      `${name}_match`,
      name === "header" ? MATCHES.filter(([match]) => match !== "json") : MATCHES,
      value(`${name}_match`, "contains"),
    );
    match.setAttribute("aria-label", `How the ${name} is compared`);
    const hint = () => {
      text.placeholder = match.value === "json" ? "$.user.id=7, $.items[*].price>=100, $..name~text" : PLACEHOLDERS[name];
    };
    match.addEventListener("change", hint);
    hint();
    const element = h(
      "div",
      { class: "field filter" },
      h("span", { class: "filter-name" }, name[0].toUpperCase() + name.slice(1)),
      h("div", { class: "joined" }, match, text),
    );
    return { name, text, match, element };
  }

  startField() {
    this.offsetField = field("Offset", this.offset);
    this.timeField = timeField(this.time);
    return [this.offsetField, this.timeField];
  }

  showStart() {
    this.offsetField.hidden = this.from.value !== "offset";
    this.timeField.hidden = this.from.value !== "time";
  }

  /** The name under which this browser keeps formats, schemas and columns of the topic. */
  get key() {
    return `view.${this.view.session?.cluster_id ?? ""}.${this.topic.name}`;
  }

  /** The paths of the chosen columns. Throws an Error for one that is none. */
  get paths() {
    return pathsOf(this.columns.value);
  }

  /** The formats and schemas, for a whole record. */
  formats() {
    return { ...this.schemas[0].parameters(), ...this.schemas[1].parameters() };
  }

  hasMore() {
    if (this.schemas.some(({ format }) => format.value !== "auto")) return true;
    const names = ["columns", "until_ms", "isolation", "control", "max_records", "key_format", "value_format", "key_message", "value_message"];
    return names.some((name) => this.view.query.has(name));
  }

  get isTail() {
    return this.from.value === "tail";
  }

  /** The parameters for the API; a filter's kind only with its text. */
  parameters() {
    const asked = {
      from: this.from.value,
      partitions: numbersOf(this.partitions.value).join(","),
      limit: this.isTail ? "" : this.limit.value,
      isolation: this.isolation.value,
      max_records: this.maxRecords.value,
      control: this.control.checked ? "true" : "",
      ...this.schemas[0].parameters(),
      ...this.schemas[1].parameters(),
    };
    if (this.until.value && !this.isTail) asked.until_ms = momentOf(this.until.value);
    if (this.from.value === "offset") asked.offset = this.offset.value;
    if (this.from.value === "time") asked.time_ms = momentOf(this.time.value);
    if (this.expression.value.trim()) asked.filter = this.expression.value.trim();
    for (const { name, text, match } of this.filters) {
      if (text.value) Object.assign(asked, { [name]: text.value, [`${name}_match`]: match.value });
    }
    return asked;
  }

  /** Puts the form into the address, without default values. */
  keep() {
    const usual = {
      from: "end",
      limit: "50",
      isolation: "read_uncommitted",
      max_records: "100000",
      key_format: "auto",
      value_format: "auto",
    };
    const said = { time_ms: "", until_ms: "", ...this.parameters(), time: "" }; // milliseconds mean the same in every zone
    delete said.key_schema; // may be long, and an address should not be
    delete said.value_schema;
    for (const { name, text, match } of this.filters) {
      said[name] = text.value;
      said[`${name}_match`] = text.value && match.value !== "contains" ? match.value : "";
    }
    const optional = { offset: "", key_message: "", value_message: "", filter: "", columns: this.columns.value.trim(), ...said };
    for (const [name, value] of Object.entries(usual)) if (optional[name] === value) optional[name] = "";
    this.view.update(optional);
    const [key, value] = this.schemas.map((one) => one.saved());
    const saved = { ...(key && { key }), ...(value && { value }), ...(optional.columns && { columns: optional.columns }) };
    keep(this.key, Object.keys(saved).length ? saved : null);
  }
}
