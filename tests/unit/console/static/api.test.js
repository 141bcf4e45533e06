import assert from "node:assert/strict";
import test from "node:test";

import "./document.js";
const { ApiError, address, change, events, get, isAbort, session } = await import("./static/parts/api.js");

/** The next answers of the console; returns what it is asked. */
function answering(...answers) {
  const asked = [];
  globalThis.fetch = async (path, options) => {
    asked.push({ path, ...options });
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer;
  };
  return asked;
}

const json = (value, status = 200) => new Response(JSON.stringify(value), { status });

test("parameters without a value are left out, and names are quoted", () => {
  assert.equal(address("/api/topics", { q: "", page: 2, sort: null, name: "a b&c" }), "/api/topics?page=2&name=a+b%26c");
  assert.equal(address("/api/topics", { q: undefined }), "/api/topics");
});

test("a change carries the token of the session", async () => {
  const asked = answering(json({ csrf_token: "t0ken" }), new Response(null, { status: 204 }));
  await session();
  assert.equal(await change("DELETE", "/api/topics/orders"), null);
  assert.equal(asked[0].headers["X-CSRF-Token"], undefined, "reading needs none");
  assert.equal(asked[1].headers["X-CSRF-Token"], "t0ken");
  assert.equal(asked[1].body, "{}");
});

test("an error has its status, its code and its sentence", async () => {
  answering(json({ error: "TOPIC_ALREADY_EXISTS", message: "Topic orders exists" }, 409));
  const error = await get("/api/x").catch((each) => each);
  assert.ok(error instanceof ApiError);
  assert.deepEqual([error.status, error.code, error.message], [409, "TOPIC_ALREADY_EXISTS", "Topic orders exists"]);
});

test("an error that is no JSON has a sentence, too", async () => {
  answering(new Response("<html>", { status: 502 }));
  await assert.rejects(get("/api/x"), { status: 502, code: "", message: "The console answered 502." });
});

test("a console that does not answer is no error of the page, and a page that is left is none at all", async () => {
  answering(new TypeError("fetch failed"), new DOMException("left", "AbortError"));
  await assert.rejects(get("/api/x"), { status: 0, code: "UNREACHABLE" });
  const left = await get("/api/x").catch((each) => each);
  assert.ok(isAbort(left));
});

test("a session that has ended is announced, but not on the page that begins one", async () => {
  let count = 0;
  document.addEventListener("logged-out", () => (count += 1));
  answering(json({}, 401), json({}, 401));
  await assert.rejects(get("/api/x"), { status: 401 });
  location.pathname = "/login";
  await assert.rejects(get("/api/x"), { status: 401 });
  location.pathname = "/";
  assert.equal(count, 1);
});

test("events are read however the stream is cut", async () => {
  const text = 'event: record\ndata: {"offset": 1}\n\n: a comment\n\nevent: end\r\ndata: {"text":\r\ndata: "ü"}\r\n\r\nevent: cut';
  const bytes = new TextEncoder().encode(text);
  for (const size of [1, 2, 3, 7, bytes.length]) {
    const body = new ReadableStream({
      start(controller) {
        for (let at = 0; at < bytes.length; at += size) controller.enqueue(bytes.slice(at, at + size));
        controller.close();
      },
    });
    answering(new Response(body));
    const read = [];
    for await (const each of events("/api/stream", {}, new AbortController().signal)) read.push(each);
    assert.deepEqual(
      read,
      [
        { event: "record", data: { offset: 1 } },
        { event: "end", data: { text: "ü" } },
      ],
      `pieces of ${size}`,
    );
  }
});
