/** The frame around the pages: navigation, the user, dark or light, and whether changes are allowed. */

import { change } from "./api.js";
import { here, inside, outside } from "./base.js";
import { h, replace } from "./element.js";
import { chooseZone, zoneChoice } from "./format.js";
import { icon } from "./icons.js";
import { placesOf, showKeys } from "./keys.js";
import { badge } from "./notice.js";
import { readOnly } from "./page.js";
import { choose, chosen } from "./theme.js";
import { toast } from "./toast.js";

const THEMES = /** @type {const} */ ([
  ["system", "system", "Dark or light as the system"],
  ["light", "sun", "Light"],
  ["dark", "moon", "Dark"],
]);

export class Shell {
  /** @param {any} session */
  constructor(session) {
    this.main = h("main", { id: "main", tabindex: -1 });
    this.links = placesOf(session).map(([key, name, address]) =>
      h("a", { href: address, "aria-keyshortcuts": `g ${key}` }, icon(name.toLowerCase()), name),
    );
    this.side = this.makeSide(session);
    const skip = h(
      "a",
      { class: "skip", href: "#main", on: { click: (event) => this.skip(event) } },
      "Skip to the content",
    );
    this.element = h("div", { class: "frame" }, skip, this.side, this.main);
    this.isFirst = true;
  }

  makeSide(session) {
    const flip = () => menu.setAttribute("aria-expanded", String(this.side.classList.toggle("is-open")));
    const menu = h(
      "button",
      {
        type: "button",
        class: "plain menu-button",
        "aria-label": "Menu",
        "aria-expanded": "false",
        on: { click: flip },
      },
      icon("menu"),
    );
    const brand = h("a", { class: "brand", href: "/" }, h("img", { src: "/static/logo.svg", alt: "" }), "kafkalite");
    return h("header", { class: "side" }, brand, menu, h("nav", { "aria-label": "Pages" }, this.links), foot(session));
  }

  /** After a page is drawn: mark its link, close the menu, and let screen readers begin at its top. */
  mark() {
    for (const link of this.links) {
      const address = inside(link.getAttribute("href"));
      const path = here() === "/group" ? "/groups" : here();
      const isHere = address === "/" ? path === "/" : `${path}/`.startsWith(`${address}/`);
      if (isHere) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.side.classList.remove("is-open");
    if (!this.isFirst && !this.main.contains(document.activeElement)) this.main.focus({ preventScroll: true });
    this.isFirst = false;
  }

  skip(event) {
    event.preventDefault();
    this.main.focus();
  }
}

function foot(session) {
  const mark = !session.write && badge("quiet", "read-only", readOnly(session));
  const user =
    session.user &&
    h("div", { class: "row" }, h("span", { class: "cluster-id", title: session.user }, session.user), logout());
  const keys = h(
    "button",
    { type: "button", class: "plain", title: "Keys (?)", "aria-label": "Keys", on: { click: showKeys } },
    icon("keyboard"),
  );
  const kind = session.kind === "kafka" ? "Apache Kafka" : "cluster";
  const cluster =
    session.cluster_id &&
    h("div", { class: "cluster-id", title: session.cluster_id }, kind, " ", h("code", null, session.cluster_id));
  return h(
    "div",
    { class: "side-foot" },
    h("div", null, mark),
    session.clusters?.length > 1 && switcher(session),
    user,
    cluster,
    h("div", { class: "row" }, themeButton(), zoneButton(), keys),
  );
}

/** The clusters of this console; another one is opened at its own path. */
function switcher({ cluster, clusters }) {
  const options = clusters.map(({ name, path }) => h("option", { value: path, selected: name === cluster }, name));
  const go = () => location.assign(menu.value);
  const menu = h("select", { "aria-label": "Cluster", on: { change: go } }, options);
  return menu;
}

function themeButton() {
  const button = h("button", { type: "button", class: "plain" });
  const draw = () => {
    const [, name, text] = THEMES.find(([choice]) => choice === chosen());
    button.setAttribute("aria-label", `Colours: ${text}`);
    button.setAttribute("title", `Colours: ${text}`);
    replace(button, icon(name));
  };
  button.addEventListener("click", () => {
    const index = THEMES.findIndex(([choice]) => choice === chosen());
    choose(THEMES[(index + 1) % THEMES.length][0]);
    draw();
  });
  draw();
  return button;
}

/** Times in local time or in UTC; the page is drawn again. */
function zoneButton() {
  const button = h("button", { type: "button", class: "plain" });
  const draw = () => {
    const text = `Times: ${zoneChoice() === "utc" ? "UTC" : "local"}`;
    button.setAttribute("aria-label", text);
    button.setAttribute("title", text);
    replace(button, zoneChoice() === "utc" ? "UTC" : "Local");
  };
  button.addEventListener("click", () => {
    chooseZone(zoneChoice() === "utc" ? "local" : "utc");
    draw();
    document.dispatchEvent(new CustomEvent("zone-changed"));
  });
  draw();
  return button;
}

function logout() {
  const leave = async () => {
    try {
      await change("POST", "/api/logout");
      location.assign(outside("/login"));
    } catch (error) {
      toast(error.message, "error");
    }
  };
  return h(
    "button",
    { type: "button", class: "plain", "aria-label": "Log out", title: "Log out", on: { click: leave } },
    icon("logout"),
  );
}
