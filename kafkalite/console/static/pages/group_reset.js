/**
 * Resets the offsets of a group: first a preview with the number of records that are skipped or repeated.
 *
 * The preview follows each edit. The button is disabled until the preview is that of the fields, and the server sets the
 * offsets of the preview, or none.
 */

import { change } from "../parts/api.js";
import { field, formDialog, select, timeField } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { count, groupName, momentOf, numbersOf, plural } from "../parts/format.js";
import { notice, remark } from "../parts/notice.js";
import { plainTable } from "../parts/table.js";
import { toast } from "../parts/toast.js";

const TARGETS = [
  ["", "Choose"],
  ["earliest", "the beginning"],
  ["latest", "the end"],
  ["time", "the first record from a time on"],
  ["offset", "an offset"],
  ["shift", "shift by"],
];
const SHOWN = 100;
const PREVIEW_AFTER_MS = 250;
const RESET = "/api/group/reset";

/**
 * @param {any} group @param {{ topic: string, partition: number }} [only] one partition, chosen already
 * @returns {Promise<any>} what was changed, undefined if nothing
 */
export async function resetOffsets(group, only) {
  const topics = [...new Set(group.partitions.map((row) => row.topic))];
  const topic = select("topic", [["", `all ${plural(topics.length, "topic")}`], ...topics.map((name) => [name, name])], only?.topic);
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
  const partitions = field("Partitions", h("input", { name: "partitions", value: only?.partition ?? "", placeholder: "all", inputmode: "numeric" }));
  const preview = h("div", { class: "preview", "aria-live": "polite" });
  const fields = { topic, to, partitions, inputs };
  const body = h(
    "div",
    { class: "dialog-form" },
    field("Topic", topic),
    partitions,
    field("Reset to", to),
    Object.values(inputs),
    preview,
  );
  const shown = new Preview(group, fields, preview);
  const done = await formDialog({
    title: `Reset offsets of ${groupName(group.group_id)}`,
    body,
    action: "Reset",
    danger: true,
    wide: true,
    submit: () => shown.act(),
    gate: (allow) => shown.follow(body, allow),
  });
  shown.end();
  if (done) toast(`${plural(done.items.length, "offset")} of ${groupName(group.group_id)} were reset`);
  return done;
}

/** The preview of the fields, which follows them. */
class Preview {
  constructor(group, fields, element) {
    Object.assign(this, { group, fields, element, asked: 0, timer: 0, request: null });
  }

  /** @param {HTMLElement} form @param {(isAllowed: boolean) => void} allow the reset */
  follow(form, allow) {
    this.allow = allow;
    for (const event of ["input", "change"]) form.addEventListener(event, () => this.edited());
    this.edited();
  }

  edited() {
    const { topic, to, partitions, inputs } = this.fields;
    partitions.hidden = !topic.value;
    for (const [name, input] of Object.entries(inputs)) input.hidden = name !== to.value;
    this.end();
    replace(this.element, to.value ? remark("Counting the records…") : null);
    if (to.value) this.timer = setTimeout(() => this.show(), PREVIEW_AFTER_MS);
  }

  /** No preview is awaited or valid any more. */
  end() {
    clearTimeout(this.timer);
    this.asked += 1;
    this.request = null;
    this.allow(false);
  }

  async show() {
    const mine = this.asked;
    try {
      const request = wanted(this.group, this.fields);
      const answer = await change("POST", RESET, { ...request, preview: true });
      if (mine !== this.asked) return;
      this.request = { ...request, preview: false, preview_id: answer.preview_id };
      replace(this.element, previewed(answer.items));
      this.allow(true);
    } catch (error) {
      if (mine === this.asked) replace(this.element, notice(error));
    }
  }

  /** Set the offsets of the preview; it is for one attempt. */
  async act() {
    try {
      return await change("POST", RESET, this.request);
    } catch (error) {
      this.edited();
      throw error;
    }
  }
}

function wanted(group, { topic, to, partitions, inputs }) {
  const value = (field) => field.querySelector("input").value;
  const numbers = topic.value ? numbersOf(value(partitions)) : [];
  const body = {
    group_id: group.group_id,
    topics: topic.value && numbers.length === 0 ? [topic.value] : null,
    partitions: numbers.length ? numbers.map((partition) => ({ topic: topic.value, partition })) : null,
    to: to.value,
  };
  if (to.value === "offset") body.offset = Number(value(inputs.offset));
  if (to.value === "shift") body.shift = Number(value(inputs.shift));
  if (to.value === "time") body.time_ms = momentOf(value(inputs.time));
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
