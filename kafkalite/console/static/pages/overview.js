/** The overview: present problems, the last hour as plots, and the brokers. */

import { get } from "../parts/api.js";
import { h, replace } from "../parts/element.js";
import {
  bytes,
  bytesPerSecond,
  count,
  duration,
  isKnown,
  milliseconds,
  percent,
  perSecond,
  plural,
} from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { badge } from "../parts/notice.js";
import { figures, head } from "../parts/page.js";
import { Plot } from "../parts/plot.js";
import { every } from "../parts/router.js";
import { plainTable } from "../parts/table.js";

const REFRESH_MS = 5000;
const SIZES_AFTER_MS = 1000;

/** Lines have a name here and one in the history. */
const PLOTS = [
  {
    title: "Bytes",
    say: bytesPerSecond,
    step: 1024,
    lines: [
      ["in", "produce_bytes_per_s"],
      ["out", "fetch_bytes_per_s"],
    ],
  },
  {
    title: "Requests",
    say: perSecond,
    lines: [
      ["produce", "produce_requests_per_s"],
      ["fetch", "fetch_requests_per_s"],
    ],
  },
  {
    title: "Latency of produce",
    say: milliseconds,
    lines: [
      ["p50", "produce_p50_ms"],
      ["p99", "produce_p99_ms"],
    ],
  },
  {
    title: "Latency of fetch",
    say: milliseconds,
    lines: [
      ["p50", "fetch_p50_ms"],
      ["p99", "fetch_p99_ms"],
    ],
  },
];

const SEVERITIES = { critical: "error", warning: "warning", info: "info" };

/** @param {import("../parts/router.js").View} view */
export default async function overview(view) {
  const parts = { problems: h("div"), figures: h("div"), brokers: h("section") };
  const plots = PLOTS.map(({ title, say, step, lines }) => ({ plot: new Plot(title, say, step), lines }));
  const drawings = h(
    "div",
    { class: "plots" },
    plots.map(({ plot }) => plot.element),
  );
  replace(view.root, head(view, "Overview"), parts.problems, parts.figures, drawings, parts.brokers);
  let isFirst = true;
  const refresh = async () => {
    const [now, history] = await Promise.all([
      get("/api/overview", {}, view.signal),
      get("/api/history", {}, view.signal),
    ]);
    replace(parts.problems, problems(now.problems));
    replace(parts.figures, numbers(now));
    replace(parts.brokers, brokers(now.brokers));
    for (const each of plots) draw(each, history);
    // sizes need requests for every partition, which the first view does not wait for
    if (isFirst && now.kind === "kafkalite" && !isKnown(now.size_bytes)) setTimeout(again, SIZES_AFTER_MS);
    isFirst = false;
  };
  const again = () => view.signal.aborted || refresh().catch(() => undefined); // the next refresh reports it
  await every(REFRESH_MS, refresh, view.signal);
}

function problems(items) {
  if (items.length === 0) {
    return h(
      "div",
      { class: "card all-well" },
      icon("ok"),
      h("span", null, "Nothing is wrong: all partitions are led, in sync and can be compacted."),
    );
  }
  const lines = items.map((item) => {
    const kind = SEVERITIES[item.severity] ?? "info";
    const text = item.link ? h("a", { href: item.link }, item.sentence) : item.sentence;
    return h(
      "li",
      { class: kind },
      icon(kind),
      h("span", { class: "visually-hidden" }, item.severity, ": "),
      h("span", null, text),
    );
  });
  return h(
    "section",
    { class: "card" },
    h("h2", null, `Wrong right now: ${plural(items.length, "thing")}`),
    h("ul", { class: "problems" }, lines),
  );
}

function numbers(now) {
  const unwell = now.offline
    ? [now.offline, "offline", "error"]
    : [now.under_replicated, "under-replicated", "warning"];
  const note = unwell[0] ? `${count(unwell[0])} ${unwell[1]}` : "all in sync";
  const { rates } = now;
  return figures([
    ["Topics", h("a", { href: "/topics" }, count(now.topics)), null],
    ["Partitions", count(now.partitions), note, unwell[0] ? unwell[2] : ""],
    ["Groups", h("a", { href: "/groups" }, count(now.groups)), null],
    ["On the disk", bytes(now.size_bytes), isKnown(now.records) && plural(now.records, "record")],
    ["Records in", perSecond(rates.produce_records_per_s), `${bytesPerSecond(rates.produce_bytes_per_s)}`],
    ["Connections", count(rates.connections), null],
  ]);
}

function brokers(items) {
  const columns = [
    {
      title: "Broker",
      cell: (broker) => [h("b", null, broker.id), " ", broker.is_controller && badge("accent", "controller")],
    },
    { title: "Address", cell: (broker) => h("code", null, `${broker.host}:${broker.port}`) },
    { title: "Rack", wide: true, cell: (broker) => broker.rack ?? "–" },
    { title: "Leads", number: true, cell: (broker) => count(broker.leaders) },
    { title: "Replicas", number: true, wide: true, cell: (broker) => count(broker.replicas) },
    { title: "In", number: true, cell: (broker) => bytesPerSecond(broker.produce_bytes_per_s) },
    { title: "Out", number: true, cell: (broker) => bytesPerSecond(broker.fetch_bytes_per_s) },
    { title: "Connections", number: true, wide: true, cell: (broker) => count(broker.connections) },
    { title: "Disk", number: true, cell: disk },
    { title: "Up for", number: true, wide: true, cell: (broker) => duration(broker.uptime_ms) },
    { title: "Version", wide: true, cell: (broker) => broker.version ?? "–" },
  ];
  return [h("h2", { class: "section-title" }, "Brokers"), plainTable("Brokers", columns, items)];
}

/** Used of the whole, when both are known. */
function disk(broker) {
  if (broker.disk_bytes === null || broker.disk_free_bytes === null) return "–";
  const used = broker.disk_bytes - broker.disk_free_bytes;
  const meter = h("meter", {
    min: 0,
    max: broker.disk_bytes,
    high: broker.disk_bytes * 0.85,
    "aria-label": "Disk used",
  });
  meter.setAttribute("value", String(used));
  return [
    h(
      "span",
      { title: `${bytes(broker.disk_free_bytes)} free of ${bytes(broker.disk_bytes)}` },
      `${percent(used / broker.disk_bytes)} `,
    ),
    meter,
  ];
}

function draw({ plot, lines }, history) {
  const { times_ms: times, series } = history;
  const points = (name) => times.map((time, index) => [time, series[name]?.[index] ?? null]);
  plot.draw(lines.map(([name, key], index) => ({ name, color: index + 1, points: points(key) })));
}
