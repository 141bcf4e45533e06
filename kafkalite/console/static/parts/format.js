/** Numbers, sizes, times and names as text, in one place, so that all pages format them alike. */

const GROUPED = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const NOTHING = "–";

const isMissing = (value) => value === null || value === undefined || Number.isNaN(value);

/** Null is unknown to the console: an Apache Kafka does not report it, or the user may not read it. */
export const isKnown = (value) => !isMissing(value);

/** @param {number | null | undefined} value */
export const count = (value) => (isMissing(value) ? NOTHING : GROUPED.format(value));

/** 1.2K, 3.4M: if the exact figure is in a tooltip. @param {number | null | undefined} value */
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

const NO_TIMESTAMP = -1;
const [DATE_MS_MIN, DATE_MS_MAX] = [-62_135_596_800_000, 253_402_300_799_999]; // the years 1 to 9999 in UTC

/** Whether a timestamp is a plausible date; one in microseconds is not. */
const isDate = (ms) => ms >= DATE_MS_MIN && ms <= DATE_MS_MAX;

/** The number itself; JSON's numbers are exact up to 2^53. */
const inMilliseconds = (ms) => (Number.isSafeInteger(ms) ? `${ms} ms` : `about ${ms.toPrecision(15)} ms`);

const ZONE_KEY = "kafkalite.zone";
let isUtc = keptZone() === "utc";

function keptZone() {
  try {
    return localStorage.getItem(ZONE_KEY);
  } catch {
    return null; // a browser may forbid the storage
  }
}

/** "utc" or "local": the zone of all times on the pages. */
export const zoneChoice = () => (isUtc ? "utc" : "local");

/** @param {"utc" | "local"} choice kept in this browser */
export function chooseZone(choice) {
  isUtc = choice === "utc";
  try {
    localStorage.setItem(ZONE_KEY, choice);
  } catch {
    // then it lasts as long as the page
  }
}

/** The minutes from UTC to the chosen zone. @param {Date} at */
const zoneMinutes = (at) => (isUtc ? 0 : -at.getTimezoneOffset());

/** A date whose UTC fields are those of the chosen zone. @param {number} ms */
const inZone = (ms) => new Date(ms + zoneMinutes(new Date(ms)) * 60_000);

/** The offset from UTC at a time: +02:00, Z. @param {Date} at */
function zone(at) {
  const minutes = zoneMinutes(at);
  if (minutes === 0) return "Z";
  const sign = minutes < 0 ? "-" : "+";
  return `${sign}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.floor(Math.abs(minutes) % 60))}`;
}

/** A time to the millisecond with its zone, as `kafkalite consume` writes it: 2026-03-01 12:30:05.250+01:00.
 * @param {number | null | undefined} ms */
export function time(ms) {
  if (isMissing(ms) || ms === NO_TIMESTAMP) return NOTHING;
  if (!isDate(ms)) return inMilliseconds(ms);
  const at = inZone(ms);
  return `${dayOf(at)} ${ofDay(at)}.${String(at.getUTCMilliseconds()).padStart(3, "0")}${zone(new Date(ms))}`;
}

/** @param {Date} at */
const dayOf = (at) =>
  `${String(at.getUTCFullYear()).padStart(4, "0")}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;

/** A time as a datetime-local field has it; "" for none. @param {string | number | null} ms */
export function fieldTime(ms) {
  const number = ms === null || ms === "" ? Number.NaN : Number(ms);
  if (!Number.isSafeInteger(number) || !isDate(number)) return "";
  const at = inZone(number);
  return `${dayOf(at)}T${ofDay(at)}.${String(at.getUTCMilliseconds()).padStart(3, "0")}`;
}

const LOCAL = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?$/;
const DAY_MS = 86_400_000;

/** The moments at which clocks in the chosen zone show the text of a datetime-local field: one, two when clocks are set back, none
 * when they are set forward. @param {string} text @returns {number[]} in ms, ascending */
export function momentsOf(text) {
  const found = LOCAL.exec(text);
  if (!found) return [];
  const [year, month, day, hour, minute, second] = found.slice(1, 7).map((part) => Number(part ?? 0));
  const shown = new Date(0);
  shown.setUTCFullYear(year, month - 1, day); // Date.UTC takes the year 99 for 1999
  const utc = shown.setUTCHours(hour, minute, second, Number((found[7] ?? "").padEnd(3, "0")));
  const offsets = [-DAY_MS, DAY_MS].map((away) => -zoneMinutes(new Date(utc + away)) * 60_000);
  const moments = [...new Set(offsets)].map((offset) => utc + offset);
  const isShown = (ms) => ms + zoneMinutes(new Date(ms)) * 60_000 === utc;
  return moments.filter(isShown).sort((one, other) => one - other);
}

/** Of a datetime-local field. A time that comes twice is the first of them, so that nothing is left out.
 * @param {string} text @returns {number} ms; throws an Error if it is no time, or never comes */
export function momentOf(text) {
  const [first] = momentsOf(text);
  if (first !== undefined) return first;
  if (LOCAL.test(text)) throw new Error("That time never comes here: clocks are set forward. Choose another one.");
  throw new Error("Choose a time");
}

/** What a datetime-local field means, for the line below it. @param {string} text */
export function meaning(text) {
  const moments = momentsOf(text);
  if (moments.length === 2) return `Comes twice: ${time(moments[0])} is taken, not ${time(moments[1])}`;
  if (moments.length === 1) return time(moments[0]);
  return LOCAL.test(text) ? "Never comes here: clocks are set forward" : isUtc ? "UTC" : `Local time, now ${zone(new Date())}`;
}

/** @param {Date} at */
const ofDay = (at) => `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;

/** A time of today: 12:30:05+01:00. @param {number} ms */
export function clock(ms) {
  return `${ofDay(inZone(ms))}${zone(new Date(ms))}`;
}

/** How long ago. @param {number | null | undefined} ms @param {number} [now] */
export function ago(ms, now = Date.now()) {
  if (isMissing(ms)) return NOTHING;
  if (ms <= 0) return "never";
  if (!isDate(ms)) return inMilliseconds(ms);
  const passed = now - ms;
  if (passed < -DAY_MS) return `in ${duration(-passed)}`; // a clock that is ahead by less does not matter
  return passed < 1000 ? "just now" : `${duration(passed)} ago`;
}

const NUMBERS_MAX = 10_000;

/** The numbers of "0, 2-4", ascending. @param {string} text @returns {number[]} throws an Error for other text */
export function numbersOf(text) {
  const found = new Set();
  for (const word of text.split(",").map((part) => part.trim())) {
    if (!word) continue;
    const [, first, last] = /^(\d{1,9})(?:\s*-\s*(\d{1,9}))?$/.exec(word) ?? [];
    if (first === undefined || Number(last ?? first) < Number(first) || Number(last ?? first) - Number(first) >= NUMBERS_MAX)
      throw new Error(`“${word}” must be a partition or a range, such as 0 or 2-4`);
    for (let number = Number(first); number <= Number(last ?? first); number += 1) found.add(number);
  }
  return [...found].sort((one, other) => one - other);
}

/** "1 topic", "2 topics". @param {number} number @param {string} noun @param {string} [nouns] */
export const plural = (number, noun, nouns = `${noun}s`) => `${count(number)} ${number === 1 ? noun : nouns}`;

/** The pages of a topic and of a group, whatever their names contain. */
export const topicPath = (name, tab = "") => `/topics/${encodeURIComponent(name)}${tab && `/${tab}`}`;
export const groupPath = (group) => `/group?${groupQuery(group)}`;
export const groupQuery = (group) => `group_id=${encodeURIComponent(group)}`;

/** The name of a group, which may be empty. */
export const groupName = (group) => group || "(no name)";
