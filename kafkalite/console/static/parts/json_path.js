/** Paths into JSON for columns: $.customer, $.items[0].sku, key.id, headers.trace-id, or a name alone for $.name. */

const STEP = /\.([^.[\]\s]+)|\[(\d{1,9})\]|\["([^"]*)"\]/y;
const PATHS_MAX = 8;

/** @param {string} text paths with commas between @returns {{ text: string, from: string, steps: (string | number)[] }[]}
 * throws an Error for one that is none */
export function pathsOf(text) {
  const words = text.split(",").map((word) => word.trim()).filter(Boolean);
  if (words.length > PATHS_MAX) throw new Error(`At most ${PATHS_MAX} columns`);
  return words.map(pathOf);
}

function pathOf(text) {
  const [, named, rest] = /^(\$|key(?=[.[]|$)|headers(?=[.[]))?(.*)$/.exec(text);
  const from = named === "key" || named === "headers" ? named : "value";
  const source = named ? rest : `.${rest}`;
  const steps = [];
  STEP.lastIndex = 0;
  while (STEP.lastIndex < source.length) {
    const found = STEP.exec(source);
    if (!found) throw new Error(`“${text}” must be a path such as $.user.id, key.id or headers.trace-id`);
    steps.push(found[2] === undefined ? (found[1] ?? found[3]) : Number(found[2]));
  }
  return { text, from, steps };
}

/** The value at a path in a record, as text; null if there is none. @param {any} record */
export function valueAt({ from, steps }, record) {
  if (from === "headers") {
    const found = record.headers.find(({ name }) => name === steps[0]);
    return found ? (found.value?.text ?? "null") : null;
  }
  const data = record[from];
  if (!data) return null;
  if (data.is_cut) return "…";
  let value;
  try {
    value = JSON.parse(data.text);
  } catch {
    return steps.length ? null : data.text;
  }
  for (const step of steps) {
    if (value === null || typeof value !== "object" || !Object.hasOwn(value, step)) return null;
    value = value[step];
  }
  return typeof value === "string" ? value : JSON.stringify(value);
}
