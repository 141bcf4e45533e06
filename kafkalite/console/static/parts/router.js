/**
 * Pages at permanent addresses, by the History API.
 *
 * A page is a module with one function. It gets a View: the element to draw in, the address, and a signal that is
 * aborted when the page is left, which ends its requests and timers.
 */

import { isAbort } from "./api.js";
import { base, here, inside, outside } from "./base.js";
import { h, replace } from "./element.js";
import { fresh, stale } from "./freshness.js";
import { notice, waiting } from "./notice.js";

const SHOW_WAITING_AFTER_MS = 150;
const TRY_AGAIN_MS = 5000;

/**
 * @typedef {{
 *   root: HTMLElement, params: string[], query: URLSearchParams, signal: AbortSignal, session: any,
 *   go: (address: string) => any, replace: (address: string) => any, reload: () => any, title: (text: string) => void, update: (changes: Record<string, any>) => void,
 * }} View
 */

export class Router {
  /** @param {[RegExp, () => Promise<{ default: (view: View) => any }>][]} routes @param {HTMLElement} root */
  constructor(routes, root, session) {
    this.routes = routes;
    this.root = root;
    this.session = session;
    this.leaving = new AbortController();
    this.shown = new EventTarget();
    addEventListener("popstate", () => this.show());
    document.addEventListener("click", (event) => this.follow(event));
  }

  /** @param {string} address @param {{ replace?: boolean }} [options] */
  go(address, options = {}) {
    history[options.replace ? "replaceState" : "pushState"](null, "", outside(address));
    return this.show();
  }

  /** Draw the page of the address. `isAgain`: a retry, during which the error stays visible. */
  async show(isAgain = false) {
    this.leaving.abort();
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    const route = this.routes.find(([pattern]) => pattern.test(here()));
    const wait = () => !signal.aborted && !isAgain && replace(this.root, waiting());
    const timer = setTimeout(wait, SHOW_WAITING_AFTER_MS);
    const page = h("div", { class: "page" });
    const view = this.view(page, route, signal);
    fresh();
    try {
      const module = route ? await route[1]() : { default: notFound };
      if (signal.aborted) return;
      await module.default(view);
    } catch (error) {
      if (isAbort(error)) return;
      replace(
        page,
        failed(error, view, () => this.show()),
      );
      const mayPass = error.status === 0 || error.status >= 500;
      if (mayPass) setTimeout(() => !signal.aborted && this.show(true), TRY_AGAIN_MS);
    } finally {
      clearTimeout(timer);
    }
    if (signal.aborted) return;
    replace(this.root, page);
    if (!isAgain) scrollTo(0, 0);
    this.shown.dispatchEvent(new Event("shown"));
  }

  /** @returns {View} */
  view(root, route, signal) {
    const params = route
      ? here()
          .match(route[0])
          .slice(1)
          .map((part) => decodeURIComponent(part ?? ""))
      : [];
    return {
      root,
      params,
      signal,
      session: this.session,
      query: new URLSearchParams(location.search),
      go: (address) => this.go(address),
      replace: (address) => this.go(address, { replace: true }),
      reload: () => this.show(),
      title: (text) => {
        document.title = `${text} · kafkalite`;
      },
      update: (changes) => updateQuery(changes),
    };
  }

  follow(event) {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!link || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (base && !link.pathname.startsWith(`${base}/`)) return;
    if (inside(link.pathname).startsWith("/api/") || link.hash) return;
    event.preventDefault();
    if (link.href !== location.href) this.go(link.href);
    else this.show();
  }
}

/** The state of a page is in its address, so that it can be saved and shared; this adds no step to the history. */
function updateQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

/** The page of an error: a missing thing has a heading and a link, other errors are retried. */
function failed(error, view, again) {
  const isMissing = error.status === 404;
  view.title(isMissing ? "Not found" : "Not reachable");
  const parent = here().startsWith("/topics/") ? "/topics" : here() === "/group" ? "/groups" : "/";
  const names = { "/topics": "Topics", "/groups": "Groups", "/": "Overview" };
  return [
    h("h1", null, isMissing ? "Not found" : "This page cannot be shown now"),
    notice(error, isMissing ? undefined : again),
    isMissing && h("div", null, h("a", { href: parent, class: "button" }, names[parent])),
  ];
}

function notFound(view) {
  view.title("Not found");
  const home = h("a", { href: "/", class: "button" }, "Overview");
  replace(view.root, h("h1", null, "No such page"), h("p", null, "Nothing is at this address."), h("div", null, home));
}

/** Do it now, and repeat it. @param {number} ms @param {() => Promise<any>} work @param {AbortSignal} signal */
export async function every(ms, work, signal) {
  await work();
  repeat(ms, work, signal);
}

/** Repeat it while the page is open and its tab is visible. */
export function repeat(ms, work, signal) {
  const again = async () => {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        await work();
        if (!signal.aborted) fresh();
      } catch (error) {
        if (!signal.aborted && !isAbort(error)) stale(error); // the next one may succeed
      }
    }
    if (!signal.aborted) setTimeout(again, ms);
  };
  setTimeout(again, ms);
}
