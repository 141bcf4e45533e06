/** The format of keys or values, and its schema: Avro as JSON, Protobuf as the file that protoc writes. */

import { field, select } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { bytes } from "../parts/format.js";

const NAMES = ["auto", "text", "json", "hex", "integer", "float", "uuid", "msgpack", "cbor", "avro", "protobuf"];
const FORMATS = NAMES.map((name) => [name, name]);
const FILE_BYTES_MAX = 24_000; // it is in the address of a request

export class MessageSchema {
  /**
   * @param {"key" | "value"} side @param {string} format @param {string} message
   * @param {{ avro?: string, file?: string, name?: string }} saved the schemas of an earlier visit
   */
  constructor(side, format, message, saved = {}) {
    this.side = side;
    this.file = saved.file ?? "";
    this.name = saved.name ?? "";
    this.format = select(`${side}_format`, FORMATS, format);
    this.choice = field(`${side === "key" ? "Keys" : "Values"} as`, this.format);
    this.avro = h("textarea", {
      rows: 4,
      spellcheck: "false",
      placeholder: '{"type": "record", ...}',
      value: saved.avro ?? "",
    });
    this.message = h("input", { value: message, placeholder: "shop.Order", spellcheck: "false", autocomplete: "off" });
    this.chosen = h("input", { type: "file" });
    this.said = h("p", { class: "hint", role: "status" }, this.file && `${this.name}, of an earlier visit`);
    const of = side === "key" ? "keys" : "values";
    this.avroField = field(`Avro schema of ${of}`, this.avro, "JSON. Confluent's five bytes before the data are skipped");
    this.protobufField = h(
      "div",
      { class: "query-row" },
      field(`Protobuf descriptors of ${of}`, this.chosen, "from protoc --include_imports --descriptor_set_out=FILE"),
      field(`Message of ${of}`, this.message, "its full name"),
      this.said,
    );
    this.element = h("div", null, this.avroField, this.protobufField);
    this.format.addEventListener("change", () => this.show());
    this.chosen.addEventListener("change", () => this.read());
    this.show();
  }

  show() {
    this.avroField.hidden = this.format.value !== "avro";
    this.protobufField.hidden = this.format.value !== "protobuf";
    this.element.hidden = this.avroField.hidden && this.protobufField.hidden;
  }

  async read() {
    this.file = "";
    const file = this.chosen.files[0];
    if (!file) return replace(this.said);
    if (file.size > FILE_BYTES_MAX) {
      return replace(this.said, `${bytes(file.size)} is too much: at most ${bytes(FILE_BYTES_MAX)}`);
    }
    const data = new Uint8Array(await file.arrayBuffer());
    this.file = btoa(data.reduce((text, byte) => text + String.fromCharCode(byte), ""));
    this.name = file.name;
    return replace(this.said, `${file.name}, ${bytes(file.size)}`);
  }

  /** The format and the schemas, for the next visit; null if there is nothing to keep. */
  saved() {
    const format = this.format.value;
    if (format === "auto") return null;
    const schema = format === "avro" ? { avro: this.avro.value } : format === "protobuf" ? this.ofProtobuf() : {};
    return { format, ...schema };
  }

  ofProtobuf() {
    return { file: this.file, name: this.name, message: this.message.value.trim() };
  }

  /** The parameters for the API. Throws an Error for a missing schema. */
  parameters() {
    const { side } = this;
    const asked = { [`${side}_format`]: this.format.value };
    if (this.format.value === "avro") {
      if (!this.avro.value.trim()) throw new Error(`Write the Avro schema of the ${side}s under More`);
      asked[`${side}_schema`] = this.avro.value;
    } else if (this.format.value === "protobuf") {
      if (!this.file) throw new Error(`Choose the file with the Protobuf descriptors of the ${side}s under More`);
      if (!this.message.value.trim()) throw new Error(`Write the full name of the ${side}s' Protobuf message under More`);
      asked[`${side}_schema`] = this.file;
      asked[`${side}_message`] = this.message.value.trim();
    }
    return asked;
  }
}
