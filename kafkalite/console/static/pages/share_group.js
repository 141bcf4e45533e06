/** A share group (KIP-932): where it stands in each partition, what became of records, and who holds which of them. */

import { h } from "../parts/element.js";
import { ago, clock, count, isKnown, plural, topicPath } from "../parts/format.js";
import { badge } from "../parts/notice.js";
import { plainTable } from "../parts/table.js";

const SHOWN_RUNS = 200;

/** @param {any} group */
export const isShareGroup = (group) => group.group_type === "share";

/** The sum of a column; null if it is known of no partition. */
export function total(group, name) {
  const known = group.partitions.map((row) => row[name]).filter(isKnown);
  return known.length ? known.reduce((sum, value) => sum + value, 0) : null;
}

/** The figures at the head of the page. */
export function shareFigures(group) {
  return [
    ["Lag", count(group.lag), "offsets up to the end that are not done"],
    ["Held", count(total(group, "acquired")), "records that members have acquired"],
    ["Accepted", count(total(group, "acknowledged")), "since their partition's leader began"],
    ["Archived", count(total(group, "archived")), "will not come again: rejected, delivered too often, or gone"],
  ];
}

export const SHARE_PARTITIONS = [
  { title: "Topic", class: "name", cell: (row) => h("a", { href: topicPath(row.topic) }, row.topic) },
  { title: "Partition", number: true, cell: (row) => row.partition },
  { title: "Start", number: true, help: "Every record before it is done", cell: startOf },
  { title: "End", number: true, wide: true, cell: (row) => count(row.end_offset) },
  { title: "Lag", number: true, cell: (row) => h("b", null, count(row.lag)) },
  { title: "Held", number: true, cell: (row) => count(row.acquired) },
  {
    title: "Given back",
    number: true,
    wide: true,
    help: "Delivered before, and available again",
    cell: (row) => count(row.available),
  },
  { title: "Accepted", number: true, wide: true, cell: (row) => count(row.acknowledged) },
  { title: "Archived", number: true, wide: true, cell: (row) => count(row.archived) },
  {
    title: "Lock timeouts",
    number: true,
    wide: true,
    help: "Records that were held for too long",
    cell: (row) => count(row.lock_timeouts),
  },
  { title: "Members", number: true, cell: (row) => count(row.readers) },
];

function startOf(row) {
  if (!isKnown(row.start_offset)) return h("span", { class: "muted" }, "not read yet");
  return messagesAt(row.topic, row.partition, row.start_offset, count(row.start_offset));
}

const messagesAt = (topic, partition, offset, text) =>
  h(
    "a",
    {
      href: `${topicPath(topic, "messages")}?from=offset&partitions=${partition}&offset=${offset}`,
      title: "Show the messages from here on",
    },
    text,
  );

export const RUNS = [
  { title: "Topic", class: "name", cell: (run) => h("a", { href: topicPath(run.topic) }, run.topic) },
  { title: "Partition", number: true, cell: (run) => run.partition },
  { title: "Offsets", cell: (run) => messagesAt(run.topic, run.partition, run.first_offset, offsetsOf(run)) },
  { title: "State", cell: (run) => (run.member_id ? badge("accent", "held") : badge("quiet", "given back")) },
  { title: "Deliveries", number: true, cell: (run) => count(run.delivery_count) },
  {
    title: "Held by",
    cell: (run) => (run.member_id ? holder(run) : h("span", { class: "muted" }, "no member")),
  },
  { title: "Since", wide: true, cell: (run) => (isKnown(run.acquired_ms) ? ago(run.acquired_ms) : "") },
  { title: "Locked until", wide: true, cell: (run) => (isKnown(run.locked_until_ms) ? clock(run.locked_until_ms) : "") },
];

const holder = (run) => [
  h("bdi", null, run.client_id ?? "a member that has left"),
  h("p", { class: "hint" }, h("bdi", null, run.member_id)),
];

/** 5, or 5–9 (5) */
export function offsetsOf({ first_offset, last_offset }) {
  if (first_offset === last_offset) return count(first_offset);
  return `${count(first_offset)}–${count(last_offset)} (${count(last_offset - first_offset + 1)})`;
}

/** The records in flight, of a group whose brokers report them. */
export function recordsInFlight(group) {
  const title = h("h2", { class: "section-title" }, "Records in flight");
  if (group.records_in_flight === null)
    return [title, h("p", { class: "hint" }, "The brokers of this cluster do not report who holds which records.")];
  const shown = group.records_in_flight.slice(0, SHOWN_RUNS);
  const missing = group.records_in_flight.length - shown.length + group.left_out;
  return [
    title,
    plainTable("Records in flight", RUNS, shown, "No member holds a record, and none was given back."),
    missing > 0 && h("p", { class: "hint" }, `${plural(missing, "more row")} are not shown.`),
  ];
}
