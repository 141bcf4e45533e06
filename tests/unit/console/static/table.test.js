import assert from "node:assert/strict";
import test from "node:test";

import { fire } from "./document.js";
const { Table, plainTable } = await import("./static/parts/table.js");

const PAGE = 3;

/** A table over numbers, whose server is here; `asked` has what it was asked for. */
function tableOf(total, address = "") {
  const world = { asked: [], updates: [], failure: null };
  const view = {
    query: new URLSearchParams(address),
    signal: new AbortController().signal,
    update: (changes) => world.updates.push(changes),
  };
  world.load = async (query) => {
    world.asked.push(query);
    if (world.failure) throw world.failure;
    const first = (query.page - 1) * PAGE;
    const items = Array.from({ length: Math.min(PAGE, total - first) }, (_, index) => first + index);
    return { items, total, page_size: PAGE };
  };
  const columns = [
    { title: "Name", sort: "name", cell: (row) => `row ${row}` },
    { title: "Size", sort: "size", descending: true, number: true, cell: String },
    { title: "Note", cell: () => "" },
  ];
  world.table = new Table({ view, label: "Rows", columns, load: world.load, search: "Find", sort: "name" });
  return world;
}

const shown = (table) => table.body.rows.map((row) => row.children[0].textContent);
const sorted = (table) => table.head.querySelectorAll("th").map((each) => each.getAttribute("aria-sort"));

test("a page of rows is shown, and which of how many", async () => {
  const { table } = tableOf(7);
  await table.refresh();
  assert.deepEqual(shown(table), ["row 0", "row 1", "row 2"]);
  assert.match(table.footer.textContent, /^1–3 of 7/);
});

test("the address says which part is shown", async () => {
  const { table, asked } = tableOf(7, "q=x&sort=-size&page=3");
  await table.refresh();
  assert.deepEqual(asked, [{ q: "x", sort: "-size", page: 3 }]);
  assert.deepEqual(sorted(table), [null, "descending", null]);
});

test("a page that is no number is the first", async () => {
  for (const page of ["0", "-4", "many"]) {
    const { table, asked } = tableOf(1, `page=${page}`);
    await table.refresh();
    assert.equal(asked[0].page, 1);
  }
});

test("a heading sorts by its column, then the other way round, and begins at the first page", async () => {
  const { table, asked } = tableOf(7, "page=2");
  await table.refresh();
  const press = async (index) => {
    table.head.querySelectorAll("button")[index].click();
    await new Promise(setImmediate);
    return asked.at(-1);
  };
  assert.deepEqual(await press(0), { q: "", sort: "-name", page: 1 });
  assert.deepEqual(await press(0), { q: "", sort: "name", page: 1 });
  assert.deepEqual(await press(1), { q: "", sort: "-size", page: 1 }, "large ones first");
});

test("keys go through the rows and the pages", async () => {
  const { table, asked } = tableOf(7);
  await table.refresh();
  table.focusRow(0);
  const press = (key) => fire(document.activeElement, "keydown", { key });
  press("j");
  press("ArrowDown");
  assert.equal(document.activeElement, table.body.rows[2]);
  press("ArrowDown");
  assert.equal(document.activeElement, table.body.rows[2], "there is no further row");
  press("Home");
  assert.equal(document.activeElement, table.body.rows[0]);
  press("ArrowRight");
  await new Promise(setImmediate);
  assert.equal(asked.at(-1).page, 2);
  assert.deepEqual(shown(table), ["row 3", "row 4", "row 5"]);
  const reachable = table.body.rows.map((row) => row.getAttribute("tabindex"));
  assert.deepEqual(reachable, ["0", "-1", "-1"], "one row is reached with Tab");
});

test("a failure without rows is told in their place, and can be asked again", async () => {
  const world = tableOf(2);
  world.failure = new Error("The broker does not answer");
  await world.table.refresh();
  assert.match(world.table.message.textContent, /The broker does not answer/);
  world.failure = null;
  world.table.message.querySelector("button").click();
  await new Promise(setImmediate);
  assert.deepEqual(shown(world.table), ["row 0", "row 1"]);
  assert.equal(world.table.message.textContent, "");
});

test("a failure leaves the rows that are there", async () => {
  const world = tableOf(2);
  await world.table.refresh();
  world.failure = new Error("gone");
  await assert.rejects(world.table.refresh(), /gone/);
  assert.deepEqual(shown(world.table), ["row 0", "row 1"]);
});

test("an answer that comes after a newer question is not drawn", async () => {
  const world = tableOf(7);
  const answers = [];
  world.table.options.load = () => new Promise((resolve) => answers.push(resolve));
  const first = world.table.refresh();
  const second = world.table.refresh();
  answers[1]({ items: [1], total: 1, page_size: PAGE });
  await second;
  answers[0]({ items: [0], total: 1, page_size: PAGE });
  await first;
  assert.deepEqual(shown(world.table), ["row 1"]);
});

test("text of a topic is text, whatever it looks like", () => {
  const table = plainTable("Rows", [{ title: "Name", cell: (row) => row }], ["<script>alert(1)</script>"]);
  const cell = table.querySelector("td");
  assert.equal(cell.children.length, 0);
  assert.equal(cell.textContent, "<script>alert(1)</script>");
});
