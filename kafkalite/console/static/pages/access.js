/** Access: entries of access control lists, and users with SCRAM passwords. */

import { change, get } from "../parts/api.js";
import { field, formDialog, select } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { count } from "../parts/format.js";
import { badge, empty, remark } from "../parts/notice.js";
import { action, facts, head } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { tabs } from "../parts/tabs.js";
import { toast } from "../parts/toast.js";

const SECTIONS = [
  ["Access control lists", "/access", lists],
  ["Users", "/access?show=users", users],
];
const RESOURCES = ["topic", "group", "cluster", "transactional_id", "delegation_token", "user"];
const OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "ALL"];
const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256"];
const pairs = (names) => names.map((name) => [name, name]);

/** @param {import("../parts/router.js").View} view */
export default async function access(view) {
  const show = view.query.get("show");
  const [, current, section] = SECTIONS.find(([, address]) => show && address.endsWith(`show=${show}`)) ?? SECTIONS[0];
  view.root.append(head(view, "Access"), tabs(SECTIONS, current, "About access"));
  await section(view);
}

function lists(view) {
  let isOff = false;
  const again = (done) => done && table.refresh();
  const table = new Table({
    view,
    label: "Entries",
    search: "Search principals, names, hosts, operations",
    sort: "principal",
    controls: action(view.session, "plus", "Add entry", () => add().then(again)),
    columns: [
      { title: "Principal", sort: "principal", class: "name", cell: (row) => h("bdi", null, row.principal) },
      { title: "", hidden: true, cell: (row) => badge(row.permission === "DENY" ? "error" : "ok", row.permission.toLowerCase()) },
      { title: "Operation", sort: "operation", cell: (row) => h("code", null, row.operation) },
      { title: "Resource", sort: "name", cell: (row) => [h("span", { class: "muted" }, row.resource, " "), h("bdi", null, row.name), row.pattern === "prefixed" && [" ", badge("quiet", "prefix")]] },
      { title: "Host", sort: "host", wide: true, cell: (row) => row.host },
      { title: "Remove", hidden: true, cell: (row) => action(view.session, "trash", "Remove", () => remove(row).then(again), "quiet") },
    ],
    load: async (query, signal) => {
      const answer = await get("/api/acls", query, signal);
      isOff = answer.is_off;
      return answer;
    },
    empty: (q) =>
      isOff
        ? empty("No authorizer", "Every client may do everything: authorizer.class.name is not set.")
        : empty(q ? "No entry matches" : "No entries", q ? null : "Clients that are no super users may do nothing."),
  });
  view.root.append(table.element);
  return table.refresh();
}

async function add() {
  const resource = select("resource", pairs(RESOURCES));
  const name = field("Name", h("input", { name: "name", autocomplete: "off", placeholder: "orders, or * for every one" }));
  const pattern = field("Names are", select("pattern", [["literal", "whole names"], ["prefixed", "prefixes"]]));
  resource.addEventListener("change", () => (name.hidden = pattern.hidden = resource.value === "cluster"));
  const done = await formDialog({
    title: "Add an entry",
    action: "Add",
    wide: true,
    body: [
      h("div", { class: "fields" }, field("Principal", h("input", { name: "principal", required: true, placeholder: "User:ann", autocomplete: "off" })), field("Permission", select("permission", [["ALLOW", "allow"], ["DENY", "deny"]]))),
      h("div", { class: "fields" }, field("Operation", select("operation", pairs(OPERATIONS))), field("Host", h("input", { name: "host", value: "*", required: true, autocomplete: "off" }), "* is every host")),
      h("div", { class: "fields" }, field("Resource", resource), name, pattern),
    ],
    submit: (data) => {
      const entry = Object.fromEntries(data);
      if (entry.resource === "cluster") Object.assign(entry, { name: "kafka-cluster", pattern: "literal" });
      if (!entry.name) throw new Error("Write the name of the resource, or * for every one");
      return change("POST", "/api/acls", entry);
    },
  });
  if (done) toast("The entry was added");
  return done;
}

async function remove(row) {
  const done = await formDialog({
    title: "Remove this entry",
    body: [
      remark(row.permission === "DENY" ? "What it denies may be allowed by other entries then." : "What it allows is denied then, unless another entry allows it.", "warning"),
      facts([["Principal", row.principal], ["Operation", `${row.permission} ${row.operation}`], ["Resource", `${row.resource} ${row.name}`], ["Host", row.host]]),
    ],
    action: "Remove it",
    danger: true,
    submit: () => change("POST", "/api/acls/remove", row),
  });
  if (done) toast("The entry was removed");
  return done;
}

function users(view) {
  const again = (done) => done && table.refresh();
  const table = new Table({
    view,
    label: "Users",
    search: "Search users",
    sort: "user",
    controls: action(view.session, "plus", "Add user", () => put(null).then(again)),
    columns: [
      { title: "User", sort: "user", class: "name", cell: (row) => h("bdi", null, row.user) },
      { title: "Mechanisms", cell: (row) => row.mechanisms.map((each) => h("div", null, each.mechanism, " ", h("span", { class: "hint" }, `${count(each.iterations)} iterations`))) },
      {
        title: "Change",
        hidden: true,
        cell: (row) => [
          action(view.session, "edit", "Set password", () => put(row.user).then(again), "quiet"),
          action(view.session, "trash", "Remove", () => drop(row.user).then(again), "quiet"),
        ],
      },
    ],
    load: (query, signal) => get("/api/users", query, signal),
    empty: (q) => empty(q ? "No user matches" : "No SCRAM users", q ? null : "Users of PLAIN, tokens, certificates and Kerberos are not listed by brokers."),
  });
  view.root.append(table.element);
  return table.refresh();
}

async function put(user) {
  const done = await formDialog({
    title: user === null ? "Add a user" : `Set the password of ${user}`,
    action: user === null ? "Add" : "Set",
    body: [
      user === null && field("Name", h("input", { name: "name", required: true, autocomplete: "off" })),
      field("Password", h("input", { name: "password", type: "password", required: true, autocomplete: "new-password" })),
      field("Mechanism", select("mechanism", pairs(MECHANISMS))),
    ],
    submit: (data) => change("POST", "/api/users", { ...Object.fromEntries(data), ...(user !== null && { name: user }) }),
  });
  if (done) toast(done.warning ? `Saved, but the password ${done.warning}` : "Saved", done.warning ? "error" : undefined);
  return done;
}

async function drop(user) {
  const done = await formDialog({
    title: `Remove ${user}`,
    body: remark("The user cannot log in any more; open connections stay until they end.", "warning"),
    action: "Remove it",
    danger: true,
    submit: () => change("DELETE", `/api/users?name=${encodeURIComponent(user)}`),
  });
  if (done) toast(`${user} was removed`);
  return done;
}
