/** Errors, warnings, empty states and waiting: each names the state and what to do. */

import { h } from "./element.js";
import { icon } from "./icons.js";

/** @param {Error | { message: string, name?: string }} error @param {() => void} [retry] */
export function notice(error, retry) {
  const again = retry && h("button", { type: "button", on: { click: retry } }, "Try again");
  const name = error.code && h("code", null, error.code);
  return h(
    "div",
    { class: "notice error", role: "alert" },
    icon("error"),
    h("div", null, error.message, " ", name),
    again,
  );
}

/** @param {any} content @param {"info" | "warning"} [kind] */
export function remark(content, kind = "info") {
  return h("div", { class: `notice ${kind}` }, icon(kind), h("div", null, content));
}

/** @param {string} title @param {any} [help] @param {HTMLElement} [action] */
export function empty(title, help, action) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), help && h("p", null, help), action);
}

/** An empty list of what the user may not see whole. @param {any} session @param {string} what @param {() => any} otherwise */
export const emptyFor = (session, what, otherwise) =>
  session.lacks ? empty(`You may not see ${what}`, `You lack ${session.lacks}.`) : otherwise();

/** Placeholder lines while a page loads; visible only after a moment, so that quick pages do not flicker. */
export function waiting(lines = 4) {
  const bars = Array.from({ length: lines }, () => h("div", { class: "skeleton" }));
  return h("div", { class: "waiting", role: "status", "aria-label": "Loading" }, bars);
}

/** @param {"ok" | "warning" | "error" | "quiet" | "accent"} kind @param {string} text @param {string} [title] */
export const badge = (kind, text, title) => h("span", { class: `badge ${kind}`, title }, text);
