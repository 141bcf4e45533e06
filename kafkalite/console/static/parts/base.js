/** The path in front of all addresses of this console, and addresses without it. The server writes it into index.html. */

export const base = document.documentElement?.dataset?.base ?? "";

/** The address for the browser of a path of this console. @param {string} path */
export const outside = (path) => (path.startsWith("/") && !path.startsWith("//") ? base + path : path);

/** The path of this page within the console. */
export const here = () => inside(location.pathname);

/** @param {string} path of the browser */
export const inside = (path) => (base && path.startsWith(base) ? path.slice(base.length) || "/" : path);
