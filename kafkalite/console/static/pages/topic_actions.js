/** Actions on a topic: each warns of the data that it deletes, and a deletion requires the topic's name. */

import { change, get } from "../parts/api.js";
import { field, formDialog } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { bytes, groupName, numbersOf, plural, topicPath } from "../parts/format.js";
import { remark } from "../parts/notice.js";
import { action, lacking } from "../parts/page.js";
import { toast } from "../parts/toast.js";
import { produce } from "./produce.js";

/** @param {import("../parts/router.js").View} view @param {any} topic */
export function topicActions(view, topic) {
  const { session } = view;
  const lacks = (operation) => lacking(topic, operation, topic.name);
  return [
    action(session, "plus", "Produce", async () => (await produce(topic)) && view.reload(), "", lacks("WRITE")),
    action(session, "topics", "Add partitions", () => addPartitions(topic, view), "", lacks("ALTER")),
    action(session, "cluster", "Elect leaders", async () => (await import("./placement.js")).elect(topic)),
    action(session, "stop", "Empty", () => emptyTopic(topic, view), "", lacks("DELETE")),
    action(session, "trash", "Delete", () => deleteTopic(topic, view), "danger", lacks("DELETE")),
  ];
}

const api = (topic) => `/api/topics/${encodeURIComponent(topic.name)}`;

async function addPartitions(topic, view) {
  const input = h("input", {
    name: "count",
    type: "number",
    min: topic.partitions + 1,
    max: 100_000,
    value: topic.partitions + 1,
    required: true,
  });
  const help = `It has ${plural(topic.partitions, "partition")} now`;
  const warning =
    "New records may get another partition than older ones with the same key, and partitions cannot be removed.";
  const done = await formDialog({
    title: `Add partitions to ${topic.name}`,
    body: [remark(warning, "warning"), field("Partitions in all", input, help)],
    action: "Add",
    submit: (data) => change("POST", `${api(topic)}/partitions`, { count: Number(data.get("count")) }),
  });
  if (!done) return;
  toast(`${topic.name} has ${plural(done.count, "partition")} now`);
  view.go(topicPath(topic.name));
}

/** Deletes records, of chosen partitions before an offset. @param {{ partition?: number, before?: number }} [first] */
export async function emptyTopic(topic, view, { partition = "", before = "" } = {}) {
  const now = await latest(topic);
  const done = await formDialog({
    title: `Empty ${topic.name}`,
    body: [
      remark(
        loss(
          now,
          "will be deleted, unless fewer are chosen below. The topic, its configuration and its offsets stay: the next record gets the next offset.",
        ),
        "warning",
      ),
      h(
        "div",
        { class: "fields" },
        field("Partitions", h("input", { name: "partitions", value: partition, placeholder: "all, or 0, 2-4" })),
        field("Before offset", h("input", { name: "before", type: "number", min: 0, value: before, placeholder: "the end" })),
      ),
      nameAgain(topic),
    ],
    action: "Empty it",
    danger: true,
    submit: (data) =>
      named(data, topic) && change("POST", `${api(topic)}/empty`, emptied(data)),
  });
  if (!done) return;
  toast(`Records of ${topic.name} were deleted`);
  view.go(topicPath(topic.name));
}

async function deleteTopic(topic, view) {
  const [now, { items: groups }] = await Promise.all([latest(topic), get(`${api(topic)}/groups`)]);
  const readers =
    groups.length &&
    h(
      "p",
      null,
      `${plural(groups.length, "group reads", "groups read")} it: ${groups
        .slice(0, 8)
        .map((group) => groupName(group.group_id))
        .join(", ")}`,
    );
  const done = await formDialog({
    title: `Delete ${topic.name}`,
    body: [
      remark([loss(now, "will be deleted, and the topic with them. This cannot be undone."), readers], "warning"),
      nameAgain(topic),
    ],
    action: "Delete it",
    danger: true,
    submit: (data) => named(data, topic) && change("DELETE", api(topic)),
  });
  if (!done) return;
  toast(`${topic.name} was deleted`);
  view.go("/topics");
}

/** The partitions and the offset of a deletion; null is all of them, and the end. @param {FormData} data */
function emptied(data) {
  const partitions = numbersOf(String(data.get("partitions")));
  const before = String(data.get("before"));
  return { partitions: partitions.length ? partitions : null, before_offset: before === "" ? null : Number(before) };
}

/** The present counts, not those of the page. */
const latest = (topic) => get(api(topic));

function loss(topic, rest) {
  const records =
    topic.records === null ? `up to ${plural(topic.offset_span, "record")}` : plural(topic.records, "record");
  return `${records} (${bytes(topic.size_bytes)}, ${plural(topic.partitions, "partition")}) ${rest}`;
}

function nameAgain(topic) {
  const input = h("input", { name: "name", autocomplete: "off", required: true, spellcheck: "false" });
  return field("Type the topic name to confirm", input, topic.name);
}

function named(data, topic) {
  if (data.get("name") !== topic.name) throw new Error(`That is not “${topic.name}”: nothing was changed.`);
  return true;
}
