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
  time,
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
  let latest = null;
  const redraw = () => replace(parts.problems, problems(latest.problems, redraw));
  const refresh = async () => {
    const [now, history] = await Promise.all([
      get("/api/overview", {}, view.signal),
      get("/api/history", {}, view.signal),
    ]);
    replace(parts.problems, problems(now.problems, redraw));
    latest = now;
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

const MUTED_KEY = "kafkalite.muted";
const muted = new Set(kept());

function kept() {
  try {
    return JSON.parse(localStorage.getItem(MUTED_KEY) ?? "[]");
  } catch {
    return []; // a browser may forbid the storage
  }
}

/** @param {string} key @param {boolean} isMuted kept in this browser */
function mute(key, isMuted) {
  muted[isMuted ? "add" : "delete"](key);
  try {
    localStorage.setItem(MUTED_KEY, JSON.stringify([...muted]));
  } catch {
    // then it lasts as long as the page
  }
}

/** A problem of the same kind about the same thing, whatever its numbers are now. */
const keyOf = (item) => `${item.kind} ${item.link ?? item.sentence}`;

/** @param {any[]} items @param {() => void} redraw */
export function problems(items, redraw) {
  const shown = items.filter((item) => !muted.has(keyOf(item)));
  const hidden = items.filter((item) => muted.has(keyOf(item)));
  const unmute = () => {
    for (const item of hidden) mute(keyOf(item), false);
    redraw();
  };
  const more =
    hidden.length > 0 &&
    h("button", { type: "button", class: "quiet", on: { click: unmute } }, `Show ${hidden.length} muted`);
  if (shown.length === 0) {
    const text = hidden.length ? "No problems but muted ones." : "No problems: all partitions have a leader and are in sync.";
    return h("div", { class: "card all-well" }, icon("ok"), h("span", null, text), more);
  }
  const lines = shown.map((item) => {
    const kind = SEVERITIES[item.severity] ?? "info";
    const text = item.link ? h("a", { href: item.link }, item.sentence) : item.sentence;
    const hush = () => {
      mute(keyOf(item), true);
      redraw();
    };
    const label = `Mute: ${item.sentence}`;
    const age = `for ${duration(Math.max(0, Date.now() - item.since_ms))}`;
    return h(
      "li",
      { class: kind },
      icon(kind),
      h("span", { class: "visually-hidden" }, item.severity, ": "),
      h("span", null, text, " ", h("span", { class: "hint", title: `since ${time(item.since_ms)}` }, age)),
      h("button", { type: "button", class: "plain", "aria-label": label, title: label, on: { click: hush } }, icon("close")),
    );
  });
  return h(
    "section",
    { class: "card" },
    h("h2", null, plural(shown.length, "problem")),
    h("ul", { class: "problems" }, lines),
    more,
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
    ["Partitions", count(now.partitions), `${note}; ${count(now.internal_partitions)} internal ones besides`, unwell[0] ? unwell[2] : ""],
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
