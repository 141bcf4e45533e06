/** Long work: its progress, its results, and a button that stops it. */

import { h, replace } from "./element.js";
import { icon } from "./icons.js";

/** @param {() => void} stop */
export function progress(stop) {
  const bar = h("progress", { max: 1, "aria-label": "Progress" });
  const text = h("span", { class: "progress-text" });
  const button = h("button", { type: "button", on: { click: stop } }, icon("stop"), "Stop");
  const element = h("div", { class: "progress", hidden: true }, bar, text, button);
  return {
    element,
    start() {
      element.hidden = false;
      button.hidden = false;
      bar.hidden = false;
      bar.removeAttribute("value");
      replace(text, "Searching");
    },
    /** @param {number | null} ratio null while it is unknown @param {string} said */
    show(ratio, said) {
      if (ratio === null || Number.isNaN(ratio)) bar.removeAttribute("value");
      else bar.value = Math.min(1, Math.max(0, ratio));
      replace(text, said);
    },
    /** @param {string} said the result */
    end(said) {
      button.hidden = true;
      bar.hidden = true;
      element.hidden = !said;
      replace(text, said);
    },
  };
}
