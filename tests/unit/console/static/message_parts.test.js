import { fire } from "./document.js";

import assert from "node:assert/strict";
import { test } from "node:test";

const { json, indented } = await import("./static/parts/content.js");
const { pathsOf, valueAt } = await import("./static/parts/json_path.js");
const { difference } = await import("./static/pages/message_diff.js");
const { exported } = await import("./static/pages/message_row.js");

const data = (text, more = {}) => ({ format: "json", text, is_cut: false, ...more });
const RECORD = {
  partition: 1,
  offset: 7,
  timestamp_ms: 5,
  key: data('{"id": 3}'),
  value: data('{"user": {"name": "ann", "tags": ["a", "b"]}, "a.b": null}'),
  headers: [{ name: "trace-id", value: data("abc", { format: "text" }) }],
};

test("columns are paths into values, keys and headers", () => {
  const shown = (text) => pathsOf(text).map((path) => valueAt(path, RECORD));
  assert.deepEqual(shown("$.user.name, user.tags[1], key.id, headers.trace-id"), ["ann", "b", "3", "abc"]);
  assert.deepEqual(shown('$["a.b"], $.nope.x, $.user, headers.none'), ["null", null, '{"name":"ann","tags":["a","b"]}', null]);
  assert.equal(valueAt(pathsOf("$.toString")[0], RECORD), null);
  assert.equal(valueAt(pathsOf("$.a")[0], { ...RECORD, value: data("{", { is_cut: true }) }), "…");
  for (const wrong of ["$..a", "$.a[", "a b"]) assert.throws(() => pathsOf(wrong), /must be a path/);
});

test("objects and lists fold, and fold all that is inside", () => {
  const shown = json('{"a": [1, {}], "b": "}"}');
  const buttons = shown.querySelectorAll("button");
  assert.equal(buttons.length, 2);
  fire(buttons[1], "click");
  assert.equal(buttons[1].getAttribute("aria-expanded"), "false");
  assert.equal(shown.textContent, '{\n  "a": [\n    1,\n    {}\n  ],\n  "b": "}"\n}');
  assert.equal(shown.querySelectorAll("span").filter((span) => span.hidden).length, 1);
});

test("deep JSON has few elements inside each other", () => {
  const shown = json("[".repeat(900) + "]".repeat(900));
  assert.ok(shown.querySelectorAll("button").length <= 40);
  let depth = 0;
  for (let at = shown; at; at = at.childNodes?.find((child) => child.tagName === "SPAN")) depth += 1;
  assert.ok(depth <= 40, depth);
});

test("a difference is the shortest, and too much is none", () => {
  assert.deepEqual(difference(["a", "b", "c"], ["a", "x", "c"]), [
    ["same", "a"],
    ["del", "b"],
    ["ins", "x"],
    ["same", "c"],
  ]);
  const lines = Array.from({ length: 2500 }, (_, at) => `${at}`);
  assert.equal(difference(lines, [...lines].reverse()), null);
  assert.equal(difference(lines, [...lines, "more"]).filter(([kind]) => kind !== "same").length, 1);
  assert.equal(indented('{"a":1}'), '{\n  "a": 1\n}');
  assert.equal(indented("{"), null);
});

test("a record is copied as people write it", () => {
  assert.deepEqual(exported(RECORD, { name: "orders" }).value.user.tags, ["a", "b"]);
  assert.deepEqual(exported(RECORD, { name: "orders" }).headers, [{ name: "trace-id", value: "abc" }]);
});
