/** Parts of most pages: a head with actions, figures, and buttons that a read-only console disables with a reason. */

import { h } from "./element.js";
import { icon } from "./icons.js";
import { toast } from "./toast.js";

/** Why nothing can be changed. @param {any} session */
export const readOnly = (session) => `This console is read-only: start it with ${session.write_setting}`;

/** @param {import("./router.js").View} view @param {string} title @param {{ before?: any, after?: any, actions?: any }} [more] */
export function head(view, title, { before, after, actions } = {}) {
  view.title(title);
  const name = h("div", null, before && h("div", { class: "crumb" }, before), h("h1", null, title));
  return h("div", { class: "page-head" }, name, after, actions && h("div", { class: "actions" }, actions));
}

/**
 * The permission that the user lacks, in a sentence; null if there is none, or the brokers do not say.
 *
 * @param {{ operations?: string[] | null }} row a topic or group @param {string} operation @param {string} what its name
 */
export const lacking = ({ operations }, operation, what) =>
  operations && !operations.includes(operation) ? `You lack ${operation} on ${what}` : null;

/**
 * A button for a change; disabled, with the reason, while the console is read-only or the user `lacks` a permission.
 *
 * @param {any} session @param {string} name icon @param {string} text @param {() => any} click @param {string} [kind]
 * @param {string | null} [lacks]
 */
export function action(session, name, text, click, kind = "", lacks = null) {
  const hint = session.write ? lacks : readOnly(session);
  const allowed = !hint;
  const press = async () => {
    try {
      await click();
    } catch (error) {
      toast(error.message, "error");
    }
  };
  const properties = { type: "button", class: kind, disabled: !allowed, title: hint, on: { click: press } };
  return h("button", properties, icon(name), text);
}

/** @param {[string, any, any?, string?][]} items name, value, a word about it, and `error` or `warning` */
export function figures(items) {
  const shown = items.map(([name, value, note, kind]) =>
    h(
      "div",
      { class: `figure ${kind ?? ""}` },
      h("dt", null, name),
      h("dd", null, value, note && h("div", { class: "note" }, note)),
    ),
  );
  return h("dl", { class: "figures" }, shown);
}

/** Names and values, one below the other. @param {[string, any][]} items */
export function facts(items) {
  const shown = items
    .filter(([, value]) => value !== null && value !== undefined)
    .map(([name, value]) => [h("dt", null, name), h("dd", null, value)]);
  return h("dl", { class: "facts" }, shown);
}
