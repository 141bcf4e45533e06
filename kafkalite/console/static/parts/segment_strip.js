/** The segments of a partition drawn to scale: as wide as they are large, from the oldest to the active one. */

import { h, s } from "./element.js";
import { bytes, count, plural, time } from "./format.js";

const WIDTH = 1000;
const DRAWN = 400;
const GAP = 1.5;

/** @param {any[]} segments in order of their offsets */
export function segmentStrip(segments, label) {
  const shown = segments.length > DRAWN ? joined(segments) : segments;
  const total = shown.reduce((sum, segment) => sum + Math.max(1, segment.size_bytes), 0);
  const room = WIDTH - GAP * (shown.length - 1);
  let x = 0;
  const drawn = shown.map((segment) => {
    const width = Math.max(1.2, (Math.max(1, segment.size_bytes) / total) * room);
    const kind = segment.is_active ? "active" : segment.is_dirty ? "dirty" : "clean";
    const rect = s(
      "rect",
      { x: x.toFixed(2), y: 0, width: width.toFixed(2), height: 34, rx: 1.5, class: `segment ${kind}` },
      s("title", null, description(segment)),
    );
    x += width + GAP;
    return rect;
  });
  const svg = s(
    "svg",
    {
      class: "segment-strip",
      viewBox: `0 0 ${Math.max(WIDTH, x)} 34`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": label,
    },
    drawn,
  );
  return h(
    "div",
    { class: "strip-box" },
    svg,
    segments.length > DRAWN &&
      h("p", { class: "hint" }, `${plural(segments.length, "segment")}; neighbours are drawn as one.`),
  );
}

function joined(segments) {
  const each = Math.ceil(segments.length / DRAWN);
  const groups = [];
  for (let at = 0; at < segments.length; at += each) {
    const group = segments.slice(at, at + each);
    groups.push({
      ...group[0],
      next_offset: group.at(-1).next_offset,
      size_bytes: group.reduce((sum, one) => sum + one.size_bytes, 0),
      records: null,
      last_timestamp_ms: group.at(-1).last_timestamp_ms,
      is_active: group.at(-1).is_active,
    });
  }
  return groups;
}

function description(segment) {
  const lines = [
    `Offsets ${count(segment.base_offset)} to ${count(segment.next_offset - 1)}`,
    bytes(segment.size_bytes),
  ];
  if (segment.records !== null) lines.push(plural(segment.records, "record"));
  if (segment.first_timestamp_ms !== null)
    lines.push(`${time(segment.first_timestamp_ms)} to ${time(segment.last_timestamp_ms)}`);
  lines.push(segment.is_active ? "active: is being written" : segment.is_dirty ? "not compacted yet" : "");
  return lines.filter(Boolean).join("\n");
}

export function stripLegend(isCompacted) {
  const kinds = [
    ["clean", isCompacted ? "compacted" : "closed"],
    isCompacted && ["dirty", "not compacted yet"],
    ["active", "being written"],
  ];
  return h(
    "div",
    { class: "strip-legend" },
    kinds.filter(Boolean).map(([kind, text]) => h("span", { class: `strip-key ${kind}` }, text)),
  );
}
