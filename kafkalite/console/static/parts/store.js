/** Values that this browser keeps: a view of a topic, saved searches. Nothing of them is sent anywhere. */

const PREFIX = "kafkalite.";

/** @param {string} name @param {any} otherwise if nothing is kept, or the browser forbids it */
export function kept(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + name) ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {any} value null removes it @returns {boolean} whether it is kept */
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
