import assert from "node:assert/strict";
import test from "node:test";

import "./document.js";

globalThis.localStorage = { getItem: () => null, setItem: () => {} };
const { state } = await import("./static/pages/mirrors.js");

const words = (row) =>
  state(row)
    .map((one) => one.textContent ?? one)
    .join("");

test("the state of a mirror names what is wrong", () => {
  assert.equal(words({ fault: null, is_copying: true, failed: 0, lost_offsets: 0 }), "copying");
  assert.equal(words({ fault: null, is_copying: false, failed: 2, lost_offsets: 1000 }), "not copying 2 failed 1,000 lost");
  assert.equal(words({ fault: "Connection refused" }), "no answerConnection refused");
});
