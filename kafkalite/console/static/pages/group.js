/** One group: its lag over time and by partition, its members, and what a rebalance waits for; of a share group the
 * records in flight as well. */

import { change, get } from "../parts/api.js";
import { formDialog } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { count, groupName, groupQuery, isKnown, plural, shortCount, topicPath } from "../parts/format.js";
import { badge, remark } from "../parts/notice.js";
import { action, facts, figures, head, lacking } from "../parts/page.js";
import { Plot } from "../parts/plot.js";
import { repeat } from "../parts/router.js";
import { plainTable } from "../parts/table.js";
import { toast } from "../parts/toast.js";
import { memberColumns, topology, waiting } from "./group_members.js";
import { resetOffsets } from "./group_reset.js";
import { stateBadge } from "./groups.js";
import { SHARE_PARTITIONS, isShareGroup, recordsInFlight, shareFigures } from "./share_group.js";

const REFRESH_MS = 3000;
const SHOWN_PARTITIONS = 200;

/** @param {import("../parts/router.js").View} view */
export default async function groupPage(view) {
  const id = view.query.get("group_id") ?? "";
  const lag = new Plot("Lag", shortCount);
  const parts = {
    state: h("span"),
    wait: h("div"),
    figures: h("div"),
    members: h("section"),
    partitions: h("section"),
    records: h("section"),
  };
  let group = null;
  const actions = [
    action(view.session, "edit", "Reset offsets", async () => (await resetOffsets(group)) && load()),
    action(view.session, "trash", "Delete", () => deleteGroup(group, view), "danger"),
  ];
  const load = async () => {
    const [now, history] = await Promise.all([
      get(`/api/group?${groupQuery(id)}`, {}, view.signal),
      get(`/api/group/lag?${groupQuery(id)}`, {}, view.signal),
    ]);
    group = now;
    draw(parts, group, view, load);
    if (view.session.write) {
      block(actions[0], keptBecause(group, "READ"));
      block(actions[1], keptBecause(group, "DELETE"));
    }
    drawLag(lag, history);
  };
  await load();
  const before = h("a", { href: "/groups" }, "Groups");
  view.root.append(
    head(view, groupName(id), { before, after: parts.state, actions }),
    parts.wait,
    parts.figures,
    lag.element,
    parts.partitions,
    parts.records,
    parts.members,
  );
  repeat(REFRESH_MS, load, view.signal);
}

/** What the sum of lags leaves out. */
const unknownLag = ({ uncommitted }) =>
  uncommitted ? `+ ${plural(uncommitted, "partition")} without a committed offset, whose lag is unknown` : null;

/** The reason why a group keeps its offsets; null for one without members. */
const membersOf = ({ members }) => (members.length ? `${plural(members.length, "member")}: stop them first` : null);

/** The reason why the user cannot do it: a permission or members; null if nothing stands against it. */
const keptBecause = (group, operation) => lacking(group, operation, groupName(group.group_id)) ?? membersOf(group);

/** @param {HTMLElement} button @param {string | null} why */
function block(button, why) {
  button.disabled = why !== null;
  button.title = why ?? "";
}

function draw(parts, group, view, load) {
  const why = membersOf(group);
  replace(parts.state, stateBadge(group.state), " ", why && h("span", { class: "hint" }, `Reset and delete: ${why}.`));
  replace(parts.wait, waiting(group));
  replace(
    parts.figures,
    figures([
      ...(isShareGroup(group) ? shareFigures(group) : lagFigures(group)),
      ["Members", count(group.members.length), group.protocol || null],
      ...(isKnown(group.group_epoch)
        ? [["Group epoch", count(group.group_epoch), `target assignment: epoch ${group.target_epoch}`]]
        : []),
      ["Coordinator", group.coordinator ?? "–", [group.group_type, group.protocol_type].filter(Boolean).join(", ") || null],
    ]),
  );
  replace(
    parts.members,
    h("h2", { class: "section-title" }, "Members"),
    plainTable("Members", memberColumns(group), group.members, "No members: the group has no consumer now."),
    topology(group),
  );
  const shown = group.partitions.slice(0, SHOWN_PARTITIONS);
  const more =
    group.partitions.length > shown.length &&
    h(
      "p",
      { class: "hint" },
      `The first ${SHOWN_PARTITIONS} of ${plural(group.partitions.length, "partition")}, largest lag first.`,
    );
  replace(
    parts.partitions,
    h("h2", { class: "section-title" }, "Partitions"),
    isShareGroup(group)
      ? plainTable("Partitions", [...SHARE_PARTITIONS, reset(group, view, load)], byLag(shown), "No partition was read yet.")
      : plainTable("Partitions", [...PARTITIONS, reset(group, view, load)], byLag(shown), "No offsets are committed."),
    more,
  );
  if (isShareGroup(group)) replace(parts.records, recordsInFlight(group));
}

/** A column with a button that resets one partition. */
const reset = (group, view, load) => ({
  title: "Reset",
  hidden: true,
  cell: (row) => {
    const button = action(view.session, "edit", "Reset", async () => (await resetOffsets(group, row)) && load(), "quiet");
    button.setAttribute("aria-label", `Reset ${row.topic}-${row.partition}`);
    if (view.session.write) block(button, keptBecause(group, "READ"));
    return button;
  },
});

const lagFigures = (group) => [
  ["Lag in records", count(group.lag_records), unknownLag(group) ?? "records left to read"],
  ["Lag in offsets", count(group.lag), "end less committed offset, as Kafka's tools show it"],
];

const byLag = (partitions) =>
  [...partitions].sort((one, other) => (other.lag_records ?? other.lag ?? -1) - (one.lag_records ?? one.lag ?? -1));

const PARTITIONS = [
  { title: "Topic", class: "name", cell: (row) => h("a", { href: topicPath(row.topic) }, row.topic) },
  { title: "Partition", number: true, cell: (row) => row.partition },
  { title: "Committed", number: true, wide: true, cell: (row) => committed(row) },
  { title: "End", number: true, wide: true, cell: (row) => count(row.end_offset) },
  { title: "Lag in records", number: true, cell: (row) => h("b", null, count(row.lag_records)) },
  { title: "Lag in offsets", number: true, wide: true, cell: (row) => h("span", { class: "muted" }, count(row.lag)) },
  {
    title: "Read by",
    wide: true,
    cell: (row) =>
      row.member_id
        ? h("span", { class: "hint" }, h("bdi", null, row.member_id))
        : h("span", { class: "muted" }, "none"),
  },
];

function committed(row) {
  if (row.committed_offset === null) return h("span", { class: "muted" }, "nothing");
  const here = `${topicPath(row.topic, "messages")}?from=offset&partitions=${row.partition}&offset=${row.committed_offset}`;
  const outside = (word, bound) => [" ", badge("warning", word, `${bound}; auto.offset.reset decides where it resumes`)];
  const gone = row.committed_offset < row.start_offset && outside("deleted", `The log begins at ${row.start_offset}`);
  const isBeyond = isKnown(row.end_offset) && row.committed_offset > row.end_offset;
  const beyond = isBeyond && outside("beyond the end", `The log ends at ${row.end_offset}`);
  return [h("a", { href: here, title: "Show the messages from here on" }, count(row.committed_offset)), gone, beyond];
}

function drawLag(lag, history) {
  const points = (values) => history.times_ms.map((time, index) => [time, values[index] ?? null]);
  lag.draw([
    { name: "records", color: 1, points: points(history.lag_records) },
    { name: "offsets", color: 2, points: points(history.lag) },
  ]);
}

async function deleteGroup(group, view) {
  const what = plural(group.partitions.length, "partition");
  const effect = isShareGroup(group)
    ? `How far it has come in ${what} is forgotten. A group of this name then begins as share.auto.offset.reset says.`
    : `The committed offsets of ${what} are deleted. A consumer of this name then begins as auto.offset.reset says.`;
  const done = await formDialog({
    title: `Delete ${groupName(group.group_id)}`,
    body: [
      remark(effect, "warning"),
      facts([["Members", count(group.members.length)]]),
    ],
    action: "Delete it",
    danger: true,
    submit: () => change("DELETE", `/api/group?${groupQuery(group.group_id)}`),
  });
  if (!done) return;
  toast(`${groupName(group.group_id)} was deleted`);
  view.go("/groups");
}
