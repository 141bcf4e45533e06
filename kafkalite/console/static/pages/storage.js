/** Storage: the directories of each broker drawn against their disks, and the largest partitions. */

import { get } from "../parts/api.js";
import { h, replace, s } from "../parts/element.js";
import { bytes, count, percent, plural, topicPath } from "../parts/format.js";
import { badge, notice, remark } from "../parts/notice.js";
import { figures, head } from "../parts/page.js";
import { every } from "../parts/router.js";
import { plainTable } from "../parts/table.js";

const REFRESH_MS = 15_000;

/** @param {import("../parts/router.js").View} view */
export default async function storage(view) {
  const content = h("div", { class: "stack" });
  view.root.append(head(view, "Storage"), content);
  await every(
    REFRESH_MS,
    async () => {
      const [stored, restarts] = await Promise.all([
        get("/api/storage", {}, view.signal),
        get("/api/restart", {}, view.signal),
      ]);
      const { lacks } = view.session;
      const unseen = lacks && remark(`You lack ${lacks}: log directories and their sizes are not known.`, "warning");
      replace(content, unseen, drawn(stored, restarts.items));
    },
    view.signal,
  );
}

function drawn({ directories, largest }, restarts) {
  const used = directories.reduce((sum, directory) => sum + (directory.used_bytes ?? 0), 0);
  const free = directories.reduce((sum, directory) => sum + (directory.free_bytes ?? 0), 0);
  const failed = directories.filter((directory) => directory.error);
  return [
    figures([
      [
        "Logs",
        bytes(used),
        plural(
          directories.reduce((sum, one) => sum + one.partitions, 0),
          "replica",
        ),
      ],
      [
        "Directories",
        count(directories.length),
        failed.length ? `${count(failed.length)} failed` : "all in use",
        failed.length ? "error" : "",
      ],
      ["Free", bytes(free), "on their disks"],
    ]),
    h("div", { class: "cards" }, directories.map(card)),
    h("h2", { class: "section-title" }, "Effects of a restart"),
    plainTable("Effects of a restart", RESTARTS, restarts, "No brokers."),
    h("h2", { class: "section-title" }, "Largest partitions"),
    largestTable(largest, directories),
  ];
}

const RESTARTS = [
  { title: "Broker", cell: (row) => h("b", null, row.broker) },
  {
    title: "While it is down",
    cell: (row) => {
      const lines = [
        row.handed_over && `${plural(row.handed_over, "partition")} led by others`,
        row.refusing &&
          h(
            "span",
            { class: "warning-text", title: names(row.refusing_names, row.refusing) },
            `${plural(row.refusing, "partition")} without acks=all: too few in-sync replicas`,
          ),
        row.unavailable &&
          h(
            "span",
            { class: "warning-text", title: names(row.unavailable_names, row.unavailable) },
            `${plural(row.unavailable, "partition")} unavailable: no other in-sync replica`,
          ),
      ].filter(Boolean);
      return lines.length ? lines.map((line) => h("div", null, line)) : "nothing changes";
    },
  },
  {
    title: "After a clean stop",
    wide: true,
    cell: (row) => (row.directories === null ? "–" : "no log is read"),
  },
  {
    title: "After a crash",
    help: "Segments behind the recovery point are checked record by record",
    cell: afterCrash,
  },
];

const names = (shown, total) => shown.join("\n") + (total > shown.length ? `\nand ${total - shown.length} more` : "");

function afterCrash(row) {
  if (row.directories === null) return h("span", { class: "muted" }, "unknown");
  const sum = (name) => row.directories.reduce((total, one) => total + one[name], 0);
  if (!sum("logs")) return "no log is read";
  const threads = ` by ${plural(row.threads, "thread")} for each directory`;
  return [
    `${plural(sum("logs"), "log")} of ${count(sum("all_logs"))}: ${bytes(sum("size_bytes"))} in ${plural(sum("segments"), "segment")} are read`,
    h("span", { class: "hint wide-only" }, threads),
  ];
}

/** Logs, other files and free room of a disk, to scale. */
function card(directory) {
  const title = h("h2", null, "Broker ", directory.broker, " ", h("code", null, directory.path));
  if (directory.error) return h("section", { class: "card" }, title, notice({ message: directory.error }));
  const total = directory.total_bytes;
  const others = total === null ? null : Math.max(0, total - (directory.free_bytes ?? 0) - directory.used_bytes);
  const parts =
    total === null
      ? []
      : [
          ["logs", directory.used_bytes, "Logs"],
          ["others", others, "Other files"],
          ["free", directory.free_bytes, "Free"],
        ];
  let x = 0;
  const bars = parts.map(([kind, size, name]) => {
    const width = (size / total) * 1000;
    const bar = s(
      "rect",
      { x, y: 0, width: kind === "logs" ? Math.max(2, width) : width, height: 16, class: `disk-${kind}` },
      s("title", null, `${name}: ${bytes(size)}`),
    );
    x += width;
    return bar;
  });
  const legend = parts.map(([kind, size, name]) => h("span", { class: `disk-key ${kind}` }, `${name} ${bytes(size)}`));
  const fullness = total === null ? null : 1 - directory.free_bytes / total;
  return h(
    "section",
    { class: "card" },
    h(
      "div",
      { class: "part-head" },
      title,
      fullness !== null &&
        badge(fullness > 0.95 ? "error" : fullness > 0.85 ? "warning" : "quiet", `${percent(fullness)} full`),
    ),
    total !== null &&
      s(
        "svg",
        {
          class: "disk-bar",
          viewBox: "0 0 1000 16",
          preserveAspectRatio: "none",
          role: "img",
          "aria-label": `${percent(fullness)} of the disk is used`,
        },
        bars,
      ),
    h("div", { class: "strip-legend" }, legend, h("span", null, plural(directory.partitions, "replica"))),
  );
}

function largestTable(items, directories) {
  const top = Math.max(1, ...items.map((item) => item.size_bytes));
  const columns = [
    {
      title: "Partition",
      class: "name",
      cell: (item) =>
        h(
          "a",
          { href: `${topicPath(item.topic, "segments")}${item.partition ? `?partition=${item.partition}` : ""}` },
          `${item.topic}-${item.partition}`,
        ),
    },
    { title: "Broker", number: true, cell: (item) => item.broker },
    { title: "Size", number: true, cell: (item) => bytes(item.size_bytes) },
    {
      title: "Beside the largest",
      hidden: true,
      class: "bar-cell",
      wide: true,
      cell: (item) =>
        h("span", { class: "size-bar", "aria-hidden": "true", style: { width: `${(item.size_bytes / top) * 100}%` } }),
    },
    { title: "Segments", number: true, cell: (item) => count(item.segments) },
    { title: "Directory", wide: true, cell: (item) => h("code", { class: "muted" }, item.directory) },
  ];
  const isOneEach = new Set(directories.map((directory) => directory.broker)).size === directories.length;
  if (isOneEach) columns.pop(); // the cards above show it
  return plainTable("Largest partitions", columns, items, "No partitions yet.");
}
