/** Mirrors into this cluster: lag, rate and last error of each source, as each process reports them. */

import { get } from "../parts/api.js";
import { h } from "../parts/element.js";
import { ago, bytesPerSecond, count, milliseconds, perSecond, time } from "../parts/format.js";
import { badge, empty } from "../parts/notice.js";
import { head } from "../parts/page.js";
import { every } from "../parts/router.js";
import { Table } from "../parts/table.js";

const REFRESH_MS = 5000;

/** @param {import("../parts/router.js").View} view */
export default async function mirrors(view) {
  const table = new Table({
    view,
    label: "Mirrors",
    search: "Search sources and errors",
    sort: "source",
    columns: COLUMNS,
    load: (query, signal) => get("/api/mirrors", query, signal),
    empty: (q) => empty(q ? `No mirror has “${q}” in its source or error` : "No mirror is known"),
  });
  view.root.append(head(view, "Mirrors"), table.element);
  await every(REFRESH_MS, () => table.refresh(), view.signal);
}

const COLUMNS = [
  { title: "Source", sort: "source", class: "name", cell: (row) => h("bdi", null, row.source ?? "–") },
  { title: "Process", sort: "address", cell: (row) => h("code", null, row.address) },
  { title: "State", cell: state },
  { title: "Partitions", sort: "partitions", number: true, wide: true, cell: (row) => count(row.partitions) },
  {
    title: "Lag",
    sort: "lag",
    number: true,
    descending: true,
    help: "Offsets at the source that are not copied yet",
    cell: (row) => count(row.lag),
  },
  {
    title: "Rate",
    sort: "records_per_s",
    number: true,
    descending: true,
    cell: (row) => h("span", { title: bytesPerSecond(row.bytes_per_s) }, perSecond(row.records_per_s)),
  },
  {
    title: "Latency",
    sort: "latency_ms",
    number: true,
    descending: true,
    wide: true,
    help: "From the time of the newest record of the last commit to that commit",
    cell: (row) => milliseconds(row.latency_ms),
  },
  { title: "Last error", sort: "last_error_ms", descending: true, cell: lastError },
];

/** @param {any} row */
export function state(row) {
  if (row.fault) return [badge("error", "no answer"), h("p", { class: "hint why" }, row.fault)];
  const marks = [row.is_copying ? badge("ok", "copying") : badge("warning", "not copying")];
  if (row.failed) marks.push(" ", badge("error", `${count(row.failed)} failed`, "Partitions that are not copied; its /health names one"));
  if (row.lost_offsets) marks.push(" ", badge("warning", `${count(row.lost_offsets)} lost`, "Offsets that the source deleted before they were copied"));
  return marks;
}

function lastError(row) {
  if (!row.last_error) return row.errors === 0 ? "none" : "–";
  const when = h("span", { class: "muted", title: time(row.last_error_ms) }, ago(row.last_error_ms), `, ${count(row.errors)} in all`);
  return [h("div", null, row.last_error), when];
}
