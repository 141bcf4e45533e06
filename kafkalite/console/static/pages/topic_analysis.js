/** The analysis of a topic: keys, sizes, nulls, headers and its rate, counted by one scan that can be stopped. */

import { events, isAbort } from "../parts/api.js";
import { field, select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { bytes, count, percent, plural, time, topicPath } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { empty, notice, remark } from "../parts/notice.js";
import { facts, figures } from "../parts/page.js";
import { progress } from "../parts/progress.js";
import { plainTable } from "../parts/table.js";

const LIMITS = [
  ["100000", "100 thousand records"],
  ["1000000", "1 million records"],
  ["10000000", "10 million records"],
];

/** @param {import("../parts/router.js").View} view @param {any} topic */
export default function analysis(view, topic) {
  const limit = select("max_records", LIMITS);
  const shown = h("div", { class: "stack" }, empty("Not counted yet", "Analyse reads the topic from its beginning, up to a limit."));
  let asked = null;
  const bar = progress(() => asked?.abort());
  const form = h("form", { class: "card query-row" }, field("At most", limit), h("button", { type: "submit", class: "primary" }, icon("search"), "Analyse"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    asked?.abort();
    asked = new AbortController();
    bar.start();
    try {
      await run(topic, limit.value, AbortSignal.any([asked.signal, view.signal]), bar, shown);
    } catch (error) {
      bar.end(isAbort(error) ? "Stopped." : "");
      if (!isAbort(error)) replace(shown, notice(error));
    }
  });
  view.root.append(form, bar.element, shown);
}

async function run(topic, limit, signal, bar, shown) {
  const parameters = { max_records: limit, max_bytes: 64 * 1024 ** 3, max_ms: 600_000 };
  for await (const { event, data } of events(`/api/topics/${encodeURIComponent(topic.name)}/analysis`, parameters, signal)) {
    if (event === "progress") bar.show(data.total ? data.scanned / data.total : null, `${plural(data.scanned, "record")}, ${bytes(data.scanned_bytes)}`);
    if (event === "error") throw new Error(data.message);
    if (event === "done") {
      bar.end("");
      replace(shown, drawn(topic, data));
    }
  }
}

function drawn(topic, data) {
  if (data.records === 0) return empty("No records", "The topic is empty.");
  const part = (number) => percent(number / data.records);
  return [
    data.reason !== "end" && remark(`The first ${plural(data.scanned, "record")} of about ${count(data.total)}.`, "warning"),
    figures([
      ["Records", count(data.records), `${part(data.with_headers)} with headers`],
      ["Distinct keys", count(data.key.distinct), `about; ${part(data.key.nulls)} without a key`],
      ["Tombstones", count(data.value.nulls), part(data.value.nulls)],
      ["Mean value", bytes(data.value.mean_bytes), `largest ${bytes(data.value.largest_bytes)}`],
      ["Mean key", bytes(data.key.mean_bytes), `largest ${bytes(data.key.largest_bytes)}`],
    ]),
    facts([
      ["First", time(data.first_ms)],
      ["Last", time(data.last_ms)],
      ["Compression", Object.entries(data.compression).map(([name, number]) => `${name} ${part(number)}`).join(", ")],
    ]),
    bars("Sizes of values", "Smaller than", data.value.sizes.map((one) => [bytes(one.below), one.count])),
    bars("Records by time", "From", data.rate.map((one) => [`${time(one.from_ms)}, ${one.hours} h`, one.count])),
    bars("Records by partition", "Partition", data.partitions.map((one) => [one.partition, one.count])),
    h("h2", { class: "section-title" }, "Largest values"),
    plainTable("Largest values", LARGEST(topic), data.largest),
  ];
}

const LARGEST = (topic) => [
  {
    title: "Record",
    class: "name",
    cell: (row) => h("a", { href: `${topicPath(topic.name, "messages")}?from=offset&partitions=${row.partition}&offset=${row.offset}&limit=20&open=true` }, `${row.partition} · ${count(row.offset)}`),
  },
  { title: "Size", number: true, cell: (row) => bytes(row.size_bytes) },
];

/** A table with a bar in each row. @param {[any, number][]} rows */
function bars(title, name, rows) {
  const most = Math.max(...rows.map(([, number]) => number), 1);
  const columns = [
    { title: name, cell: ([text]) => h("span", { class: "nowrap" }, text) },
    { title: "Records", number: true, cell: ([, number]) => count(number) },
    { title: "Share", hidden: true, class: "bar-cell", cell: ([, number]) => h("span", { class: "share-bar", style: { width: `${(number / most) * 100}%` } }) },
  ];
  return [h("h2", { class: "section-title" }, title), plainTable(title, columns, rows)];
}
