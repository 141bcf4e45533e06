/** Tabs with addresses of their own: links, so that each can be opened in a new tab, saved and shared. */

import { h } from "./element.js";

/** @param {[string, string][]} tabs text and address @param {string} current address */
export function tabs(items, current, label) {
  const links = items.map(([text, href]) =>
    h("a", { href, class: "tab", "aria-current": href === current ? "page" : null }, text),
  );
  return h("nav", { class: "tabs", "aria-label": label }, links);
}
