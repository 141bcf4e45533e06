/** Producers of one partition, from its leader's state: their last sequence, and their open transactions. */

import { get } from "../parts/api.js";
import { select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { ago, count, plural, time, topicPath } from "../parts/format.js";
import { badge, empty, notice } from "../parts/notice.js";
import { every } from "../parts/router.js";
import { plainTable } from "../parts/table.js";

const REFRESH_MS = 5000;
const LISTED = 500;

/** @param {import("../parts/router.js").View} view @param {any} topic */
export default async function producers(view, topic) {
  const numbers = Array.from({ length: topic.partitions }, (_, index) => String(index));
  const choice = select(
    "partition",
    numbers.map((number) => [number, number]),
    view.query.get("partition") ?? "0",
  );
  choice.setAttribute("aria-label", "Partition");
  const content = h("div", { class: "stack" });
  const path = `/api/topics/${encodeURIComponent(topic.name)}/producers`;
  const load = async () => {
    const { items } = await get(path, { partition: choice.value }, view.signal);
    replace(content, drawn(items, topic, choice.value));
  };
  choice.addEventListener("change", () => {
    view.update({ partition: choice.value === "0" ? "" : choice.value });
    load().catch((error) => replace(content, notice(error, load)));
  });
  view.root.append(h("div", { class: "toolbar bare" }, h("label", { class: "check" }, "Partition", choice)), content);
  await every(REFRESH_MS, load, view.signal);
}

function drawn(items, topic, partition) {
  if (items.length === 0)
    return empty(
      "No producers",
      "Idempotent and transactional producers are listed until producer.id.expiration.ms after their last record.",
    );
  const newest = [...items].sort(
    (one, other) =>
      Number(isOpen(other)) - Number(isOpen(one)) || (other.last_timestamp_ms ?? 0) - (one.last_timestamp_ms ?? 0),
  );
  const more = items.length > LISTED && h("p", { class: "hint" }, `The newest ${count(LISTED)} are listed.`);
  return [
    h("h2", { class: "section-title" }, `${plural(items.length, "producer")} of partition ${partition}`),
    plainTable("Producers", columns(topic, partition), newest.slice(0, LISTED)),
    more,
  ];
}

const isOpen = (row) => row.transaction_start_offset !== null;

function columns(topic, partition) {
  const from = (offset) =>
    `${topicPath(topic.name, "messages")}?from=offset&partitions=${partition}&offset=${offset}&control=true`;
  return [
    { title: "Producer id", number: true, cell: (row) => h("b", null, row.producer_id) },
    { title: "Epoch", number: true, cell: (row) => count(row.producer_epoch) },
    { title: "Last sequence", number: true, cell: (row) => (row.last_sequence < 0 ? "–" : count(row.last_sequence)) },
    {
      title: "Transaction",
      cell: (row) =>
        isOpen(row)
          ? [
              badge("warning", "open"),
              " since offset ",
              h("a", { href: from(row.transaction_start_offset) }, count(row.transaction_start_offset)),
            ]
          : h("span", { class: "muted" }, row.coordinator_epoch < 0 ? "none" : "ended"),
    },
    {
      title: "Coordinator epoch",
      number: true,
      wide: true,
      cell: (row) => (row.coordinator_epoch < 0 ? "–" : count(row.coordinator_epoch)),
    },
    {
      title: "Last written",
      wide: true,
      cell: (row) => h("span", { title: time(row.last_timestamp_ms) }, ago(row.last_timestamp_ms)),
    },
  ];
}
