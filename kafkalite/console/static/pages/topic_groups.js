/** The groups that read a topic. */

import { get } from "../parts/api.js";
import { h } from "../parts/element.js";
import { count, groupName, groupPath } from "../parts/format.js";
import { plainTable } from "../parts/table.js";
import { stateBadge } from "./groups.js";

/** @param {import("../parts/router.js").View} view @param {any} topic */
export default async function topicGroups(view, topic) {
  const { items } = await get(`/api/topics/${encodeURIComponent(topic.name)}/groups`, {}, view.signal);
  const columns = [
    {
      title: "Group",
      class: "name",
      cell: (group) => h("a", { href: groupPath(group.group_id) }, h("bdi", null, groupName(group.group_id))),
    },
    { title: "State", cell: (group) => stateBadge(group.state) },
    { title: "Members", number: true, cell: (group) => count(group.members) },
    {
      title: "Lag in records",
      number: true,
      help: "Records that the group would get",
      cell: (group) => count(group.lag_records),
    },
    { title: "Lag in offsets", number: true, cell: (group) => h("span", { class: "muted" }, count(group.lag)) },
  ];
  view.root.append(
    plainTable(`Groups that read ${topic.name}`, columns, items, "No group has committed offsets of this topic."),
  );
}
