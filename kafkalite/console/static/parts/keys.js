/** Keys for the whole application: `/` to search, `g t` to go to a page, `?` for the list. */

import { showDialog } from "./dialog.js";
import { h } from "./element.js";

const SEQUENCE_MS = 1200;

/** @type {[string, string, string][]} key after g, its page, the address */
export const PLACES = [
  ["o", "Overview", "/"],
  ["t", "Topics", "/topics"],
  ["m", "Messages", "/messages"],
  ["g", "Groups", "/groups"],
  ["c", "Compaction", "/compaction"],
  ["s", "Storage", "/storage"],
  ["b", "Cluster", "/cluster"],
  ["l", "Clients", "/clients"],
  ["a", "Access", "/access"],
  ["e", "Schemas", "/schemas"],
  ["r", "Mirrors", "/mirrors"],
];

const NEEDS = { "/schemas": "has_registry", "/mirrors": "has_mirrors" };

/** The pages that this console has. @param {any} session */
export const placesOf = (session) => PLACES.filter(([, , address]) => !(address in NEEDS) || session[NEEDS[address]]);

/** @param {(address: string) => void} go */
export function listenForKeys(go) {
  let begunAt = -Infinity;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const place = performance.now() - begunAt < SEQUENCE_MS && PLACES.find(([key]) => key === event.key);
    begunAt = -Infinity;
    if (place) {
      event.preventDefault();
      go(place[2]);
    } else if (event.key === "g") {
      begunAt = performance.now();
    } else if (event.key === "/") {
      const search = document.querySelector("main [data-search], [data-search]");
      if (search instanceof HTMLInputElement) {
        event.preventDefault();
        search.focus();
        search.select();
      }
    } else if (event.key === "?") {
      event.preventDefault();
      showKeys();
    }
  });
}

/** @param {EventTarget | null} target */
const isTyping = (target) =>
  target instanceof Element && target.closest("input, textarea, select, [contenteditable]") !== null;

export function showKeys() {
  const keys = [
    ...PLACES.map(([key, name]) => [`g ${key}`, name]),
    ["/", "Search on this page"],
    ["↓ ↑", "Next or previous row of a table (also j and k)"],
    ["Enter", "Open the row"],
    ["← →", "Previous or next page of a table"],
    ["Esc", "Close a dialog, stop a search"],
    ["?", "This list"],
  ];
  const rows = keys.map(([key, text]) => [
    h(
      "dt",
      null,
      key.split(" ").map((one) => h("kbd", null, one)),
    ),
    h("dd", null, text),
  ]);
  showDialog("Keys", h("dl", { class: "keys" }, rows), false);
}
