/** Clients: connections with the software behind them, slow requests, open transactions, and quotas. */

import { change, get } from "../parts/api.js";
import { formDialog } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { ago, bytes, count, duration, milliseconds, time, topicPath } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { badge, empty, emptyFor, remark } from "../parts/notice.js";
import { action, head } from "../parts/page.js";
import { every } from "../parts/router.js";
import { plainTable, Table } from "../parts/table.js";
import { tabs } from "../parts/tabs.js";
import { toast } from "../parts/toast.js";
import { quotas } from "./quotas.js";

const REFRESH_MS = 5000;
const SHOWN_APIS = 4;

/** The tabs and their addresses; the first is the page itself. */
const SECTIONS = [
  ["Connections", "/clients", connections],
  ["Slow requests", "/clients?show=slow", slow],
  ["Transactions", "/clients?show=transactions", transactions],
  ["Quotas", "/clients?show=quotas", quotas],
];

/** @param {import("../parts/router.js").View} view */
export default async function clients(view) {
  const show = view.query.get("show");
  const [, current, section] = SECTIONS.find(([, address]) => address.endsWith(`show=${show}`)) ?? SECTIONS[0];
  view.root.append(head(view, "Clients"), tabs(SECTIONS, current, "About clients"));
  await section(view);
}

async function connections(view) {
  const table = new Table({
    view,
    label: "Connections",
    search: "Search client ids, hosts, software, users",
    sort: "-requests",
    columns: CONNECTIONS,
    load: (query, signal) => get("/api/clients", query, signal),
    empty: () =>
      emptyFor(view.session, "connections", () =>
        empty("No connections are known", "Only a kafkalite broker reports its connections."),
      ),
  });
  view.root.append(table.element);
  await every(REFRESH_MS, () => table.refresh(), view.signal);
}

const CONNECTIONS = [
  { title: "Client id", sort: "client_id", class: "name", cell: (row) => h("bdi", null, row.client_id ?? "–") },
  {
    title: "Address",
    sort: "host",
    wide: true,
    cell: (row) => [
      h("code", null, `${row.host}:${row.port}`),
      row.is_encrypted && h("span", { title: "Encrypted", class: "muted" }, " ", icon("lock")),
    ],
  },
  {
    title: "Software",
    sort: "software",
    cell: (row) =>
      row.software
        ? [
            h("div", { class: "nowrap" }, h("bdi", null, row.software)),
            h("div", { class: "hint nowrap" }, h("bdi", null, row.software_version)),
          ]
        : "–",
  },
  { title: "User", wide: true, cell: (row) => h("bdi", null, (row.user ?? "–").replace(/^User:/, "")) },
  { title: "Broker", sort: "broker", number: true, wide: true, cell: (row) => row.broker },
  { title: "Requests", sort: "requests", number: true, descending: true, cell: (row) => count(row.requests) },
  { title: "Requests", wide: true, cell: (row) => apis(row.apis) },
  {
    title: "Connected",
    sort: "connected_ms",
    wide: true,
    descending: true,
    cell: (row) => h("span", { class: "nowrap", title: time(row.connected_ms) }, ago(row.connected_ms)),
  },
  { title: "Idle", number: true, wide: true, cell: (row) => duration(row.idle_ms) },
];

function apis(counts) {
  const sorted = Object.entries(counts ?? {}).sort((one, other) => other[1] - one[1]);
  const said = sorted.map(([name, number]) => `${name} ${count(number)}`);
  return h(
    "span",
    { class: "hint", title: said.join("\n") },
    said.slice(0, SHOWN_APIS).join(", "),
    sorted.length > SHOWN_APIS && " …",
  );
}

async function slow(view) {
  const content = h("div");
  view.root.append(content);
  const columns = [
    { title: "Took", number: true, cell: (row) => h("b", null, milliseconds(row.took_ms)) },
    { title: "Request", cell: (row) => [row.api, " ", h("span", { class: "muted" }, `v${row.version}`)] },
    { title: "Client id", class: "name", cell: (row) => h("bdi", null, row.client_id ?? "–") },
    { title: "Host", wide: true, cell: (row) => h("code", null, row.host) },
    { title: "Broker", number: true, wide: true, cell: (row) => row.broker },
    { title: "In", number: true, wide: true, cell: (row) => bytes(row.bytes_in) },
    { title: "Out", number: true, wide: true, cell: (row) => bytes(row.bytes_out) },
    { title: "Began", cell: (row) => time(row.began_ms) },
  ];
  await every(
    REFRESH_MS,
    async () => {
      const { items, known } = await get("/api/requests", {}, view.signal);
      const lacks = view.session.lacks && `You may not see slow requests: you lack ${view.session.lacks}.`;
      const none = lacks ? lacks : known ? "No slow requests lately." : "Only a kafkalite broker reports its slow requests.";
      replace(content, plainTable("Slow requests", columns, items, none));
    },
    view.signal,
  );
}

async function transactions(view) {
  const table = new Table({
    view,
    label: "Transactions",
    search: "Search transactional ids",
    columns: [
      { title: "Transactional id", class: "name", cell: (row) => h("bdi", null, row.transactional_id) },
      { title: "State", cell: (row) => badge(row.state === "Ongoing" ? "warning" : "quiet", row.state) },
      { title: "Open for", number: true, cell: openFor },
      { title: "Timeout", number: true, wide: true, cell: (row) => duration(row.timeout_ms) },
      {
        title: "Producer",
        wide: true,
        cell: (row) => `id ${row.producer_id}${row.producer_epoch === null ? "" : `, epoch ${row.producer_epoch}`}`,
      },
      { title: "Partitions", wide: true, cell: places },
      { title: "Coordinator", number: true, wide: true, cell: (row) => `broker ${row.coordinator}` },
      {
        title: "Actions",
        hidden: true,
        cell: (row) =>
          row.can_abort && action(view.session, "stop", "Abort", () => abort(row).then((done) => done && table.refresh())),
      },
    ],
    load: (query, signal) => get("/api/transactions", { q: query.q, page: query.page }, signal),
    empty: () => empty("No transactions", "A producer with a transactional.id appears here."),
  });
  view.root.append(table.element);
  await every(REFRESH_MS, () => table.refresh(), view.signal);
}

const SHOWN_PLACES = 4;

/** The partitions of a transaction; each leads to its producers. */
function places(row) {
  const shown = (row.partitions ?? []).slice(0, SHOWN_PLACES);
  const more = (row.partitions?.length ?? 0) - shown.length;
  const links = shown.map(({ topic, partition }) => [
    h("a", { href: `${topicPath(topic, "producers")}?partition=${partition}` }, `${topic}-${partition}`),
    " ",
  ]);
  return row.partitions === null ? "–" : [links, more > 0 && h("span", { class: "hint" }, `and ${count(more)} more`)];
}

async function abort(row) {
  const done = await formDialog({
    title: `Abort the transaction of ${row.transactional_id}`,
    body: remark(
      "Its records are discarded, and its producer is fenced: it gets an error at its next request, and must begin again.",
      "warning",
    ),
    action: "Abort",
    danger: true,
    submit: () => change("POST", "/api/transactions/abort", { transactional_id: row.transactional_id }),
  });
  if (done) toast(`The transaction of ${row.transactional_id} was aborted`);
  return done;
}

/** A transaction that has ended still has its start time. */
function openFor(row) {
  const isOpen = /^(Ongoing|Prepare)/.test(row.state) && row.started_ms > 0;
  return isOpen ? duration(Math.max(0, Date.now() - row.started_ms)) : h("span", { class: "muted" }, "–");
}
