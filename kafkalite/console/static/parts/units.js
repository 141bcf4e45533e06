/** Values of settings as people write them: 1 d, 12 h, 64 MiB in the units of Kafka's names; as `common/options.py`. */

const MS = { ms: 1, s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const BYTES = { b: 1, kb: 1000, mb: 1e6, gb: 1e9, tb: 1e12, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3, tib: 1024 ** 4 };
const NUMERIC = ["int", "short", "long", "double"];

/** The unit of a setting's numbers, by its name. @param {string} name */
export const unitOf = (name) =>
  /(^|[._])ms$/.test(name) ? "ms" : /(^|[._])bytes([._]|$)|\.size$/.test(name) ? "bytes" : /\.(minutes|hours|seconds)$/.exec(name)?.[1];

/** The text for the broker: a number with a unit becomes one without. Throws an Error for a value that is none.
 * @param {string} name @param {string} type of the setting @param {string} text */
export function settingValue(name, type, text) {
  const value = text.trim();
  if (!NUMERIC.includes(type)) return value;
  if (/^-?\d+$/.test(value) || (type === "double" && /^-?\d*\.?\d+(e-?\d+)?$/i.test(value))) return value;
  const factors = { ms: MS, bytes: BYTES }[unitOf(name)] ?? {};
  const parts = [...value.matchAll(/(\d+(?:\.\d+)?)\s*([a-z]+)\s*/gi)];
  const isWhole = parts.map(([whole]) => whole).join("") === value;
  const isKnown = parts.length > 0 && isWhole && parts.every(([, , unit]) => unit.toLowerCase() in factors);
  const examples = { ms: "86400000, 1 d or 1 h 30 min", bytes: "1048576 or 64 MiB" }[unitOf(name)] ?? "a number";
  if (!isKnown) throw new Error(`“${value}” is no value of ${name}: write ${examples}`);
  const sum = parts.reduce((total, [, number, unit]) => total + Number(number) * factors[unit.toLowerCase()], 0);
  return String(Math.round(sum));
}

const CODECS = ["uncompressed", "gzip", "snappy", "lz4", "zstd", "producer"];
const CHOICES = {
  "compression.type": CODECS,
  "message.timestamp.type": ["CreateTime", "LogAppendTime"],
  "log.message.timestamp.type": ["CreateTime", "LogAppendTime"],
  "cleanup.policy": ["delete", "compact", "compact,delete"],
  "log.cleanup.policy": ["delete", "compact", "compact,delete"],
};

/** The values that a setting may have; undefined if they are many. @param {{ name: string, type: string }} setting */
export const choicesOf = ({ name, type }) => (type === "boolean" ? ["true", "false"] : CHOICES[name]);
