/** The login: a user of the broker, whose access control lists apply to everything here. */

import { change } from "../parts/api.js";
import { outside } from "../parts/base.js";
import { field } from "../parts/dialog.js";
import { h, replace } from "../parts/element.js";
import { notice, remark } from "../parts/notice.js";

/** @param {import("../parts/router.js").View} view */
export default function login(view) {
  view.title("Log in");
  const said = h("div", { "aria-live": "assertive" });
  const user = h("input", { name: "username", autocomplete: "username", required: true, autocapitalize: "off" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const send = h("button", { type: "submit", class: "primary" }, "Log in");
  const { mechanisms = ["PLAIN"], sign_on: hasProvider } = view.session ?? {};
  const account = mechanisms.length ? "A SASL user of the broker." : "Your account at the provider.";
  const hint = h("p", { class: "hint" }, `${account} Its ACLs decide what you may see and do here.`);
  const provider =
    hasProvider &&
    h(
      "button",
      { type: "button", class: mechanisms.length ? "" : "primary", on: { click: () => location.assign(outside(providerPath(view.query.get("to")))) } },
      "Log in with single sign-on",
    );
  if (view.query.get("fault") === "provider") replace(said, remark("The single sign-on did not succeed. The log of the console has the reason.", "warning"));
  const form = h(
    "form",
    { class: "card login" },
    h("h1", null, "Log in"),
    hint,
    mechanisms.length > 0 && [field("User", user), field("Password", password)],
    said,
    mechanisms.length > 0 && send,
    provider,
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

/** The address that leads to the provider, and from there to the page. @param {string | null} to */
const providerPath = (to) => `/api/login/oidc?to=${encodeURIComponent(target(to))}`;

/** Only a path of this console: a link from elsewhere must not lead to another site. @param {string | null} to */
function target(to) {
  if (!to) return "/";
  const url = new URL(to, location.origin);
  return url.origin === location.origin && url.pathname !== "/login" ? url.pathname + url.search : "/";
}
