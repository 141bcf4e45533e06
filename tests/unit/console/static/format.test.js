import assert from "node:assert/strict";
import test from "node:test";

import * as format from "./static/parts/format.js";

const TABLES = {
  count: [
    [0, "0"],
    [1234567, "1,234,567"],
    [-1, "-1"],
  ],
  shortCount: [
    [1.25, "1.3"],
    [999, "999"],
    [1500, "1.5K"],
    [3_400_000, "3.4M"],
  ],
  bytes: [
    [0, "0 B"],
    [1023, "1023 B"],
    [1024, "1.0 KiB"],
    [150 * 1024, "150 KiB"],
    [1 << 30, "1.0 GiB"],
    [2 ** 60, "1024 PiB"],
    [-2048, "-2.0 KiB"],
  ],
  percent: [
    [0, "0 %"],
    [0.051, "5.1 %"],
    [0.5, "50 %"],
    [1, "100 %"],
  ],
  milliseconds: [
    [0, "0.0 ms"],
    [0.25, "0.25 ms"],
    [9.96, "10.0 ms"],
    [250.4, "250 ms"],
    [61_000, "1 min 1 s"],
  ],
  duration: [
    [-1, "unlimited"],
    [0, "0 s"],
    [999, "999 ms"],
    [59_999, "59 s"],
    [3_600_000, "1 h"],
    [90_061_000, "1 d 1 h"],
  ],
  topicPath: [
    ["orders", "/topics/orders"],
    ["a/b?c", "/topics/a%2Fb%3Fc"],
  ],
  groupPath: [
    ["", "/group?group_id="],
    ["a&b", "/group?group_id=a%26b"],
  ],
  groupName: [
    ["", "(no name)"],
    ["billing", "billing"],
  ],
};

for (const [name, rows] of Object.entries(TABLES)) {
  for (const [value, text] of rows) {
    test(`${name} of ${JSON.stringify(value)}`, () => assert.equal(format[name](value), text));
  }
}

test("what is not known is a dash, and no zero", () => {
  for (const name of ["count", "shortCount", "bytes", "bytesPerSecond", "perSecond", "percent", "duration", "time"]) {
    for (const value of [null, undefined, NaN]) assert.equal(format[name](value), "–", name);
  }
});

test("one of a thing has no s", () => {
  assert.deepEqual([format.plural(1, "topic"), format.plural(0, "topic"), format.plural(2, "copy", "copies")], [
    "1 topic",
    "0 topics",
    "2 copies",
  ]);
});
