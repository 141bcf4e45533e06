import "./document.js";

import assert from "node:assert/strict";
import { test } from "node:test";

const { json, line, plain, visible } = await import("./static/parts/content.js");

const WHOLE = {
  persian: "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
  family: "\u{1f468}\u200d\u{1f469}\u200d\u{1f467}",
  flag: "\u{1f3f3}\ufe0f\u200d\u{1f308}",
  price: "10\u00a0000\u00a0EUR",
  mark: "\ufeffid;name",
  arabic: "\u0627\u0644\u0633\u0639\u0631 5\u200f",
};

for (const [name, text] of Object.entries(WHOLE)) {
  test(`text with joiners and marks is shown as it is: ${name}`, () => {
    assert.equal(visible(text), text);
    assert.equal(line(text), text);
    assert.equal(plain(text).textContent, text);
    assert.ok(json(JSON.stringify({ a: text })).textContent.includes(text));
  });
}

test("control characters and overrides of direction are shown as signs", () => {
  assert.equal(visible("a\u0000\u001b[31m\u007f"), "a\u2400\u241b[31m\u2421");
  assert.equal(visible("\u202egnp.exe\u2066"), "\\u202egnp.exe\\u2066");
});

test("a cut leaves no half of a character", () => {
  assert.equal(line("ab\u{1f468}", 3), "ab\u2026");
  assert.equal(line("\u{1f468}\u200d\u{1f469}", 3), "\u{1f468}\u2026");
});
