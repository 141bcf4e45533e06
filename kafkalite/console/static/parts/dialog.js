/** Dialogs on the browser's own <dialog>: it keeps the focus inside and restores it, and Escape closes. */

import { h, replace } from "./element.js";
import { meaning } from "./format.js";
import { icon } from "./icons.js";
import { notice, remark } from "./notice.js";

let numbers = 0;

/**
 * A form in a dialog. `submit` performs the action; while it fails, the dialog stays open with the reason in it. With
 * `gate` the action is disabled until the function that `gate` gets is called with true.
 *
 * @param {{
 *   title: string, body: any, action: string, danger?: boolean,
 *   submit: (data: FormData) => Promise<any>, wide?: boolean, gate?: (allow: (isAllowed: boolean) => void) => void,
 * }} options
 * @returns {Promise<any>} the result of `submit`, or undefined when the dialog was cancelled
 */
export function formDialog({ title, body, action, danger = false, submit, wide = false, gate }) {
  return new Promise((resolve) => {
    const said = h("div", { "aria-live": "assertive" });
    const confirm = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const cancel = h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
    const form = h("form", { class: "dialog-form", novalidate: false }, body, said, h("footer", null, cancel, confirm));
    let result;
    let isAllowed = true;
    gate?.((allowed) => {
      isAllowed = allowed;
      confirm.disabled = !allowed;
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!isAllowed) return;
      confirm.disabled = true;
      replace(said);
      try {
        result = (await submit(new FormData(form))) ?? true;
        dialog.close();
      } catch (error) {
        replace(said, error.isGood ? remark(error.message) : notice(error));
      } finally {
        confirm.disabled = !isAllowed;
      }
    });
    const dialog = open(title, form, wide);
    dialog.addEventListener("close", () => resolve(result), { once: true });
  });
}

/** A dialog with a button to close it. @param {string} title @param {any} body */
export function showDialog(title, body, wide = true) {
  const close = h("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, "Close");
  const dialog = open(title, [body, h("footer", null, close)], wide);
  return dialog;
}

function open(title, content, wide) {
  const id = `dialog-${(numbers += 1)}`;
  const close = h("button", { type: "button", class: "plain", "aria-label": "Close" }, icon("close"));
  const head = h("header", null, h("h2", { id }, title), close);
  const dialog = h("dialog", { "aria-labelledby": id, class: wide ? "wide" : "" }, head, content);
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  dialog.querySelector("input:not([type=hidden]), select, textarea")?.focus();
  return dialog;
}

/**
 * A labelled field of a form.
 *
 * @param {string} label @param {HTMLElement} control @param {string} [help]
 */
export function field(label, control, help) {
  const id = `field-${(numbers += 1)}`;
  control.id = id;
  const hint = help && h("span", { class: "hint", id: `${id}-hint` }, help);
  if (hint) control.setAttribute("aria-describedby", hint.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, hint);
}

/** A field for a time, with the moment that it means below it. @param {HTMLInputElement} input */
export function timeField(input, label = "Time") {
  const hint = h("span", null, meaning(input.value));
  input.addEventListener("input", () => replace(hint, meaning(input.value)));
  return field(label, input, hint);
}

/** @param {string} name @param {[string, string][]} options value and text @param {string} [selected] */
export function select(name, options, selected) {
  const items = options.map(([value, text]) => h("option", { value, selected: value === selected }, text));
  return h("select", { name }, items);
}
