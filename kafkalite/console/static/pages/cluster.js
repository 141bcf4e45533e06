/** The cluster: its brokers, their view of ZooKeeper, and a map of the leader and followers of each partition. */

import { get } from "../parts/api.js";
import { h, replace } from "../parts/element.js";
import { count, topicPath } from "../parts/format.js";
import { badge, empty, remark } from "../parts/notice.js";
import { action, figures, head } from "../parts/page.js";
import { every } from "../parts/router.js";
import { plainTable, Table } from "../parts/table.js";
import { elect, reassignments } from "./placement.js";

const REFRESH_MS = 10_000;
const DRAWN_PARTITIONS = 100;

/** @param {import("../parts/router.js").View} view */
export default async function cluster(view) {
  const parts = { moving: h("section"), figures: h("div"), brokers: h("div"), doubts: h("div"), legend: h("div") };
  const table = new Table({
    view,
    label: "Leaders of partitions",
    search: "Search topics",
    columns: [
      { title: "Topic", class: "name map-name", cell: (topic) => h("a", { href: topicPath(topic.name) }, topic.name) },
      { title: "Leaders of its partitions", cell: map },
    ],
    load: async (query, signal) => {
      const answer = await get("/api/cluster", { q: query.q, page: query.page, page_size: 30 }, signal);
      replace(parts.figures, numbers(answer));
      replace(parts.brokers, brokerTable(answer));
      replace(parts.doubts, doubts(answer));
      replace(parts.legend, legend(answer.brokers));
      reassignments(view, parts.moving).catch(() => replace(parts.moving)); // an old broker lists none
      return { ...answer, items: answer.topics };
    },
    href: (topic) => topicPath(topic.name),
    empty: (q) => empty(q ? `No topic has “${q}” in its name` : "No topics yet"),
  });
  view.root.append(
    head(view, "Cluster", { actions: action(view.session, "cluster", "Elect leaders", () => elect(null).then(() => table.refresh())) }),
    parts.figures,
    parts.doubts,
    parts.brokers,
    parts.moving,
    h("h2", { class: "section-title" }, "Leaders of partitions"),
    parts.legend,
    table.element,
  );
  await every(REFRESH_MS, () => table.refresh(), view.signal);
}

function numbers(answer) {
  const zookeeper = answer.zookeeper
    ? [
        [
          "ZooKeeper",
          h("code", { class: "small-figure" }, answer.zookeeper.connect),
          `transaction ${hexadecimal(answer.zookeeper.transaction)}`,
        ],
      ]
    : [];
  return figures([
    ["Brokers", count(answer.brokers.length), null],
    [
      "Controller",
      answer.controller_id ?? "none",
      answer.controller_epoch !== null && `epoch ${count(answer.controller_epoch)}`,
      answer.controller_id === null ? "error" : "",
    ],
    ["Topics", count(answer.total), null],
    ...zookeeper,
    [
      "Cluster id",
      h("code", { class: "small-figure" }, answer.cluster_id),
      answer.kind === "kafka" ? "Apache Kafka" : null,
    ],
  ]);
}

function brokerTable(answer) {
  const columns = [
    {
      title: "Broker",
      cell: (broker) => [
        h("span", { class: `broker-dot broker-${colourOf(broker.id)}`, "aria-hidden": "true" }),
        h("a", { href: `/cluster/brokers/${broker.id}`, title: "Settings of this broker" }, h("b", null, broker.id)),
        " ",
        broker.is_controller && badge("accent", "controller"),
      ],
    },
    { title: "Address", cell: (broker) => h("code", null, `${broker.host}:${broker.port}`) },
    { title: "Rack", cell: (broker) => broker.rack ?? "–" },
    ...(answer.zookeeper ? OF_ZOOKEEPER : []),
  ];
  return plainTable("Brokers", columns, answer.brokers);
}

/** As ZooKeeper's own log writes its transactions. */
const hexadecimal = (number) => (number === null || number < 0 ? "–" : `0x${number.toString(16)}`);

const OF_ZOOKEEPER = [
  {
    title: "At ZooKeeper",
    cell: (broker) =>
      broker.zookeeper_state === null
        ? h("span", { class: "muted" }, "unknown")
        : broker.zookeeper_state === "registered"
          ? badge("ok", "registered")
          : [badge("warning", "not registered"), h("p", { class: "hint" }, broker.zookeeper_state)],
  },
  {
    title: "Epoch",
    number: true,
    help: "The ZooKeeper transaction of its registration: grows with each start and each new session",
    cell: (broker) => hexadecimal(broker.epoch),
  },
  {
    title: "Registration",
    number: true,
    wide: true,
    help: "The number under which its fetches count (KIP-903)",
    cell: (broker) => count(broker.registration),
  },
  {
    title: "Has seen",
    number: true,
    wide: true,
    help: "The last transaction of ZooKeeper that this broker has read",
    cell: (broker) => hexadecimal(broker.zookeeper_transaction),
  },
  { title: "Logs", wide: true, cell: logs },
];

function logs(broker) {
  if (broker.is_stopping) return badge("warning", "stopping");
  if (broker.is_intact === null) return "–";
  const why = "When it registered, it could not guarantee that its logs were complete: a first start, or one after a crash";
  return broker.is_intact ? "whole" : h("span", { class: "muted", title: why }, "not guaranteed");
}

/** Warnings where brokers have different views of the cluster. */
function doubts({ brokers, controller_id: controller }) {
  const ids = brokers.map((broker) => broker.id);
  const lines = brokers.flatMap((broker) => {
    const others = (broker.sees_brokers ?? ids).filter((id) => !ids.includes(id));
    const unseen = ids.filter((id) => !(broker.sees_brokers ?? ids).includes(id));
    return [
      broker.zookeeper_state !== null &&
        broker.sees_controller !== controller &&
        `Broker ${broker.id} has ${broker.sees_controller ?? "none"} as the controller, not ${controller ?? "none"}.`,
      others.length > 0 && `Broker ${broker.id} has brokers that are not in the cluster: ${others.join(", ")}.`,
      unseen.length > 0 && `Broker ${broker.id} lacks ${unseen.join(", ")}.`,
    ].filter(Boolean);
  });
  return lines.length ? remark(lines.map((line) => h("div", null, line)), "warning") : null;
}

/** The colour of a broker: one of eight by its id, so that it does not depend on other brokers. */
const colourOf = (id) => Math.abs(id) % 8;

function map(topic) {
  const shown = topic.partitions.slice(0, DRAWN_PARTITIONS);
  const more = topic.partitions.length - shown.length;
  return h(
    "div",
    { class: "map" },
    shown.map((partition) => cell(partition)),
    more > 0 && h("a", { href: topicPath(topic.name), class: "hint" }, `and ${count(more)} more`),
  );
}

function cell(partition) {
  const missing = partition.replicas.filter((id) => !partition.isr.includes(id));
  const state = partition.leader === null ? "no-leader" : missing.length ? "not-in-sync" : "";
  const said = [
    `Partition ${partition.partition}: `,
    partition.leader === null ? "no leader" : `led by broker ${partition.leader}, epoch ${partition.leader_epoch}`,
    `; replicas ${partition.replicas.join(", ")}; in sync ${partition.isr.join(", ") || "none"}`,
  ].join("");
  const color = partition.leader === null ? "none" : colourOf(partition.leader);
  const text = partition.leader === null ? "!" : partition.leader;
  return h("span", { class: `map-cell broker-${color} ${state}`, title: said, role: "img", "aria-label": said }, text);
}

/** @param {any[]} brokers the first of them is the example */
function legend(brokers) {
  const one = brokers[0]?.id ?? 1;
  return h(
    "div",
    { class: "strip-legend" },
    h(
      "span",
      null,
      h("span", { class: `map-cell broker-${colourOf(one)}`, "aria-hidden": "true" }, one),
      ` led by broker ${one}, all replicas in sync`,
    ),
    h(
      "span",
      null,
      h("span", { class: `map-cell broker-${colourOf(one)} not-in-sync`, "aria-hidden": "true" }, one),
      " a replica is not in sync",
    ),
    h("span", null, h("span", { class: "map-cell broker-none no-leader", "aria-hidden": "true" }, "!"), " no leader"),
  );
}
