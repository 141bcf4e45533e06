/** Write records to a topic: from the dialog, again as another record was, or copied to another topic. */

import { change } from "../parts/api.js";
import { outside } from "../parts/base.js";
import { field, formDialog, select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { count, plural } from "../parts/format.js";
import { toast } from "../parts/toast.js";

/**
 * @param {{ name: string, partitions: number }} topic @param {any} [first] values of the fields, such as a record's
 * @returns {Promise<any>} the last record that was written
 */
export async function produce(topic, first = {}) {
  const encodings = [
    ["text", "text"],
    ["base64", "base64"],
  ];
  const value = h("textarea", { name: "value", rows: 7, spellcheck: "false", value: first.value ?? "" });
  const said = h("p", { class: "hint", role: "status" });
  const check = () => replace(said, jsonFault(value.value));
  value.addEventListener("input", check);
  check();
  const body = [
    h(
      "div",
      { class: "fields" },
      field(
        "Partition",
        h("input", { name: "partition", type: "number", min: 0, max: topic.partitions - 1, value: first.partition ?? "", placeholder: "by the key" }),
      ),
      field(
        "Compression",
        select(
          "compression",
          ["none", "gzip", "snappy", "lz4", "zstd"].map((name) => [name, name]),
        ),
      ),
    ),
    h(
      "div",
      { class: "fields with-encoding" },
      field("Key", h("input", { name: "key", value: first.key ?? "", placeholder: "no key" })),
      field("Key encoding", select("key_encoding", encodings, first.key_encoding)),
    ),
    field("Value", value),
    said,
    h(
      "div",
      { class: "fields" },
      field("Value encoding", select("value_encoding", encodings, first.value_encoding)),
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "tombstone", checked: first.value === null }),
        "No value: a tombstone, which deletes the key",
      ),
    ),
    field(
      "Headers",
      h("textarea", { name: "headers", rows: 2, placeholder: "name=value", spellcheck: "false", value: first.headers ?? "" }),
      "One name=value per line",
    ),
  ];
  const again = h("label", { class: "check" }, h("input", { type: "checkbox", name: "again" }), "Keep this open for another one");
  let last;
  const submit = async (data) => {
    last = await change("POST", `/api/topics/${encodeURIComponent(topic.name)}/messages`, record(data));
    toast(`Written to partition ${last.partition} at offset ${count(last.offset)}`);
    if (data.get("again")) throw new Kept(`Written at offset ${count(last.offset)}. The fields are as they were.`);
    return last;
  };
  await formDialog({ title: `Produce to ${topic.name}`, action: "Produce", wide: true, body: [...body, again], submit });
  return last;
}

/** Keeps a dialog open, with a word that is no error. */
class Kept extends Error {
  isGood = true;
}

/** A word about a value that begins as JSON and is none; "" for any other. @param {string} text */
export function jsonFault(text) {
  if (!/^\s*[{[]/.test(text)) return "";
  try {
    JSON.parse(text);
    return "Valid JSON";
  } catch (error) {
    return `Not valid JSON: ${error.message}`;
  }
}

/** The fields of a record as it was. Its bytes are read whole, since the row has only their beginning.
 * @param {any} topic @param {any} shown */
export async function produceAgain(topic, shown) {
  const path = `/api/topics/${encodeURIComponent(topic.name)}/messages/${shown.partition}/${shown.offset}`;
  const [key, value] = await Promise.all(["key", "value"].map((part) => (shown[part] === null ? null : contentOf(`${path}?part=${part}`))));
  const headers = shown.headers.map((one) => (one.value === null ? one.name : `${one.name}=${one.value.text}`)).join("\n");
  return produce(topic, {
    partition: shown.partition,
    key: key?.text ?? "",
    key_encoding: key?.encoding,
    value: value === null ? null : value.text,
    value_encoding: value?.encoding,
    headers,
  });
}

/** The bytes at an address: as text if they are text that a field can hold, else in base64. */
async function contentOf(path) {
  const answer = await fetch(outside(path), { credentials: "same-origin" });
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).message ?? `The console answered ${answer.status}.`);
  const bytes = new Uint8Array(await answer.arrayBuffer());
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    if (!/[\u0000\r]/.test(text)) return { text, encoding: "text" };
  } catch {
    // no text
  }
  return { text: btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), "")), encoding: "base64" };
}

/** Copies a record, and those behind it, to another topic. @param {any} topic @param {any} shown */
export async function copyRecord(topic, shown) {
  const done = await formDialog({
    title: "Copy to a topic",
    action: "Copy",
    body: [
      h("div", { class: "fields" },
        field("Topic", h("input", { name: "to", required: true, autocomplete: "off" })),
        field("Records", h("input", { name: "count", type: "number", min: 1, max: 10_000, value: 1, required: true }), "this one and the next ones of its partition")),
      h("p", { class: "hint" }, "Keys, values, headers and times stay as they are, byte for byte. The partition is that of the key."),
    ],
    submit: (data) =>
      change("POST", `/api/topics/${encodeURIComponent(topic.name)}/copy`, {
        to: String(data.get("to")).trim(),
        partition: shown.partition,
        offset: shown.offset,
        count: Number(data.get("count")),
      }),
  });
  if (done) toast(`${plural(done.copied, "record")} copied to ${done.to}`);
  return done;
}

/** @param {FormData} data */
function record(data) {
  const lines = String(data.get("headers"))
    .split("\n")
    .filter((line) => line.trim());
  const headers = lines.map((line) => {
    const cut = line.indexOf("=");
    if (cut === 0) throw new Error(`“${line}” is not a header: write name=value, or a name alone for null`);
    return cut < 0 ? { name: line, value: null } : { name: line.slice(0, cut), value: line.slice(cut + 1) };
  });
  return {
    partition: data.get("partition") === "" ? null : Number(data.get("partition")),
    key: data.get("key") === "" ? null : data.get("key"),
    value: data.get("tombstone") ? null : data.get("value"),
    key_encoding: data.get("key_encoding"),
    value_encoding: data.get("value_encoding"),
    headers,
    timestamp_ms: null,
    compression: data.get("compression"),
  };
}
