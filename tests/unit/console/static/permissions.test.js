import "./document.js";

import assert from "node:assert/strict";
import { test } from "node:test";

const { action, lacking } = await import("./static/parts/page.js");

test("a missing permission is named, and one that brokers do not report is none", () => {
  assert.equal(lacking({ operations: ["READ", "DESCRIBE"] }, "WRITE", "orders"), "You lack WRITE on orders");
  assert.equal(lacking({ operations: ["READ", "WRITE"] }, "WRITE", "orders"), null);
  for (const row of [{ operations: null }, {}]) assert.equal(lacking(row, "WRITE", "orders"), null);
});

test("a button is disabled with the reason", () => {
  const made = (session, lacks) => action(session, "plus", "Produce", () => undefined, "", lacks);
  const writer = { write: true, write_setting: "--write" };
  const button = made(writer, "You lack WRITE on orders");
  assert.equal(button.getAttribute("title"), "You lack WRITE on orders");
  assert.notEqual(button.getAttribute("disabled"), null);
  assert.equal(made(writer, null).getAttribute("disabled"), null);
  assert.match(made({ write: false, write_setting: "--write" }, "You lack WRITE on orders").getAttribute("title"), /read-only/);
});
