/** Partitions moved to other brokers, and leaders elected. */

import { change, get } from "../parts/api.js";
import { field, formDialog, select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { numbersOf, plural, topicPath } from "../parts/format.js";
import { remark } from "../parts/notice.js";
import { action } from "../parts/page.js";
import { plainTable } from "../parts/table.js";
import { toast } from "../parts/toast.js";

/** Moves partitions of a topic. @param {any} topic @param {{ partition: number, replicas: number[] }} row */
export async function move(topic, row) {
  const { brokers } = await get("/api/cluster", { page_size: 1 });
  const ids = brokers.map(({ id }) => id).join(", ");
  const done = await formDialog({
    title: `Move partitions of ${topic.name}`,
    action: "Move",
    body: [
      remark("The new replicas copy the whole partition first; then the old ones are deleted."),
      field("Partitions", h("input", { name: "partitions", value: row.partition, required: true }), "0, or 0, 2-4"),
      field("Replicas", h("input", { name: "replicas", value: row.replicas.join(", "), required: true }), `brokers, the preferred leader first; there are ${ids}`),
    ],
    submit: (data) =>
      change("POST", "/api/reassignments", {
        topic: topic.name,
        partitions: numbersOf(String(data.get("partitions"))),
        replicas: String(data.get("replicas")).split(",").map((word) => numberOf(word)),
      }),
  });
  if (done) toast(`${plural(done.partitions.length, "partition")} of ${topic.name} will be moved`);
  return done;
}

function numberOf(word) {
  if (!/^\s*\d+\s*$/.test(word)) throw new Error(`“${word.trim()}” is not the id of a broker`);
  return Number(word);
}

/** Elects leaders, of a topic or of all. @param {{ name: string } | null} topic */
export async function elect(topic) {
  const kind = select("kind", [
    ["preferred", "the preferred replica, if it is in sync"],
    ["unclean", "any replica that is alive, with loss of records"],
  ]);
  const done = await formDialog({
    title: topic ? `Elect leaders of ${topic.name}` : "Elect preferred leaders",
    action: "Elect",
    danger: Boolean(topic),
    body: topic
      ? [remark("An unclean election deletes the records that the new leader does not have.", "warning"), field("Elect", kind)]
      : h("p", null, "Each partition gets its preferred leader, the first of its replicas, if that is in sync."),
    submit: (data) => change("POST", "/api/elections", { topic: topic?.name ?? null, kind: data.get("kind") ?? "preferred" }),
  });
  if (done) toast(`${plural(done.elected, "new leader")}${done.refusals.length ? `; ${done.refusals[0]}` : ""}`);
  return done;
}

/** The reassignments in progress, each with a button to cancel it. @param {import("../parts/router.js").View} view */
export async function reassignments(view, element) {
  const { items } = await get("/api/reassignments", {}, view.signal);
  const cancel = (row) =>
    change("POST", "/api/reassignments", { topic: row.topic, partitions: [row.partition], replicas: null });
  const columns = [
    { title: "Partition", class: "name", cell: (row) => h("a", { href: topicPath(row.topic) }, `${row.topic}-${row.partition}`) },
    { title: "Replicas", cell: (row) => row.replicas.join(", ") },
    { title: "Coming", cell: (row) => row.adding.join(", ") || "–" },
    { title: "Going", cell: (row) => row.removing.join(", ") || "–" },
    { title: "Cancel", hidden: true, cell: (row) => action(view.session, "stop", "Cancel", () => cancel(row).then(() => reassignments(view, element)), "quiet") },
  ];
  replace(element, items.length > 0 && [h("h2", { class: "section-title" }, "Moving partitions"), plainTable("Moving partitions", columns, items)]);
}
