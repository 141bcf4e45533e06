/** All topics: searched, sorted and paged by the server, with exact counts of their records. */

import { change, get } from "../parts/api.js";
import { field, formDialog, select } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { bytes, bytesPerSecond, count, duration, topicPath } from "../parts/format.js";
import { badge, empty } from "../parts/notice.js";
import { action, head } from "../parts/page.js";
import { every } from "../parts/router.js";
import { Table } from "../parts/table.js";
import { toast } from "../parts/toast.js";

const REFRESH_MS = 10_000;
const LEGAL_NAME = "[a-zA-Z0-9._\\-]{1,249}";

const COLUMNS = [
  { title: "Name", sort: "name", class: "name", cell: name },
  { title: "Partitions", sort: "partitions", number: true, descending: true, wide: true, cell: (topic) => count(topic.partitions) },
  {
    title: "Replicas",
    sort: "replicas",
    number: true,
    descending: true,
    wide: true,
    cell: (topic) => count(topic.replicas),
  },
  {
    title: "Records",
    sort: "records",
    number: true,
    descending: true,
    help: "Records that a consumer would get: without compacted and aborted records and markers",
    cell: records,
  },
  {
    title: "Offsets",
    number: true,
    wide: true,
    help: "The span between first and last offset, which other tools show as the count",
    cell: (topic) => h("span", { class: "muted" }, count(topic.offset_span)),
  },
  { title: "Size", sort: "size_bytes", number: true, descending: true, cell: (topic) => bytes(topic.size_bytes) },
  {
    title: "Rate",
    sort: "bytes_per_s",
    number: true,
    descending: true,
    wide: true,
    help: "Bytes written in the last seconds",
    cell: rate,
  },
  { title: "Cleanup", wide: true, cell: (topic) => cleanup(topic) },
  {
    title: "Retention",
    number: true,
    wide: true,
    cell: (topic) => (topic.cleanup_policy === "compact" ? "–" : duration(topic.retention_ms)),
  },
];

/** @param {import("../parts/router.js").View} view */
export default async function topics(view) {
  const internal = h("input", { type: "checkbox", checked: view.query.get("internal") === "true" });
  const table = new Table({
    view,
    label: "Topics",
    search: "Search topics",
    sort: "name",
    columns: COLUMNS,
    controls: h("label", null, internal, "Internal topics"),
    href: (topic) => topicPath(topic.name),
    load: (query, signal) => get("/api/topics", { ...query, internal: internal.checked }, signal),
    empty: (q) => nothing(q, view),
  });
  internal.addEventListener("change", () => {
    view.update({ internal: internal.checked ? "true" : "" });
    table.show({ page: 1 });
  });
  const create = action(view.session, "plus", "Create topic", () => createTopic(table), "primary");
  view.root.append(head(view, "Topics", { actions: create }), table.element);
  await every(REFRESH_MS, () => table.refresh(), view.signal);
}

function name(topic) {
  return [
    h("a", { href: topicPath(topic.name) }, topic.name),
    topic.is_internal && [" ", badge("quiet", "internal")],
    topic.offline > 0 && [" ", badge("error", `${count(topic.offline)} offline`)],
    topic.under_replicated > 0 && [" ", badge("warning", `${count(topic.under_replicated)} under-replicated`)],
  ];
}

export function records(topic) {
  if (topic.records_pending) return h("span", { class: "muted", title: "Segments are being counted" }, "counting…");
  return count(topic.records);
}

/** Most topics have no writes: a dash is read faster than a zero with its unit. */
function rate(topic) {
  return topic.bytes_per_s > 0 ? bytesPerSecond(topic.bytes_per_s) : h("span", { class: "muted" }, "–");
}

function cleanup(topic) {
  const policies = (topic.cleanup_policy ?? "").split(",").filter(Boolean);
  return policies.map((policy) => [badge(policy === "compact" ? "accent" : "quiet", policy), " "]);
}

function nothing(q, view) {
  if (q) return empty(`No topic has “${q}” in its name`, "Internal topics are found too when the box above is ticked.");
  const how = view.session.write
    ? "Create one here, or let a producer do it: auto.create.topics.enable"
    : "A producer creates the first one by writing to it.";
  return empty("No topics yet", how);
}

async function createTopic(table) {
  const body = [
    field(
      "Name",
      h("input", { name: "name", required: true, pattern: LEGAL_NAME, autocomplete: "off" }),
      "Letters, digits, dots, dashes and underscores",
    ),
    h(
      "div",
      { class: "fields" },
      field(
        "Partitions",
        h("input", { name: "partitions", type: "number", min: 1, max: 100000, value: 1, required: true }),
      ),
      field("Replicas", h("input", { name: "replicas", type: "number", min: 1, max: 100, value: 1, required: true })),
      field(
        "Cleanup",
        select("cleanup.policy", [
          ["", "the broker's default"],
          ["delete", "delete"],
          ["compact", "compact"],
          ["compact,delete", "compact, delete"],
        ]),
      ),
    ),
    field(
      "Configuration",
      h("textarea", { name: "configs", rows: 4, placeholder: "retention.ms=604800000", spellcheck: "false" }),
      "One name=value per line; empty: the broker's defaults",
    ),
  ];
  const made = await formDialog({
    title: "Create topic",
    action: "Create",
    body,
    submit: (data) => change("POST", "/api/topics", newTopic(data)),
  });
  if (!made) return;
  toast(`${made.name} was created`);
  await table.refresh();
}

/** @param {FormData} data */
function newTopic(data) {
  const configs = {};
  for (const text of String(data.get("configs"))
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)) {
    const cut = text.indexOf("=");
    if (cut < 1) throw new Error(`“${text}” is not a setting: write name=value`);
    configs[text.slice(0, cut).trim()] = text.slice(cut + 1).trim();
  }
  if (data.get("cleanup.policy")) configs["cleanup.policy"] = data.get("cleanup.policy");
  return {
    name: data.get("name"),
    partitions: Number(data.get("partitions")),
    replicas: Number(data.get("replicas")),
    configs,
  };
}
