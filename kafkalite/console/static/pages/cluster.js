/** The cluster: its brokers, what ZooKeeper says, and a map of who leads and follows each partition. */

import { get } from "../parts/api.js";
import { h, replace } from "../parts/element.js";
import { count, topicPath } from "../parts/format.js";
import { badge, empty } from "../parts/notice.js";
import { figures, head } from "../parts/page.js";
import { every } from "../parts/router.js";
import { plainTable, Table } from "../parts/table.js";

const REFRESH_MS = 10_000;
const DRAWN_PARTITIONS = 100;

/** @param {import("../parts/router.js").View} view */
export default async function cluster(view) {
  const parts = { figures: h("div"), brokers: h("div") };
  let brokers = [];
  const table = new Table({
    view,
    label: "Who leads what",
    search: "Search topics",
    columns: [
      { title: "Topic", class: "name map-name", cell: (topic) => h("a", { href: topicPath(topic.name) }, topic.name) },
      { title: "Partitions: the leader's number, and where the replicas are", cell: (topic) => map(topic, brokers) },
    ],
    load: async (query, signal) => {
      const answer = await get("/api/cluster", { q: query.q, page: query.page, page_size: 30 }, signal);
      ({ brokers } = answer);
      replace(parts.figures, numbers(answer));
      replace(parts.brokers, brokerTable(answer));
      return { ...answer, items: answer.topics };
    },
    href: (topic) => topicPath(topic.name),
    empty: (q) => empty(q ? `No topic has “${q}” in its name` : "No topics yet"),
  });
  view.root.append(
    head(view, "Cluster"),
    parts.figures,
    parts.brokers,
    h("h2", { class: "section-title" }, "Who leads what"),
    legend(),
    table.element,
  );
  await every(REFRESH_MS, () => table.refresh(), view.signal);
}

function numbers(answer) {
  const zookeeper = answer.zookeeper
    ? [["ZooKeeper", answer.zookeeper.state, h("code", null, answer.zookeeper.connect)]]
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
        h("span", { class: `broker-dot broker-${position(answer.brokers, broker.id)}`, "aria-hidden": "true" }),
        h("b", null, broker.id),
        " ",
        broker.is_controller && badge("accent", "controller"),
      ],
    },
    { title: "Address", cell: (broker) => h("code", null, `${broker.host}:${broker.port}`) },
    { title: "Rack", cell: (broker) => broker.rack ?? "–" },
    { title: "Epoch", number: true, cell: (broker) => count(broker.epoch) },
  ];
  return plainTable("Brokers", columns, answer.brokers);
}

/** The colour of a broker: its place among them, eight colours in turn. */
const position = (brokers, id) =>
  Math.max(
    0,
    brokers.findIndex((broker) => broker.id === id),
  ) % 8;

function map(topic, brokers) {
  const shown = topic.partitions.slice(0, DRAWN_PARTITIONS);
  const more = topic.partitions.length - shown.length;
  return h(
    "div",
    { class: "map" },
    shown.map((partition) => cell(partition, brokers)),
    more > 0 && h("span", { class: "hint" }, `and ${count(more)} more`),
  );
}

function cell(partition, brokers) {
  const missing = partition.replicas.filter((id) => !partition.isr.includes(id));
  const state = partition.leader === null ? "no-leader" : missing.length ? "not-in-sync" : "";
  const said = [
    `Partition ${partition.partition}: `,
    partition.leader === null ? "no leader" : `led by broker ${partition.leader}, epoch ${partition.leader_epoch}`,
    `; replicas ${partition.replicas.join(", ")}; in sync ${partition.isr.join(", ") || "none"}`,
  ].join("");
  const color = partition.leader === null ? "none" : position(brokers, partition.leader);
  const text = partition.leader === null ? "!" : partition.leader;
  return h("span", { class: `map-cell broker-${color} ${state}`, title: said, role: "img", "aria-label": said }, text);
}

function legend() {
  return h(
    "div",
    { class: "strip-legend" },
    h(
      "span",
      null,
      h("span", { class: "map-cell broker-0", "aria-hidden": "true" }, "1"),
      " led by broker 1, all replicas in sync",
    ),
    h(
      "span",
      null,
      h("span", { class: "map-cell broker-0 not-in-sync", "aria-hidden": "true" }, "1"),
      " a replica is not in sync",
    ),
    h("span", null, h("span", { class: "map-cell broker-none no-leader", "aria-hidden": "true" }, "!"), " no leader"),
  );
}
