/** A button that copies a text. */

import { h, replace } from "./element.js";
import { icon } from "./icons.js";
import { toast } from "./toast.js";

/** @param {string | (() => string)} text @param {string} label */
export function copyButton(text, label = "Copy") {
  const copied = async () => {
    const whole = typeof text === "function" ? text() : text;
    try {
      await navigator.clipboard.writeText(whole);
    } catch {
      toast("The browser does not allow copying here: use https or the machine itself", "error");
      return;
    }
    replace(button, icon("ok"), "Copied");
    setTimeout(() => replace(button, icon("copy"), label), 1500);
  };
  const button = h("button", { type: "button", class: "quiet", on: { click: copied } }, icon("copy"), label);
  return button;
}
