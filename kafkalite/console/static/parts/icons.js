/** Icons of our own: strokes on a 16 by 16 grid, in the colour of the text beside them. */

import { s } from "./element.js";

const PATHS = {
  overview: "M2.5 8.5 8 3l5.5 5.5M4 7.5V13h8V7.5",
  topics: "M2.5 4h11M2.5 8h11M2.5 12h7",
  messages: "M2.5 3.5h11v7h-6L4.5 13v-2.5h-2z",
  groups:
    "M6 7.5a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4zM2 13c.3-2.3 1.9-3.5 4-3.5s3.7 1.2 4 3.5M10.5 3.3a2.2 2.2 0 0 1 0 4M11.5 9.7c1.5.4 2.3 1.5 2.5 3.3",
  compaction: "M3 2.5h10M3 13.5h10M8 4.5v3M6.5 6 8 7.5 9.5 6M8 11.5v-3M6.5 10 8 8.5 9.5 10",
  storage:
    "M2.5 4.5C2.5 3.4 5 2.5 8 2.5s5.5.9 5.5 2-2.5 2-5.5 2-5.5-.9-5.5-2zM2.5 4.5v7c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2v-7M2.5 8c0 1.1 2.5 2 5.5 2s5.5-.9 5.5-2",
  cluster:
    "M8 5.5a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6zM3.8 14a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6zM12.2 14a1.8 1.8 0 1 0 0-3.6 1.8 1.8 0 0 0 0 3.6zM7.1 5.3 4.7 10.6M8.9 5.3l2.4 5.3M5.6 12.2h4.8",
  clients: "M2.5 3h11v7.5h-11zM6 13.5h4M8 10.5v3",
  access: "M8 2.5 13 4v4c0 3-2.2 4.8-5 6-2.8-1.2-5-3-5-6V4zM6 8l1.5 1.5L10.3 6.5",
  schemas: "M3 2.5h6.5L13 6v7.5H3zM9 2.5V6h4M5.5 9h5M5.5 11.3h3.5",
  mirrors: "M3 5.5h9.5M9.5 2.5l3 3-3 3M13 10.5H3.5M6.5 7.5l-3 3 3 3",
  search: "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3l3.2 3.2",
  close: "m4 4 8 8M12 4l-8 8",
  plus: "M8 3v10M3 8h10",
  stop: "M4 4h8v8H4z",
  play: "M5 3.5v9l7-4.5z",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  download: "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M3 13.5h10",
  copy: "M5.5 5.5h8v8h-8zM3 10.5h-.5v-8h8V3",
  edit: "m3 13 .6-2.8L11 2.8l2.2 2.2-7.4 7.4z",
  trash: "M3 4.5h10M6.5 4.5v-2h3v2M4.5 4.5l.5 9h6l.5-9M7 7v4M9 7v4",
  warning: "M8 2.5 14 13H2zM8 6.5v3.2M8 11.4v.2",
  error: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3.7M8 10.8v.2",
  ok: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM5.3 8.2l1.9 1.9 3.6-4",
  info: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 7.3V11M8 5v.2",
  sun: "M8 10.8a2.8 2.8 0 1 0 0-5.6 2.8 2.8 0 0 0 0 5.6zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5M3.4 3.4l1.1 1.1M11.5 11.5l1.1 1.1M3.4 12.6l1.1-1.1M11.5 4.5l1.1-1.1",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3 5.5 5.5 0 1 0 13 9.5z",
  system: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 2v12M8 5h4.8M8 8h6M8 11h4.8",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  lock: "M4 7.5h8v6H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  left: "M10 3.5 5.5 8l4.5 4.5",
  right: "M6 3.5 10.5 8 6 12.5",
  down: "M3.5 6 8 10.5 12.5 6",
  logout: "M9.5 3H3v10h6.5M7 8h6.5M11 5.5 13.5 8 11 10.5",
  keyboard: "M1.5 4h13v8h-13zM4 6.5h.2M6.6 6.5h.2M9.2 6.5h.2M11.8 6.5h.2M4.5 9.5h7",
};

/** An icon that is hidden from screen readers, which read the text beside it. @param {keyof typeof PATHS} name */
export function icon(name) {
  const path = s("path", { d: PATHS[name], fill: "none", stroke: "currentColor", "stroke-width": 1.4 });
  path.setAttribute("stroke-linecap", "round");
  path.setAttribute("stroke-linejoin", "round");
  return s("svg", { class: "icon", viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, path);
}
