/** Compaction by partition: the dirty ratio, what the last pass retained, and why it is not cleaned now. */

import { change, get } from "../parts/api.js";
import { formDialog } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { ago, bytes, count, duration, percent, topicPath } from "../parts/format.js";
import { badge, empty, emptyFor, remark } from "../parts/notice.js";
import { action, head } from "../parts/page.js";
import { every } from "../parts/router.js";
import { Table } from "../parts/table.js";
import { toast } from "../parts/toast.js";

const REFRESH_MS = 5000;

/** @param {import("../parts/router.js").View} view */
export default async function compaction(view) {
  view.root.append(head(view, "Compaction"));
  await compactionTable(view, "");
}

/** The table of all compacted partitions, or of one topic's. @param {string} topic */
export async function compactionTable(view, topic) {
  const internal = h("input", { type: "checkbox", checked: view.query.get("internal") === "true" });
  const compact = (row) => compactNow(row.topic, row.partition).then((done) => done && table.refresh());
  const table = new Table({
    view,
    label: "Compacted partitions",
    search: topic ? undefined : "Search topics",
    sort: "-dirty_ratio",
    columns: columns(view, topic, compact),
    controls: topic ? undefined : h("label", null, internal, "Internal topics"),
    load: (query, signal) => get("/api/compaction", { ...query, topic, internal: internal.checked }, signal),
    empty: (q) => emptyFor(view.session, "compacted topics", () => nothing(q, topic)),
  });
  internal.addEventListener("change", () => {
    view.update({ internal: internal.checked ? "true" : "" });
    table.show({ page: 1 });
  });
  view.root.append(table.element);
  await every(REFRESH_MS, () => table.refresh(), view.signal);
}

function columns(view, topic, compact) {
  const name = {
    title: "Topic",
    sort: "topic",
    class: "name",
    cell: (row) => h("a", { href: topicPath(row.topic, "compaction") }, row.topic),
  };
  return [
    ...(topic ? [] : [name]),
    { title: "Partition", sort: "partition", number: true, cell: (row) => row.partition },
    { title: "Dirty", sort: "dirty_ratio", descending: true, cell: dirt },
    {
      title: "Size",
      sort: "size_bytes",
      number: true,
      descending: true,
      wide: true,
      cell: (row) => bytes(row.size_bytes),
    },
    {
      title: "State",
      cell: (row) => [badge(kind(row), row.state), row.why_not && h("p", { class: "hint why" }, row.why_not)],
    },
    { title: "Last pass", sort: "last_cleaned_ms", descending: true, wide: true, cell: lastPass },
    {
      title: "Actions",
      hidden: true,
      cell: (row) =>
        view.session.can_compact !== false &&
        action(view.session, "compaction", "Compact", () => compact(row), "quiet"),
    },
  ];
}

function kind(row) {
  const state = String(row.state).toLowerCase();
  if (/uncleanable|fail/.test(state)) return "error";
  return /clean(ing)?$|running|busy|due|queue/.test(state) && !/not/.test(state) ? "accent" : "quiet";
}

/** The dirty ratio, and the ratio from which the cleaner compacts the log by itself. */
function dirt(row) {
  if (row.dirty_ratio === null) return "–";
  const fill = h("span", { class: "dirt-fill", style: { width: `${Math.min(100, row.dirty_ratio * 100)}%` } });
  const mark =
    row.min_dirty_ratio !== null && h("span", { class: "dirt-mark", style: { left: `${row.min_dirty_ratio * 100}%` } });
  const title = `${bytes(row.dirty_bytes)} dirty; cleaned by itself from ${percent(row.min_dirty_ratio)} on`;
  return h(
    "div",
    { class: "dirt", title },
    h("span", { class: "dirt-bar", "aria-hidden": "true" }, fill, mark),
    h("span", null, percent(row.dirty_ratio)),
  );
}

function lastPass(row) {
  if (row.last_cleaned_ms === null && !row.last_pass) return h("span", { class: "muted" }, "none yet");
  const pass = row.last_pass;
  if (!pass) return ago(row.last_cleaned_ms);
  const dropped = [
    pass.tombstones_dropped ? `${count(pass.tombstones_dropped)} tombstones` : "",
    pass.aborted_dropped ? `${count(pass.aborted_dropped)} aborted` : "",
  ]
    .filter(Boolean)
    .join(", ");
  const kept = `kept ${count(pass.records_kept)} of ${count(pass.records_read)} records, ${bytes(pass.bytes_kept)} of ${bytes(pass.bytes_read)}, in ${duration(pass.duration_ms)}`;
  return [ago(row.last_cleaned_ms), h("p", { class: "hint" }, kept, dropped && `; dropped ${dropped}`)];
}

function nothing(q, topic) {
  if (q) return empty(`No compacted topic has “${q}” in its name`);
  if (topic)
    return empty(
      "This topic is not compacted",
      "Set cleanup.policy to compact in its configuration, and only the newest record of each key is kept.",
    );
  return empty("No compacted topics", "A topic with cleanup.policy=compact keeps the newest record of each key.");
}

/** @param {string} topic @param {number | null} partition null: all of them */
export async function compactNow(topic, partition) {
  const where = partition === null ? topic : `${topic}-${partition}`;
  const done = await formDialog({
    title: `Compact ${where} now`,
    action: "Compact",
    body: remark(
      "Older records of a key are removed, as the cleaner would do it later. The active segment is closed first, so that all of the log can be cleaned.",
    ),
    submit: () =>
      change("POST", `/api/topics/${encodeURIComponent(topic)}/compact`, {
        partitions: partition === null ? null : [partition],
        roll: true,
      }),
  });
  if (!done) return undefined;
  const refused = (done.partitions ?? []).filter((one) => one.message);
  if (refused.length)
    toast(
      refused
        .map((one) => `Partition ${one.partition}: ${one.message}`)
        .slice(0, 3)
        .join(" · "),
      "error",
    );
  else toast(`${where} is being compacted`);
  return done;
}
