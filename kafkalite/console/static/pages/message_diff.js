/** The difference of two messages, line by line of their indented JSON or text. */

import { indented, visible } from "../parts/content.js";
import { showDialog } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { count, plural } from "../parts/format.js";
import { remark } from "../parts/notice.js";

const LINES_MAX = 2000;
const CONTEXT = 3;

let first = null;

/** Remembers a message, or compares it with the one remembered. @param {any} record @returns {boolean} whether it compared */
export function compare(record, topic) {
  const same = first && first.topic === topic.name && first.partition === record.partition && first.offset === record.offset;
  if (!first || same) {
    first = { ...record, topic: topic.name };
    return false;
  }
  const one = first;
  first = null;
  showDialog("Difference of two messages", compared(one, { ...record, topic: topic.name }));
  return true;
}

function compared(one, other) {
  const name = (record) => `${record.topic}-${record.partition} @ ${count(record.offset)}`;
  return [
    h("p", null, h("del", null, name(one)), " and ", h("ins", null, name(other))),
    ["key", "value"].map((side) => [h("h3", null, side[0].toUpperCase() + side.slice(1)), part(one[side], other[side])]),
  ];
}

function part(one, other) {
  const texts = [one, other].map((data) => (data === null ? "null" : linesOf(data)));
  if (texts[0] === texts[1]) return h("p", { class: "muted" }, "The same.");
  const lines = difference(texts[0].split("\n"), texts[1].split("\n"));
  const cut = (one?.is_cut || other?.is_cut) && remark("Only their beginnings are compared.", "warning");
  if (!lines) return remark(`They have more than ${count(LINES_MAX)} lines that differ.`);
  return [cut, h("pre", { class: "content diff", tabindex: 0 }, shortened(lines).map(drawn))];
}

const linesOf = (data) => (data.is_cut || data.format === "hex" ? data.text : (indented(data.text) ?? data.text));

const SIGNS = { same: " ", del: "−", ins: "+" };

function drawn([kind, text]) {
  if (kind === "gap") return h("span", { class: "muted" }, `… ${plural(text, "line")}\n`);
  return h(kind === "same" ? "span" : kind, null, `${SIGNS[kind]} ${visible(text)}\n`);
}

/** Same lines far from a difference are left out. */
function shortened(lines) {
  const near = lines.map((_, at) => lines.slice(Math.max(0, at - CONTEXT), at + CONTEXT + 1).some(([kind]) => kind !== "same"));
  const found = [];
  for (const [at, line] of lines.entries()) {
    if (near[at]) found.push(line);
    else if (found.at(-1)?.[0] === "gap") found.at(-1)[1] += 1;
    else found.push(["gap", 1]);
  }
  return found;
}

/**
 * The shortest way from one text to the other: `same`, `del`, `ins` with each line; null if it would take too long.
 *
 * @param {string[]} one @param {string[]} other
 */
export function difference(one, other) {
  let start = 0;
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  let end = 0;
  while (end < one.length - start && end < other.length - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  const [left, right] = [one.slice(start, one.length - end), other.slice(start, other.length - end)];
  if (left.length > LINES_MAX || right.length > LINES_MAX) return null;
  const width = right.length + 1;
  const lengths = new Uint16Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      const at = i * width + j;
      lengths[at] = left[i] === right[j] ? lengths[at + width + 1] + 1 : Math.max(lengths[at + width], lengths[at + 1]);
    }
  }
  const found = one.slice(0, start).map((line) => ["same", line]);
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    const at = i * width + j;
    if (i < left.length && j < right.length && left[i] === right[j]) {
      found.push(["same", left[i]]);
      i += 1;
      j += 1;
    } else if (j === right.length || (i < left.length && lengths[at + width] >= lengths[at + 1])) {
      found.push(["del", left[i]]);
      i += 1;
    } else {
      found.push(["ins", right[j]]);
      j += 1;
    }
  }
  return [...found, ...one.slice(one.length - end).map((line) => ["same", line])];
}
