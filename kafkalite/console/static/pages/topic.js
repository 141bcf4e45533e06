/** One topic: its partitions, and tabs with addresses of their own for everything else about it. */

import { get } from "../parts/api.js";
import { h, replace } from "../parts/element.js";
import { ago, bytes, bytesPerSecond, count, duration, percent, plural, time, topicPath } from "../parts/format.js";
import { badge } from "../parts/notice.js";
import { action, facts, figures, head } from "../parts/page.js";
import { repeat } from "../parts/router.js";
import { Table } from "../parts/table.js";
import { tabs } from "../parts/tabs.js";
import { topicActions } from "./topic_actions.js";
import { records } from "./topics.js";

const REFRESH_MS = 5000;

const TABS = [
  ["Partitions", ""],
  ["Messages", "messages"],
  ["Configuration", "configuration"],
  ["Groups", "groups"],
  ["Compaction", "compaction"],
  ["Segments", "segments"],
  ["Producers", "producers"],
  ["Analysis", "analysis"],
];

/** A tab's module is loaded when it is first opened. */
const CONTENTS = {
  "": () => ({ default: partitions }),
  messages: () => import("./topic_messages.js"),
  configuration: () => import("./topic_configuration.js"),
  groups: () => import("./topic_groups.js"),
  compaction: () => import("./topic_compaction.js"),
  segments: () => import("./topic_segments.js"),
  producers: () => import("./topic_producers.js"),
  analysis: () => import("./topic_analysis.js"),
};

/** @param {import("../parts/router.js").View} view */
export default async function topicPage(view) {
  const [name, tab] = view.params;
  const topic = await get(`/api/topics/${encodeURIComponent(name)}`, {}, view.signal);
  const after = [topic.is_internal && badge("quiet", "internal"), ...marks(topic)];
  const before = h("a", { href: "/topics" }, "Topics");
  const links = TABS.map(([text, at]) => [text, topicPath(name, at)]);
  view.root.append(
    head(view, name, { before, after, actions: topicActions(view, topic) }),
    tabs(links, topicPath(name, tab), `Pages of ${name}`),
  );
  const content = h("div", { class: "stack" });
  view.root.append(content);
  const { default: show } = await CONTENTS[tab]();
  await show({ ...view, root: content }, topic);
}

function marks(topic) {
  return [
    topic.offline > 0 && badge("error", `${count(topic.offline)} offline`),
    topic.under_replicated > 0 && badge("warning", `${count(topic.under_replicated)} under-replicated`),
  ];
}

/** @param {import("../parts/router.js").View} view */
async function partitions(view, first) {
  const numbers = h("div");
  const more = h("div", { class: "card" });
  let topic = first;
  const draw = () => {
    replace(numbers, summary(topic));
    replace(more, details(topic));
  };
  draw();
  const path = `/api/topics/${encodeURIComponent(topic.name)}`;
  const table = new Table({
    view,
    label: "Partitions",
    columns: [...COLUMNS, { title: "Move", hidden: true, wide: true, cell: (row) => mover(view, topic, row) }],
    sort: "partition",
    load: ({ sort, page }, signal) => get(`${path}/partitions`, { sort, page }, signal),
  });
  view.root.append(numbers, table.element, more);
  await table.refresh();
  repeat(
    REFRESH_MS,
    async () => {
      topic = await get(path, {}, view.signal);
      draw();
      await table.refresh();
    },
    view.signal,
  );
}

/** A button that moves a partition to other brokers. */
function mover(view, topic, row) {
  const press = async () => (await import("./placement.js")).move(topic, row);
  const button = action(view.session, "cluster", "Move", press, "quiet");
  button.setAttribute("aria-label", `Move partition ${row.partition}`);
  return button;
}

function summary(topic) {
  const removed = topic.records === null ? null : Math.max(0, topic.offset_span - topic.records);
  return figures([
    ["Records", records(topic), without(topic, removed)],
    ["Size", bytes(topic.size_bytes), topic.bytes_per_s > 0 && `grows by ${bytesPerSecond(topic.bytes_per_s)}`],
    [
      "Partitions",
      count(topic.partitions),
      `${count(topic.replicas)} ${topic.replicas === 1 ? "replica" : "replicas"} each`,
    ],
    [
      "Newest record",
      ago(topic.last_timestamp_ms),
      topic.last_timestamp_ms !== null && time(topic.last_timestamp_ms),
    ],
  ]);
}

function without(topic, removed) {
  if (removed === null) return "their number is unknown";
  if (removed) return `${plural(removed, "offset")} without one`;
  return topic.records ? "one at each offset" : null;
}

function details(topic) {
  const uncommitted =
    topic.records_uncommitted !== null && topic.records !== null
      ? Math.max(0, topic.records_uncommitted - topic.records)
      : 0;
  return [
    h("h2", null, "About this topic"),
    facts([
      ["Cleanup", topic.cleanup_policy],
      [
        "Retention",
        `${duration(topic.retention_ms)}, ${topic.retention_bytes === null || topic.retention_bytes < 0 ? "no limit of bytes" : `${bytes(topic.retention_bytes)} per partition`}`,
      ],
      ["min.insync.replicas", topic.min_insync_replicas],
      ["Offset span", count(topic.offset_span)],
      [
        "Aborted or open",
        uncommitted ? `${plural(uncommitted, "record")} that read_committed consumers do not get` : null,
      ],
      ["Topic id", topic.topic_id && h("code", null, topic.topic_id)],
    ]),
  ];
}

const COLUMNS = [
  { title: "Partition", sort: "partition", cell: (row) => h("b", null, row.partition) },
  { title: "Leader", sort: "leader", cell: leader },
  { title: "Replicas", wide: true, cell: (row) => replicas(row) },
  { title: "Start", sort: "start_offset", number: true, wide: true, cell: (row) => count(row.start_offset) },
  { title: "End", sort: "end_offset", number: true, descending: true, cell: (row) => count(row.end_offset) },
  { title: "Stable end", number: true, wide: true, help: "read_committed consumers read up to here", cell: stable },
  { title: "Records", sort: "records", number: true, descending: true, cell: (row) => count(row.records) },
  { title: "Size", sort: "size_bytes", number: true, descending: true, cell: (row) => bytes(row.size_bytes) },
  { title: "Segments", number: true, wide: true, cell: (row) => count(row.segments) },
  {
    title: "Dirty",
    number: true,
    wide: true,
    help: "The part of the log that was not compacted yet",
    cell: (row) => percent(row.dirty_ratio),
  },
];

function leader(row) {
  return row.leader === null
    ? badge("error", "none")
    : [row.leader, h("span", { class: "muted wide-only", title: "Leader epoch" }, ` · ${row.leader_epoch}`)];
}

function stable(row) {
  const behind = row.end_offset - row.last_stable_offset;
  if (!(behind > 0)) return h("span", { class: "muted" }, "at the end");
  return h("span", { class: "warning-text", title: "An open transaction" }, `−${count(behind)}`);
}

export function replicas(row) {
  const offline = new Set(row.offline ?? []);
  return row.replicas.map((id) => {
    const inSync = row.isr.includes(id);
    const kind = offline.has(id) ? "error" : inSync ? "ok" : "warning";
    const state = offline.has(id) ? "offline" : inSync ? "in sync" : "not in sync";
    return [
      h(
        "span",
        { class: `badge ${kind}`, title: `Broker ${id}: ${state}` },
        id,
        h("span", { class: "visually-hidden" }, ` ${state}`),
      ),
      " ",
    ];
  });
}
