import assert from "node:assert/strict";
import test from "node:test";

import { fire } from "./document.js";
const { MessageQuery } = await import("./static/pages/message_query.js");

/** The form of a topic's messages at an address; `updates` has what goes into the address. */
function formAt(address) {
  const updates = [];
  const view = { query: new URLSearchParams(address), update: (changes) => updates.push(changes) };
  let searches = 0;
  const form = new MessageQuery(view, { name: "orders", partitions: 3 }, () => (searches += 1));
  return { form, updates, searches: () => searches };
}

const USUAL = {
  from: "end",
  partitions: "",
  limit: "50",
  isolation: "read_uncommitted",
  max_records: "100000",
  control: "",
  key_format: "auto",
  value_format: "auto",
};

test("without an address the newest are asked for", () => {
  assert.deepEqual(formAt("").form.parameters(), USUAL);
});

test("the address fills the form", () => {
  const { form } = formAt(
    "from=offset&offset=7&partitions=0,2&limit=200&isolation=read_committed&control=true&value=C1&value_match=equals",
  );
  assert.deepEqual(form.parameters(), {
    ...USUAL,
    from: "offset",
    offset: "7",
    partitions: "0,2",
    limit: "200",
    isolation: "read_committed",
    control: "true",
    value: "C1",
    value_match: "equals",
  });
});

test("a tail has no limit, and spaces between partitions mean nothing", () => {
  const { form } = formAt("from=tail&partitions=0, 2");
  const asked = form.parameters();
  assert.deepEqual([asked.limit, asked.partitions, form.isTail], ["", "0,2", true]);
});

test("a filter is compared only where there is text for it", () => {
  const { form } = formAt("key_match=regex&header_match=equals&header=source");
  const asked = form.parameters();
  assert.ok(!("key_match" in asked) && !("key" in asked));
  assert.deepEqual([asked.header, asked.header_match], ["source", "equals"]);
});

test("a time stands in the address in milliseconds, which mean the same in every zone", () => {
  const { form, updates } = formAt("from=time&time=2026-03-01T12:30"); // as addresses had it once
  const time_ms = new Date(2026, 2, 1, 12, 30).getTime();
  assert.equal(form.parameters().time_ms, time_ms);
  form.keep();
  assert.deepEqual([updates[0].time, updates[0].time_ms], ["", time_ms]);
  assert.equal(formAt(`from=time&time_ms=${time_ms + 1}`).form.parameters().time_ms, time_ms + 1);
});

test("partitions may be ranges", () => {
  const { form } = formAt("partitions=0-2");
  assert.equal(form.parameters().partitions, "0,1,2");
  form.partitions.value = "all of them";
  assert.throws(() => form.parameters(), /must be a partition or a range/);
});

test("what is as usual does not stand in the address", () => {
  const { form, updates } = formAt("limit=20&value=x");
  form.keep();
  const kept = Object.fromEntries(Object.entries(updates[0]).filter(([, value]) => value !== ""));
  assert.deepEqual(kept, { limit: "20", value: "x" });
});

test("the fields of a start are shown with it alone", () => {
  const { form } = formAt("");
  assert.deepEqual([form.offsetField.hidden, form.timeField.hidden], [true, true]);
  form.from.value = "offset";
  fire(form.from, "change");
  assert.deepEqual([form.offsetField.hidden, form.timeField.hidden], [false, true]);
});

test("a schema that is missing is asked for before any request", () => {
  assert.throws(() => formAt("value_format=avro").form.parameters(), /Write the Avro schema of the values/);
  assert.throws(() => formAt("key_format=protobuf").form.parameters(), /Choose the file with the Protobuf descriptors/);
});

test("the form searches and is not sent", () => {
  const { form, searches } = formAt("");
  assert.ok(fire(form.element, "submit").defaultPrevented);
  assert.equal(searches(), 1);
});
