import assert from "node:assert/strict";
import test from "node:test";

import "./document.js";
const { difference, memberColumns, ranges, topology, waiting } = await import("./static/pages/group_members.js");
const { stateBadge, typeFilter } = await import("./static/pages/groups.js");

const at = (...numbers) => numbers.map((partition) => ({ topic: "orders", partition }));
const MEMBER = {
  member_id: "m1",
  instance_id: null,
  client_id: "till",
  host: "10.0.0.1",
  member_type: "consumer",
  member_epoch: 4,
  partitions: at(0, 1, 2),
  target: at(1, 2, 7),
  subscribed_topics: ["orders"],
  subscribed_regex: "bill.*",
};
const shown = (content) =>
  [content].flat(Infinity).map((each) => (each && each !== true ? (each.textContent ?? String(each)) : "")).join("");

test("numbers in a row are one range", () => {
  assert.equal(ranges([3, 0, 1, 2, 7]), "0–3, 7");
  assert.equal(ranges([]), "");
});

test("the current assignment differs from the target", () => {
  assert.deepEqual(difference(MEMBER), { coming: at(7), going: at(0) });
  assert.deepEqual(difference({ ...MEMBER, target: null }), { coming: [], going: [] });
});

test("members of a consumer group have epochs, subscriptions and moves", () => {
  const columns = memberColumns({ group_epoch: 5, target_epoch: 5 });
  const cell = (title, member = MEMBER) => shown(columns.find((each) => each.title === title).cell(member));
  assert.equal(cell("Epoch"), "4 behind");
  assert.equal(cell("Epoch", { ...MEMBER, member_epoch: 5 }).trim(), "5");
  assert.equal(cell("Epoch", { ...MEMBER, member_epoch: -2 }), "away");
  assert.equal(cell("Subscription"), "ordersmatching bill.*");
  assert.equal(cell("Assigned"), "orders 0–2");
  assert.equal(cell("Moves"), "gives uporders 0getsorders 7");
  assert.equal(cell("Moves", { ...MEMBER, target: MEMBER.partitions }), "none");
  assert.match(cell("Member", { ...MEMBER, member_type: "classic" }), /classic/);
});

test("members of a group of Kafka Streams have tasks, and those that come and go", () => {
  const group = { group_type: "streams", group_epoch: 5, target_epoch: 5, topology: ["subtopology 0 reads texts"] };
  const member = { ...MEMBER, tasks: { 0: [0, 1], "1 standby": [3] }, target_tasks: { 0: [1, 2], "1 standby": [3] } };
  const cell = (title) => shown(memberColumns(group).find((each) => each.title === title).cell(member));
  assert.equal(cell("Tasks"), "0 0–11 standby 3");
  assert.equal(cell("Moves"), "gives up0 0gets0 2");
  assert.match(shown(topology(group)), /subtopology 0 reads texts/);
  assert.equal(topology({ topology: [] }), null);
});

test("members of a classic group have neither", () => {
  const titles = memberColumns({ group_epoch: null }).map((each) => each.title);
  assert.deepEqual(titles, ["Member", "Host", "Partitions", "Assigned"]);
});

test("a reconciliation says what it waits for", () => {
  const sentences = Array.from({ length: 22 }, (_, index) => `m1 has not confirmed the revocation of orders-${index}`);
  const text = waiting({ rebalance: null, reconciliation: { sentences } }).textContent;
  assert.match(text, /The group reconciles/);
  assert.match(text, /orders-19and 2 more$/);
  assert.equal(waiting({ rebalance: null, reconciliation: { sentences: [] } }), null);
});

test("a classic rebalance says whom it waits for", () => {
  const member = { member_id: "m1", client_id: "till", host: "10.0.0.1", last_seen_ms: null };
  const text = waiting({ rebalance: { sentence: "waits", waits_for: [member], until_ms: 0 } }).textContent;
  assert.match(text, /waits/);
  assert.match(text, /till at 10.0.0.1/);
});

test("states and types have names", () => {
  assert.equal(stateBadge("Reconciling").textContent, "Reconciling");
  assert.match(stateBadge("Assigning").getAttribute("class"), /warning/);
  assert.equal(typeFilter("consumer").value, "consumer");
  assert.equal(typeFilter("nonsense").value, "");
});
