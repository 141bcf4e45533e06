import "./document.js";

import assert from "node:assert/strict";
import { test } from "node:test";

const { choicesOf, settingValue, unitOf } = await import("./static/parts/units.js");
const { jsonFault } = await import("./static/pages/produce.js");

for (const [name, type, text, value] of [
  ["retention.ms", "long", "1 d", "86400000"],
  ["retention.ms", "long", "1 h 30 min", "5400000"],
  ["retention.ms", "long", "5m", "300000"],
  ["retention.ms", "long", "-1", "-1"],
  ["segment.bytes", "int", "64 MiB", "67108864"],
  ["segment.bytes", "int", "1.5gb", "1500000000"],
  ["min.insync.replicas", "int", " 2 ", "2"],
  ["min.cleanable.dirty.ratio", "double", "0.5", "0.5"],
  ["cleanup.policy", "list", "compact", "compact"],
]) {
  test(`${name} of ${text}`, () => assert.equal(settingValue(name, type, text), value));
}

test("other values are refused with an example", () => {
  assert.throws(() => settingValue("retention.ms", "long", "soon"), /1 d/);
  assert.throws(() => settingValue("segment.bytes", "int", "1 d"), /64 MiB/);
  assert.throws(() => settingValue("min.insync.replicas", "int", "1 d"), /a number/);
});

test("units and choices are those of the setting", () => {
  assert.deepEqual([unitOf("retention.ms"), unitOf("max.message.bytes"), unitOf("log.retention.hours")], ["ms", "bytes", "hours"]);
  assert.deepEqual(choicesOf({ name: "unclean.leader.election.enable", type: "boolean" }), ["true", "false"]);
  assert.ok(choicesOf({ name: "compression.type", type: "string" }).includes("zstd"));
  assert.equal(choicesOf({ name: "retention.ms", type: "long" }), undefined);
});

test("a value that begins as JSON is checked", () => {
  assert.equal(jsonFault("plain"), "");
  assert.equal(jsonFault('{"a": 1}'), "Valid JSON");
  assert.match(jsonFault('{"a": }'), /^Not valid JSON/);
});
