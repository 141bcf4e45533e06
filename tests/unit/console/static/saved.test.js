import { fire } from "./document.js";

import assert from "node:assert/strict";
import { test } from "node:test";

const store = new Map();
globalThis.localStorage = {
  getItem: (name) => store.get(name) ?? null,
  setItem: (name, value) => store.set(name, value),
  removeItem: (name) => store.delete(name),
};
const { MessageQuery } = await import("./static/pages/message_query.js");

function formAt(address, topic = "orders") {
  const view = { query: new URLSearchParams(address), update: () => undefined, session: { cluster_id: "c" }, go: () => undefined };
  return new MessageQuery(view, { name: topic, partitions: 3 }, () => undefined);
}

test("the formats and schemas of a topic are there at the next visit", () => {
  const form = formAt("");
  form.schemas[1].format.value = "avro";
  form.schemas[1].avro.value = '"string"';
  form.columns.value = "$.a";
  form.keep();
  const again = formAt("");
  assert.deepEqual([again.parameters().value_format, again.parameters().value_schema], ["avro", '"string"']);
  assert.equal(again.paths[0].text, "$.a");
  assert.equal(formAt("", "others").parameters().value_format, "auto");
  assert.equal(formAt("value_format=hex").parameters().value_format, "hex"); // the address is stronger
  again.schemas[1].format.value = "auto";
  again.columns.value = "";
  again.keep();
  assert.equal(formAt("").parameters().value_format, "auto");
});

test("an expression is sent if there is one", () => {
  assert.equal(formAt("filter=value.a > 1").parameters().filter, "value.a > 1");
  assert.ok(!("filter" in formAt("").parameters()));
  fire(formAt("").expression, "input");
});
