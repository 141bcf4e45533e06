import assert from "node:assert/strict";
import test from "node:test";

import { fire } from "./document.js";
const { resetOffsets } = await import("./static/pages/group_reset.js");
const { numbersOf } = await import("./static/parts/format.js");

globalThis.FormData = class {}; // the real one takes no element of the small document

const GROUP = { group_id: "g", partitions: [{ topic: "orders", partition: 0 }] };

/** An open dialog, and the requests that it has sent; each is answered by `answer`. */
function opened() {
  const sent = [];
  globalThis.fetch = (path, { body }) =>
    new Promise((resolve) => {
      const request = JSON.parse(body);
      const answer = (offset, status = 200) =>
        resolve(
          new Response(
            JSON.stringify({
              items: [{ topic: "orders", partition: 0, from_offset: 9, to_offset: offset, records: -1 }],
              preview_id: `id-${offset}`,
              message: "refused",
            }),
            { status },
          ),
        );
      sent.push({ request, answer });
    });
  const done = resetOffsets(GROUP);
  const dialog = document.body.querySelectorAll("dialog").at(-1);
  const part = (selector) => dialog.querySelector(selector);
  return { sent, done, part, confirm: part("button.danger") };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** The fields are edited, and the time of a preview has passed. */
async function edit(dialog, t, selector, value) {
  dialog.part(selector).value = value;
  fire(dialog.part(selector), "input");
  t.mock.timers.tick(250);
  await turn();
}

test("the button waits for the preview of what the fields say", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const dialog = opened();
  assert.ok(dialog.confirm.disabled);
  await edit(dialog, t, "select[name=to]", "offset");
  await edit(dialog, t, "input[name=offset]", "2500");
  assert.equal(dialog.sent.length, 2);
  dialog.sent[0].answer(0);
  await turn();
  assert.ok(dialog.confirm.disabled, "an answer to an earlier edit opens nothing");
  fire(dialog.part("form"), "submit");
  assert.equal(dialog.sent.length, 2, "nor does Enter");
  dialog.sent[1].answer(2500);
  await turn();
  assert.ok(!dialog.confirm.disabled);
  fire(dialog.part("form"), "submit");
  await turn();
  const { preview, preview_id, offset } = dialog.sent[2].request;
  assert.deepEqual([preview, preview_id, offset], [false, "id-2500", 2500]);
});

test("after a refusal there is another preview", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const dialog = opened();
  await edit(dialog, t, "select[name=to]", "latest");
  dialog.sent[0].answer(5);
  await turn();
  fire(dialog.part("form"), "submit");
  await turn();
  dialog.sent[1].answer(5, 409);
  await turn();
  assert.ok(dialog.confirm.disabled);
  t.mock.timers.tick(250);
  assert.equal(dialog.sent.length, 3);
});

test("partitions are numbers and ranges", () => {
  assert.deepEqual(numbersOf("4, 0-2,1"), [0, 1, 2, 4]);
  assert.deepEqual(numbersOf(" "), []);
  for (const wrong of ["a", "3-1", "0-99999", "-1"]) assert.throws(() => numbersOf(wrong), /must be a partition/);
});
