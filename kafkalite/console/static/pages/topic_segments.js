/** Segments of one partition: drawn to scale, then each with its offsets, times and records. */

import { get } from "../parts/api.js";
import { select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { bytes, count, plural, time } from "../parts/format.js";
import { badge, empty, notice } from "../parts/notice.js";
import { segmentStrip, stripLegend } from "../parts/segment_strip.js";
import { plainTable } from "../parts/table.js";

const LISTED = 200;

/** @param {import("../parts/router.js").View} view @param {any} topic */
export default async function segments(view, topic) {
  const numbers = Array.from({ length: topic.partitions }, (_, index) => String(index));
  const chosen = view.query.get("partition") ?? "0";
  const choice = select(
    "partition",
    numbers.map((number) => [number, number]),
    chosen,
  );
  choice.setAttribute("aria-label", "Partition");
  const content = h("div", { class: "stack" });
  const load = async () => {
    view.update({ partition: choice.value === "0" ? "" : choice.value });
    try {
      const answer = await get(
        `/api/topics/${encodeURIComponent(topic.name)}/segments`,
        { partition: choice.value },
        view.signal,
      );
      replace(content, drawn(answer, topic));
    } catch (error) {
      replace(content, notice(error, load));
    }
  };
  choice.addEventListener("change", load);
  view.root.append(h("div", { class: "toolbar bare" }, h("label", { class: "check" }, "Partition", choice)), content);
  await load();
}

function drawn(answer, topic) {
  const { items } = answer;
  if (items === null)
    return empty("Segments are unknown", "Only a kafkalite broker reports the files of its logs.");
  const size = items.reduce((sum, segment) => sum + segment.size_bytes, 0);
  const head = h(
    "div",
    { class: "part-head" },
    h("h2", null, `${plural(items.length, "segment")}, ${bytes(size)}, on broker ${answer.broker}`),
    stripLegend((topic.cleanup_policy ?? "").includes("compact")),
  );
  const newest = [...items].reverse().slice(0, LISTED);
  const more = items.length > LISTED && h("p", { class: "hint" }, `The newest ${LISTED} are listed.`);
  return [
    h("section", { class: "card" }, head, segmentStrip(items, `${items.length} segments, ${bytes(size)}`)),
    plainTable("Segments", COLUMNS, newest),
    more,
  ];
}

const COLUMNS = [
  { title: "First offset", number: true, cell: (segment) => count(segment.base_offset) },
  { title: "Next", number: true, cell: (segment) => count(segment.next_offset) },
  {
    title: "Live records",
    number: true,
    help: "All data records, those of aborted transactions, too",
    cell: (segment) => count(segment.records),
  },
  { title: "Size", number: true, cell: (segment) => bytes(segment.size_bytes) },
  { title: "First record", wide: true, cell: (segment) => time(segment.first_timestamp_ms) },
  { title: "Last record", wide: true, cell: (segment) => time(segment.last_timestamp_ms) },
  {
    title: "State",
    cell: (segment) =>
      segment.is_active ? badge("accent", "active") : segment.is_dirty ? badge("warning", "not compacted") : "",
  },
];
