/** Write one record to a topic. */

import { change } from "../parts/api.js";
import { field, formDialog, select } from "../parts/dialog.js";
import { h } from "../parts/element.js";
import { count } from "../parts/format.js";
import { toast } from "../parts/toast.js";

/** @param {{ name: string, partitions: number }} topic @returns {Promise<any>} */
export async function produce(topic) {
  const encodings = [
    ["text", "text"],
    ["base64", "base64"],
  ];
  const body = [
    h(
      "div",
      { class: "fields" },
      field(
        "Partition",
        h("input", { name: "partition", type: "number", min: 0, max: topic.partitions - 1, placeholder: "by the key" }),
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
      field("Key", h("input", { name: "key", placeholder: "no key" })),
      field("Key encoding", select("key_encoding", encodings)),
    ),
    field("Value", h("textarea", { name: "value", rows: 7, spellcheck: "false" })),
    h(
      "div",
      { class: "fields" },
      field("Value encoding", select("value_encoding", encodings)),
      h(
        "label",
        { class: "check" },
        h("input", { type: "checkbox", name: "tombstone" }),
        "No value: a tombstone, which deletes the key",
      ),
    ),
    field(
      "Headers",
      h("textarea", { name: "headers", rows: 2, placeholder: "name=value", spellcheck: "false" }),
      "One name=value per line",
    ),
  ];
  const done = await formDialog({
    title: `Produce to ${topic.name}`,
    action: "Produce",
    wide: true,
    body,
    submit: (data) => change("POST", `/api/topics/${encodeURIComponent(topic.name)}/messages`, record(data)),
  });
  if (done) toast(`Written to partition ${done.partition} at offset ${count(done.offset)}`);
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
