/** Resets the offsets of a group: first a preview with the number of records that are skipped or repeated. */

import { change } from "../parts/api.js";
import { field, formDialog, select, timeField } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { count, groupName, momentOf, plural } from "../parts/format.js";
import { notice, remark } from "../parts/notice.js";
import { plainTable } from "../parts/table.js";
import { toast } from "../parts/toast.js";

const TARGETS = [
  ["earliest", "the beginning"],
  ["latest", "the end"],
  ["time", "the first record from a time on"],
  ["offset", "an offset"],
  ["shift", "shifted by"],
];
const SHOWN = 100;

/** @param {any} group @returns {Promise<any>} what was changed, undefined if nothing */
export async function resetOffsets(group) {
  const topics = [...new Set(group.partitions.map((row) => row.topic))];
  const topic = select("topic", [["", `all ${plural(topics.length, "topic")}`], ...topics.map((name) => [name, name])]);
  const to = select("to", TARGETS);
  const inputs = {
    time: timeField(h("input", { name: "time", type: "datetime-local", step: "0.001" })),
    offset: field("Offset", h("input", { name: "offset", type: "number", min: 0, value: 0 })),
    shift: field(
      "Records",
      h("input", { name: "shift", type: "number", value: -100 }),
      "Negative: back, to repeat records",
    ),
  };
  const preview = h("div", { class: "preview", "aria-live": "polite" });
  const body = h(
    "div",
    { class: "dialog-form" },
    field("Topic", topic),
    field("Reset to", to),
    Object.values(inputs),
    preview,
  );
  let asked = 0;
  const request = (isPreview) => change("POST", "/api/group/reset", wanted(group, { topic, to, inputs }, isPreview));
  const show = async () => {
    for (const [name, input] of Object.entries(inputs)) input.hidden = name !== to.value;
    asked += 1;
    const mine = asked;
    try {
      const answer = await request(true);
      if (mine === asked) replace(preview, previewed(answer.items));
    } catch (error) {
      if (mine === asked) replace(preview, notice(error));
    }
  };
  body.addEventListener("change", show);
  show();
  const done = await formDialog({
    title: `Reset offsets of ${groupName(group.group_id)}`,
    body,
    action: "Reset",
    danger: true,
    wide: true,
    submit: () => request(false),
  });
  if (done) toast(`${plural(done.items.length, "offset")} of ${groupName(group.group_id)} were reset`);
  return done;
}

function wanted(group, { topic, to, inputs }, preview) {
  const value = (name) => inputs[name].querySelector("input").value;
  const body = {
    group_id: group.group_id,
    topics: topic.value ? [topic.value] : null,
    partitions: null,
    to: to.value,
    preview,
  };
  if (to.value === "offset") body.offset = Number(value("offset"));
  if (to.value === "shift") body.shift = Number(value("shift"));
  if (to.value === "time") body.time_ms = momentOf(value("time"));
  return body;
}

function previewed(items) {
  const total = items.reduce(
    (sum, item) => [sum[0] + Math.max(0, item.records ?? 0), sum[1] + Math.max(0, -(item.records ?? 0))],
    [0, 0],
  );
  const isKnown = items.every((item) => item.records !== null);
  const words = isKnown
    ? `${plural(total[0], "record")} skipped, ${plural(total[1], "record")} read again.`
    : "The number of records that this skips or repeats is unknown.";
  const columns = [
    { title: "Topic", class: "name", cell: (item) => item.topic },
    { title: "Partition", number: true, cell: (item) => item.partition },
    { title: "From", number: true, cell: (item) => count(item.from_offset) },
    { title: "To", number: true, cell: (item) => h("b", null, count(item.to_offset)) },
    {
      title: "Records",
      number: true,
      cell: (item) =>
        item.records === null
          ? "–"
          : item.records > 0
            ? `${count(item.records)} skipped`
            : item.records < 0
              ? `${count(-item.records)} again`
              : "same",
    },
  ];
  const more = items.length > SHOWN && h("p", { class: "hint" }, `The first ${SHOWN} of ${count(items.length)}.`);
  return [
    remark(words, total[0] ? "warning" : "info"),
    plainTable("Preview", columns, items.slice(0, SHOWN), "No partitions."),
    more,
  ];
}
