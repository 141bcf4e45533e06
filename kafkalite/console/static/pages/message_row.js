/** One message: a row of the table, and its details when it is opened. */

import { get } from "../parts/api.js";
import { outside } from "../parts/base.js";
import { hex, json, line, plain } from "../parts/content.js";
import { copyButton } from "../parts/copy.js";
import { h, replace } from "../parts/element.js";
import { bytes, count, plural, time } from "../parts/format.js";
import { icon } from "../parts/icons.js";
import { badge, notice } from "../parts/notice.js";
import { valueAt } from "../parts/json_path.js";
import { action, facts, lacking } from "../parts/page.js";
import { toast } from "../parts/toast.js";

const SHOWN_CHARACTERS = 500_000;
const HEX_BYTES = 65_536;
const COLUMNS = 6;
const TREES = ["json", "avro", "protobuf", "msgpack", "cbor"];

const TRANSACTIONS = { open: "warning", committed: "ok", aborted: "error" };

/** @param {any} record @param {any} topic @param {import("../parts/router.js").View} view @param {() => any} opened */
export function messageRow(record, topic, view, opened = () => {}) {
  const label = `Details of offset ${record.offset} in partition ${record.partition}`;
  const opener = h("button", { type: "button", class: "opener", tabindex: -1, "aria-label": label }, icon("right"));
  opener.setAttribute("aria-expanded", "false");
  const cells = [
    h("td", { class: "number" }, opener, record.partition),
    h("td", { class: "number" }, count(record.offset)),
    h("td", { class: "wide-only" }, time(record.timestamp_ms)),
    h("td", { class: "message-key mono" }, preview(record.key, record)),
    (view.paths ?? []).map((path) => h("td", { class: "wide-only mono" }, h("bdi", null, line(valueAt(path, record) ?? "")))),
    h("td", { class: "message-value mono" }, marks(record), preview(record.value, record, "tombstone")),
    h("td", { class: "number wide-only" }, bytes(record.size_bytes)),
  ];
  const row = h("tr", { class: "message opens", tabindex: -1 }, cells);
  const flip = () => {
    const next = row.nextElementSibling;
    const isOpen = next?.classList.contains("message-details");
    if (isOpen) next.remove();
    else {
      const whole = h("td", { colspan: COLUMNS + (view.paths?.length ?? 0) }, details(record, topic, view));
      row.after(h("tr", { class: "message-details" }, whole));
    }
    opener.setAttribute("aria-expanded", String(!isOpen));
    row.classList.toggle("is-open", !isOpen);
    if (!isOpen) opened();
  };
  row.addEventListener("click", () => getSelection()?.toString() || flip());
  row.addEventListener("keydown", (event) => {
    if (event.target === row && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      flip();
    }
  });
  return row;
}

function preview(data, record, missing = "null") {
  if (record.control)
    return missing === "tombstone" ? h("span", { class: "muted" }, `transaction marker: ${record.control}`) : "";
  if (data === null) return h("span", { class: "muted" }, missing);
  return h("bdi", { class: data.format === "hex" ? "muted" : "" }, line(data.text));
}

function marks(record) {
  const state = record.transaction_state;
  return state && state !== "committed" && [badge(TRANSACTIONS[state], state), " "];
}

function details(record, topic, view) {
  const parts = [part("Key", "key", record, topic, view), part("Value", "value", record, topic, view)];
  return h(
    "div",
    { class: "message-detail" },
    about(record, topic, view),
    record.control ? null : parts,
    headers(record),
  );
}

function about(record, topic, view) {
  const { batch } = record;
  const state = record.transaction_state;
  const producer =
    record.producer_id === null || record.producer_id < 0
      ? null
      : `${record.producer_id}, epoch ${record.producer_epoch}, sequence ${record.sequence}`;
  const writing = () => import("./produce.js");
  const shown = (done) => done && view.changed?.();
  const known = facts([
    ["Partition and offset", `${record.partition} · ${count(record.offset)}`],
    [
      "Time",
      `${time(record.timestamp_ms)} (${record.timestamp_type === "append" ? "of the append" : "of the producer"})`,
    ],
    ["Size", `${bytes(record.size_bytes)}, ${record.compression}`],
    [
      "Batch",
      batch &&
        `${count(batch.records)} records from ${count(batch.base_offset)}, ${bytes(batch.size_bytes)}, leader epoch ${batch.leader_epoch}`,
    ],
    ["Producer", producer],
    ["Transaction", state && badge(TRANSACTIONS[state], state)],
  ]);
  const here = `/messages?topic=${encodeURIComponent(topic.name)}&from=offset&partitions=${record.partition}&offset=${record.offset}&limit=20&open=true`;
  const changes = record.control
    ? []
    : [
        action(view.session, "plus", "Produce again", async () => (await writing()).produceAgain(topic, record).then(shown), "quiet", lacking(topic, "WRITE", topic.name)),
        action(view.session, "copy", "Copy to topic", async () => (await writing()).copyRecord(topic, record), "quiet"),
      ];
  const empty = async () =>
    (await import("./topic_actions.js")).emptyTopic(topic, view, { partition: record.partition, before: record.offset });
  const tools = [
    ...changes,
    action(view.session, "trash", "Delete older", empty, "quiet", lacking(topic, "DELETE", topic.name)),
    compareButton(record, topic),
    copyButton(() => kcat(record, topic, view), "Copy as kcat"),
    copyButton(() => location.origin + outside(here), "Copy address"),
    copyButton(() => JSON.stringify(exported(record, topic), null, 2), "Copy as JSON"),
  ];
  return h("div", { class: "message-about" }, known, h("div", { class: "tools" }, tools));
}

/** The record as people write it: its JSON as values, other text as text, bytes as hexadecimal. */
export function exported(record, topic) {
  const value = (data) => {
    if (data === null) return null;
    try {
      return data.format === "hex" || data.format === "text" ? data.text : JSON.parse(data.text);
    } catch {
      return data.text;
    }
  };
  const { partition, offset, timestamp_ms: timestamp } = record;
  const headers = record.headers.map((one) => ({ name: one.name, value: value(one.value) }));
  return { topic: topic.name, partition, offset, timestamp, key: value(record.key), value: value(record.value), headers };
}

/** Remembers the message; pressed at another one, it shows their difference. */
function compareButton(record, topic) {
  const press = async () => {
    const { compare } = await import("./message_diff.js");
    if (!compare(record, topic)) toast("Press Compare at another message to see the difference");
  };
  return h("button", { type: "button", class: "quiet", on: { click: press } }, "Compare");
}

/** The name of a topic is letters, digits, dots and dashes: there is nothing to quote. */
function kcat(record, topic, view) {
  const server = view.session.bootstrap ?? "localhost:9092";
  return `kcat -C -b ${server} -t ${topic.name} -p ${record.partition} -o ${record.offset} -c 1 -e`;
}

function part(title, name, record, topic, view) {
  const data = record[name];
  if (data === null)
    return h(
      "section",
      null,
      h("h2", null, title),
      h("p", { class: "muted" }, name === "value" ? "None: a tombstone." : "None."),
    );
  const path = `/api/topics/${encodeURIComponent(topic.name)}/messages/${record.partition}/${record.offset}`;
  const content = h("div");
  let now = data;
  const show = (how) => replace(content, drawn(now, how));
  const tools = h("div", { class: "tools" });
  const buttons = [
    tool("As text", () => replace(content, data.format === "hex" ? plain(decoded(now.text)) : drawn(now, "text"))),
    tool("As hex", async () => replace(content, await bytesOf(path, name))),
    copyButton(() => now.text, "Copy"),
    h("a", { class: "tool", href: `${path}?part=${name}`, download: "" }, icon("download"), "Download"),
  ];
  const whole = tool("Show all of it", async () => {
    now = (await get(path, view.formats?.() ?? {}))[name];
    whole.remove();
    show(now.format);
  });
  replace(tools, data.is_cut && whole, buttons);
  show(data.format);
  const note = `${data.format}, ${bytes(data.size_bytes)}${data.is_cut ? ", its beginning" : ""}${data.note ? `; ${data.note}` : ""}`;
  return h(
    "section",
    null,
    h("div", { class: "part-head" }, h("h2", null, title, " ", h("span", { class: "hint" }, note)), tools),
    content,
  );

  function tool(text, work) {
    const press = () => Promise.resolve(work()).catch((error) => replace(content, notice(error)));
    return h("button", { type: "button", class: "quiet", on: { click: press } }, text);
  }
}

function drawn(data, how) {
  const long = data.text.length > SHOWN_CHARACTERS;
  const text = long ? data.text.slice(0, SHOWN_CHARACTERS) : data.text;
  const isTree = TREES.includes(how);
  const content = how === "hex" ? hex(pairs(text)) : isTree && !data.is_cut && !long ? json(text) : plain(text);
  return [
    content,
    long &&
      h(
        "p",
        { class: "hint" },
        `The first ${count(SHOWN_CHARACTERS)} of ${count(data.text.length)} characters: download it to see all.`,
      ),
  ];
}

/** The text of bytes, with a sign for each one that is not UTF-8. @param {string} text hexadecimal */
const decoded = (text) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(pairs(text));

function pairs(text) {
  return Uint8Array.from(text.match(/[0-9a-f]{2}/gi) ?? [], (pair) => parseInt(pair, 16));
}

async function bytesOf(path, name) {
  const answer = await fetch(outside(`${path}?part=${name}`), { credentials: "same-origin" });
  if (!answer.ok)
    throw new Error((await answer.json().catch(() => ({}))).message ?? `The console answered ${answer.status}.`);
  const all = new Uint8Array(await answer.arrayBuffer());
  const cut =
    all.length > HEX_BYTES && h("p", { class: "hint" }, `The first ${bytes(HEX_BYTES)} of ${bytes(all.length)}.`);
  return [hex(all.subarray(0, HEX_BYTES)), cut];
}

function headers(record) {
  if (record.headers.length === 0) return null;
  const rows = record.headers.map(({ name, value }) => [
    h("dt", null, h("bdi", null, line(name))),
    h(
      "dd",
      { class: "mono" },
      value === null ? h("span", { class: "muted" }, "null") : h("bdi", null, line(value.text, 4000)),
    ),
  ]);
  const more = (record.headers_total ?? 0) - record.headers.length;
  const rest = more > 0 && h("p", { class: "hint" }, `and ${plural(more, "more header")}`);
  return h("section", null, h("h2", null, "Headers"), h("dl", { class: "facts" }, rows), rest);
}
