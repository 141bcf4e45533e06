import assert from "node:assert/strict";
import test from "node:test";

import "./document.js";
const { RUNS, SHARE_PARTITIONS, isShareGroup, offsetsOf, recordsInFlight, shareFigures, total } = await import(
  "./static/pages/share_group.js"
);

const PARTITION = {
  topic: "jobs",
  partition: 0,
  start_offset: 5,
  end_offset: 20,
  lag: 12,
  acquired: 3,
  available: 1,
  acknowledged: 7,
  archived: 2,
  lock_timeouts: 4,
  readers: 2,
};
const UNREAD = {
  ...PARTITION,
  partition: 1,
  start_offset: null,
  lag: null,
  acquired: null,
  available: null,
  acknowledged: null,
  archived: null,
};
const HELD = {
  topic: "jobs",
  partition: 0,
  first_offset: 5,
  last_offset: 7,
  state: "acquired",
  delivery_count: 2,
  member_id: "m1",
  client_id: "till",
  host: "10.0.0.1",
  acquired_ms: 1_700_000_000_000,
  locked_until_ms: 1_700_000_030_000,
};
const FREE = { ...HELD, first_offset: 9, last_offset: 9, state: "available", member_id: null, client_id: null };
const shown = (content) =>
  [content].flat(Infinity).map((each) => (each && each !== true ? (each.textContent ?? String(each)) : "")).join("");
const cell = (columns, title, row) => shown(columns.find((each) => each.title === title).cell(row));

test("a share group is one by its type", () => {
  assert.ok(isShareGroup({ group_type: "share" }));
  assert.ok(!isShareGroup({ group_type: "consumer" }));
});

test("figures are sums over the partitions that are known", () => {
  const group = { lag: 12, partitions: [PARTITION, UNREAD] };
  assert.equal(total(group, "acquired"), 3);
  assert.equal(total({ partitions: [UNREAD] }, "acquired"), null);
  assert.deepEqual(
    shareFigures(group).map(([title, value]) => [title, value]),
    [
      ["Lag", "12"],
      ["Held", "3"],
      ["Accepted", "7"],
      ["Archived", "2"],
    ],
  );
});

test("partitions have a start, or none yet", () => {
  assert.equal(cell(SHARE_PARTITIONS, "Start", PARTITION), "5");
  assert.equal(cell(SHARE_PARTITIONS, "Start", UNREAD), "not read yet");
  assert.equal(cell(SHARE_PARTITIONS, "Held", PARTITION), "3");
  assert.equal(cell(SHARE_PARTITIONS, "Lock timeouts", PARTITION), "4");
});

test("records in flight have holders, or were given back", () => {
  assert.equal(offsetsOf(HELD), "5–7 (3)");
  assert.equal(offsetsOf(FREE), "9");
  assert.equal(cell(RUNS, "Held by", HELD), "tillm1");
  assert.equal(cell(RUNS, "Held by", { ...HELD, client_id: null }), "a member that has leftm1");
  assert.equal(cell(RUNS, "Held by", FREE), "no member");
  assert.equal(cell(RUNS, "State", FREE), "given back");
  assert.equal(cell(RUNS, "Since", { ...FREE, acquired_ms: null }), "");
});

test("what is not reported or left out is said", () => {
  assert.match(shown(recordsInFlight({ records_in_flight: null, left_out: 0 })), /do not report/);
  assert.match(shown(recordsInFlight({ records_in_flight: [HELD, FREE], left_out: 3 })), /3 more rows are not shown/);
  assert.match(shown(recordsInFlight({ records_in_flight: [], left_out: 0 })), /No member holds a record/);
});
