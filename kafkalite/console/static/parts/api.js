/**
 * The console's own JSON API: answers, errors with a sentence, and long work as a stream of events.
 *
 * A request ends with the page that made it, through the page's AbortSignal: the server then stops working on it.
 */

import { here, outside } from "./base.js";

export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

let csrfToken = "";

/** The session: the user, whether changes are allowed, and the cluster. */
export async function session() {
  const answer = await get("/api/session");
  csrfToken = answer.csrf_token ?? "";
  return answer;
}

/** @param {string} path @param {Record<string, any>} [parameters] @param {AbortSignal} [signal] */
export async function get(path, parameters = {}, signal = undefined) {
  return (await ask("GET", address(path, parameters), undefined, signal)).json();
}

/** @param {"POST" | "PUT" | "PATCH" | "DELETE"} method @param {string} path @param {any} [body] */
export async function change(method, path, body = {}) {
  const answer = await ask(method, path, body, undefined);
  return answer.status === 204 ? null : answer.json();
}

/** Path and parameters; those without a value are left out. @param {string} path */
export function address(path, parameters = {}) {
  const kept = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return query ? `${path}?${query}` : path;
}

/**
 * Server-sent events, read by fetch: an EventSource hides the reason of a refusal, and reconnects by itself.
 *
 * @param {string} path @param {Record<string, any>} parameters @param {AbortSignal} signal closing it stops the work
 * @returns {AsyncGenerator<{ event: string, data: any }>}
 */
export async function* events(path, parameters, signal) {
  const answer = await ask("GET", address(path, parameters), undefined, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (pending + value).replaceAll("\r\n", "\n").split("\n\n");
    pending = parts.pop();
    for (const part of parts) {
      const read = parse(part);
      if (read) yield read;
    }
  }
}

function parse(part) {
  let event = "message";
  const data = [];
  for (const line of part.split("\n")) {
    if (line.startsWith("event:")) event = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).trimStart());
  }
  return data.length ? { event, data: JSON.parse(data.join("\n")) } : null;
}

async function ask(method, path, body, signal) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    headers["X-CSRF-Token"] = csrfToken;
  }
  let answer;
  try {
    const sent = body === undefined ? undefined : JSON.stringify(body);
    answer = await fetch(outside(path), { method, headers, body: sent, signal, credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "UNREACHABLE", "The console does not answer. Is its process still running?");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  if (answer.status === 401 && here() !== "/login") {
    document.dispatchEvent(new CustomEvent("logged-out"));
  }
  throw new ApiError(answer.status, said.error ?? "", said.message ?? `The console answered ${answer.status}.`);
}

/** Whether this error only means that the user left the page. @param {any} error */
export const isAbort = (error) => error?.name === "AbortError";
