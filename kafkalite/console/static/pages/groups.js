/** All consumer groups with their lag: in records, and in offsets as other tools count it. */

import { get } from "../parts/api.js";
import { h } from "../parts/element.js";
import { count, groupName, groupPath, plural } from "../parts/format.js";
import { badge, empty, emptyFor } from "../parts/notice.js";
import { head } from "../parts/page.js";
import { every } from "../parts/router.js";
import { Table } from "../parts/table.js";

const REFRESH_MS = 5000;

const STATES = {
  stable: "ok",
  preparingrebalance: "warning",
  completingrebalance: "warning",
  assigning: "warning",
  reconciling: "warning",
  dead: "error",
  empty: "quiet",
};
const WORDS = { preparingrebalance: "waits for members", completingrebalance: "waits for the assignment" };

/** @param {string} state as Kafka writes it */
export function stateBadge(state) {
  const key = state.toLowerCase().replaceAll(/[^a-z]/g, "");
  return badge(STATES[key] ?? "quiet", WORDS[key] ?? state, state);
}

const COLUMNS = [
  {
    title: "Group",
    sort: "group_id",
    class: "name",
    cell: (group) => h("a", { href: groupPath(group.group_id) }, h("bdi", null, groupName(group.group_id))),
  },
  { title: "State", sort: "state", cell: (group) => stateBadge(group.state) },
  {
    title: "Type",
    sort: "group_type",
    wide: true,
    help: "The protocol: members share partitions among themselves (classic), or the broker assigns them (consumer)",
    cell: (group) => group.group_type ?? "–",
  },
  { title: "Members", sort: "members", number: true, wide: true, descending: true, cell: (group) => count(group.members) },
  { title: "Topics", number: true, wide: true, cell: (group) => count(group.topics.length) },
  {
    title: "Lag in records",
    sort: "lag_records",
    number: true,
    descending: true,
    help: "Records that the group would get: without compacted and aborted records and markers",
    cell: (group) => [h("b", null, count(group.lag_records)), uncommitted(group)],
  },
  {
    title: "Lag in offsets",
    sort: "lag",
    number: true,
    descending: true,
    wide: true,
    help: "The end less the committed offset, as Kafka's tools show it: it may never reach zero",
    cell: (group) => [
      group.beyond_end > 0 && badge("warning", "beyond the end", `of ${plural(group.beyond_end, "partition")}`),
      " ",
      h("span", { class: "muted" }, count(group.lag)),
    ],
  },
  { title: "Coordinator", number: true, wide: true, cell: (group) => group.coordinator ?? "–" },
];

function uncommitted(group) {
  if (!group.uncommitted) return null;
  const title = `${plural(group.uncommitted, "partition")} without a committed offset: auto.offset.reset decides there`;
  return h("div", { class: "hint", title }, `+ ${plural(group.uncommitted, "partition")} uncommitted`);
}

const TYPES = ["classic", "consumer", "share", "streams"];

/** A choice of one type, or of all. @param {string} chosen */
export function typeFilter(chosen) {
  const option = (value, text) => h("option", { value, selected: value === chosen }, text);
  const element = h("select", { "aria-label": "Type" }, option("", "All types"), TYPES.map((type) => option(type, type)));
  element.value = TYPES.includes(chosen) ? chosen : "";
  return element;
}

/** @param {import("../parts/router.js").View} view */
export default async function groups(view) {
  const type = typeFilter(view.query.get("type") ?? "");
  const table = new Table({
    view,
    label: "Groups",
    controls: type,
    search: "Search groups",
    sort: "group_id",
    columns: COLUMNS,
    href: (group) => groupPath(group.group_id),
    load: (query, signal) => get("/api/groups", { ...query, type: type.value }, signal),
    empty: (q) =>
      q
        ? empty(`No group has “${q}” in its name`)
        : emptyFor(view.session, "all groups", () =>
            empty("No groups yet", "A group appears when a consumer with a group.id joins or commits an offset."),
          ),
  });
  type.addEventListener("change", () => {
    view.update({ type: type.value });
    table.show({ page: 1 });
  });
  view.root.append(head(view, "Groups"), table.element);
  await every(REFRESH_MS, () => table.refresh(), view.signal);
}
