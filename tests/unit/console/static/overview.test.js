import assert from "node:assert/strict";
import test from "node:test";

import { fire } from "./document.js";

const kept = new Map();
globalThis.localStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
const { problems } = await import("./static/pages/overview.js");

const item = (kind, sentence) => ({ kind, sentence, severity: "warning", link: "/group?group_id=a", since_ms: Date.now() - 90_000 });

test("a problem says since when it is there, and is muted whatever its numbers become", () => {
  const before = problems([item("lag_growing", "lag of group a: 1"), item("beyond_end", "beyond")], () => {});
  assert.match(before.textContent, /2 problems.*for 1 min 30 s/);
  fire(before.querySelectorAll("button")[0], "click");
  const after = problems([item("lag_growing", "lag of group a: 2"), item("beyond_end", "beyond")], () => {});
  assert.match(after.textContent, /1 problem(?!s)/);
  assert.ok(!after.textContent.includes("lag of group a"));
  fire(after.querySelectorAll("button").at(-1), "click");
  assert.match(problems([item("lag_growing", "x")], () => {}).textContent, /1 problem/);
});
