/** Numbers, sizes, times and names as people read them. All in one place, so that every page says them alike. */

const GROUPED = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const NOTHING = "–";

const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

/** Null is what the console does not know: of an Apache Kafka, or without permission. */
export const isKnown = (value) => !isMissing(value);

/** @param {number | null | undefined} value */
export const count = (value) => (isMissing(value) ? NOTHING : GROUPED.format(value));

/** 1.2K, 3.4M: where the exact figure stands in a tooltip. @param {number | null | undefined} value */
export const shortCount = (value) => {
  if (isMissing(value)) return NOTHING;
  return Math.abs(value) < 10 && !Number.isInteger(value) ? value.toFixed(1) : SHORT.format(value);
};

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** @param {number | null | undefined} value */
export function bytes(value) {
  if (isMissing(value)) return NOTHING;
  let unit = 0;
  let scaled = value;
  while (Math.abs(scaled) >= 1024 && unit < UNITS.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit === 0 || scaled >= 100 ? Math.round(scaled) : scaled.toFixed(1)} ${UNITS[unit]}`;
}

export const bytesPerSecond = (value) => (isMissing(value) ? NOTHING : `${bytes(value)}/s`);
export const perSecond = (value) => (isMissing(value) ? NOTHING : `${shortCount(value)}/s`);

/** @param {number | null | undefined} ratio between 0 and 1 */
export const percent = (ratio) =>
  isMissing(ratio) ? NOTHING : `${(ratio * 100).toFixed(ratio > 0 && ratio < 0.1 ? 1 : 0)} %`;

/** @param {number | null | undefined} ms */
export function milliseconds(ms) {
  if (isMissing(ms)) return NOTHING;
  if (ms < 10) return `${ms.toFixed(ms > 0 && ms < 1 ? 2 : 1)} ms`;
  return ms < 1000 ? `${Math.round(ms)} ms` : duration(ms);
}

const STEPS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
];

/** At most two units: 3 d 4 h, 12 s. @param {number | null | undefined} ms */
export function duration(ms) {
  if (isMissing(ms)) return NOTHING;
  if (ms < 0) return "unlimited";
  if (ms > 0 && ms < 1000) return `${Math.round(ms)} ms`;
  const index = STEPS.findIndex(([step]) => ms >= step);
  if (index < 0) return "0 s";
  const [step, unit] = STEPS[index];
  const next = STEPS[index + 1];
  const rest = next ? Math.floor((ms % step) / next[0]) : 0;
  return `${Math.floor(ms / step)} ${unit}${rest ? ` ${rest} ${next[1]}` : ""}`;
}

const two = (value) => String(value).padStart(2, "0");

/** Local time to the millisecond, sortable: 2026-03-01 12:30:05.250. @param {number | null | undefined} ms */
export function time(ms) {
  if (isMissing(ms) || ms < 0) return NOTHING;
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${clock(ms)}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

/** @param {number} ms */
export function clock(ms) {
  const at = new Date(ms);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** How long ago. @param {number | null | undefined} ms @param {number} [now] */
export function ago(ms, now = Date.now()) {
  if (isMissing(ms)) return NOTHING;
  if (ms <= 0) return "never";
  const passed = now - ms;
  return passed < 1000 ? "just now" : `${duration(passed)} ago`;
}

/** "1 topic", "2 topics". @param {number} number @param {string} noun @param {string} [nouns] */
export const plural = (number, noun, nouns = `${noun}s`) => `${count(number)} ${number === 1 ? noun : nouns}`;

/** The pages of a topic and of a group, whatever their names contain. */
export const topicPath = (name, tab = "") => `/topics/${encodeURIComponent(name)}${tab && `/${tab}`}`;
export const groupPath = (group) => `/group?group_id=${encodeURIComponent(group)}`;
