/**
 * Pages at permanent addresses, by the History API.
 *
 * A page is a module with one function. It gets a View: where to draw, what the address says, and a signal that is
 * aborted when the page is left, which ends its requests and timers.
 */

import { isAbort } from "./api.js";
import { h, replace } from "./element.js";
import { notice, waiting } from "./notice.js";

const SHOW_WAITING_AFTER_MS = 150;

/**
 * @typedef {{
 *   root: HTMLElement, params: string[], query: URLSearchParams, signal: AbortSignal, session: any,
 *   go: (address: string) => any, reload: () => any, title: (text: string) => void, update: (changes: Record<string, any>) => void,
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
    history[options.replace ? "replaceState" : "pushState"](null, "", address);
    return this.show();
  }

  /** Draw what the address says. */
  async show() {
    this.leaving.abort();
    this.leaving = new AbortController();
    const { signal } = this.leaving;
    const route = this.routes.find(([pattern]) => pattern.test(location.pathname));
    const timer = setTimeout(() => !signal.aborted && replace(this.root, waiting()), SHOW_WAITING_AFTER_MS);
    const fresh = h("div", { class: "page" });
    try {
      const page = route ? await route[1]() : { default: notFound };
      if (signal.aborted) return;
      await page.default(this.view(fresh, route, signal));
    } catch (error) {
      if (isAbort(error)) return;
      replace(
        fresh,
        notice(error, () => this.show()),
      );
    } finally {
      clearTimeout(timer);
    }
    if (signal.aborted) return;
    replace(this.root, fresh);
    scrollTo(0, 0);
    this.shown.dispatchEvent(new Event("shown"));
  }

  /** @returns {View} */
  view(root, route, signal) {
    const params = route
      ? location.pathname
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
    if (link.pathname.startsWith("/api/") || link.hash) return;
    event.preventDefault();
    if (link.href !== location.href) this.go(link.href);
    else this.show();
  }
}

/** What a page shows is in its address, so that it can be kept and sent; this adds no step to the history. */
function updateQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  history.replaceState(null, "", location.pathname + (text ? `?${text}` : ""));
}

function notFound(view) {
  view.title("Not found");
  const home = h("a", { href: "/", class: "button" }, "Overview");
  replace(view.root, h("h1", null, "No such page"), h("p", null, "Nothing is at this address."), home);
}

/** Do it now, and again and again. @param {number} ms @param {() => Promise<any>} work @param {AbortSignal} signal */
export async function every(ms, work, signal) {
  await work();
  repeat(ms, work, signal);
}

/** Do it again and again, while the page is open and its tab is in front. */
export function repeat(ms, work, signal) {
  const again = async () => {
    if (signal.aborted) return;
    if (!document.hidden) await work().catch(() => undefined); // the next one may go well
    if (!signal.aborted) setTimeout(again, ms);
  };
  setTimeout(again, ms);
}
