/** Short notes in the corner, read out by screen readers: the success or the error of an action. */

import { h } from "./element.js";
import { icon } from "./icons.js";

const SHOWN_MS = 6000;
const AT_MOST = 4;

let place = null;

/** @param {string} text @param {"ok" | "error"} [kind] */
export function toast(text, kind = "ok") {
  place ??= document.body.appendChild(h("div", { class: "toasts", role: "status", "aria-live": "polite" }));
  const note = h("div", { class: `toast ${kind}` }, icon(kind === "ok" ? "ok" : "error"), h("span", null, text));
  const close = h("button", { class: "plain", type: "button", "aria-label": "Dismiss" }, icon("close"));
  close.addEventListener("click", () => note.remove());
  note.append(close);
  place.append(note);
  while (place.children.length > AT_MOST) place.firstElementChild.remove();
  if (kind === "ok") setTimeout(() => note.remove(), SHOWN_MS); // errors stay until they are dismissed
}
