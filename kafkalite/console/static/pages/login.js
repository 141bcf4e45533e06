/** The login: a user of the broker, whose access control lists apply to everything here. */

import { change } from "../parts/api.js";
import { outside } from "../parts/base.js";
import { field } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { notice } from "../parts/notice.js";

/** @param {import("../parts/router.js").View} view */
export default function login(view) {
  view.title("Log in");
  const said = h("div", { "aria-live": "assertive" });
  const user = h("input", { name: "username", autocomplete: "username", required: true, autocapitalize: "off" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const send = h("button", { type: "submit", class: "primary" }, "Log in");
  const hint = h(
    "p",
    { class: "hint" },
    "A SASL user of the broker. Its ACLs decide what you may see and do here.",
  );
  const form = h(
    "form",
    { class: "card login" },
    h("h1", null, "Log in"),
    hint,
    field("User", user),
    field("Password", password),
    said,
    send,
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    send.disabled = true;
    replace(said);
    try {
      await change("POST", "/api/login", { user: user.value, password: password.value });
      location.assign(outside(target(view.query.get("to"))));
    } catch (error) {
      replace(said, notice(error));
      password.select();
    } finally {
      send.disabled = false;
    }
  });
  replace(view.root, form);
  queueMicrotask(() => user.focus());
}

/** Only a path of this console: a link from elsewhere must not lead to another site. @param {string | null} to */
function target(to) {
  if (!to) return "/";
  const url = new URL(to, location.origin);
  return url.origin === location.origin && url.pathname !== "/login" ? url.pathname + url.search : "/";
}
