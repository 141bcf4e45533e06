/**
 * Keys, values and headers of records on the page, with any content.
 *
 * Control characters and overrides of the direction of writing are shown as signs; joiners, marks of direction and
 * spaces of any width stay, since emoji and words of many scripts are made of them. JSON is indented token by token:
 * numbers keep every digit, and no depth or length can exhaust the stack.
 */

import { h } from "./element.js";

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g;
const HALVED = /(?:[\ud800-\udbff]|\u200d)$/; // half a character at a cut, or a joiner of two
const TOKENS = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const COLOURED_TOKENS = 4000;
const INDENT_DEPTH = 40;
const FOLDED_DEPTH = 30; // of elements inside each other

/** @param {string} text */
export const visible = (text) => text.replace(HIDDEN, sign);

function sign(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `\\u${code.toString(16).padStart(4, "0")}`;
}

/** The text on one line, for a table. @param {string} text @param {number} limit */
export function line(text, limit = 240) {
  const cut = text.length > limit ? `${text.slice(0, limit).replace(HALVED, "")}…` : text;
  return visible(cut.replace(/[ \t\r\n\v\f]+/g, " "));
}

/** JSON with indentation, colours and buttons that fold objects and lists; a text that is too long is only indented.
 * @param {string} text */
export function json(text) {
  const pre = h("pre", { class: "content", tabindex: 0 });
  const pieces = [];
  const ended = indent(text, (piece, kind) => pieces.length <= COLOURED_TOKENS && pieces.push([piece, kind]));
  if (pieces.length > COLOURED_TOKENS) {
    const plain = [];
    indent(text, (piece) => plain.push(piece));
    pre.append(visible(plain.join("")));
  } else {
    fold(pre, pieces);
  }
  return ended ? pre : plain(text);
}

/** JSON with a line for each value; null for a text whose brackets do not fit. @param {string} text */
export function indented(text) {
  const pieces = [];
  return /^\s*[{[]/.test(text) && indent(text, (piece) => pieces.push(piece)) ? pieces.join("") : null;
}

/** Appends pieces to an element; the inside of an object or list is an element of its own, with a button before it. */
function fold(root, pieces) {
  const opened = [root];
  for (const [index, [piece, kind]] of pieces.entries()) {
    const isEnd = piece === "}" || piece === "]";
    if (isEnd && !isBracket(pieces[index - 1]?.[0]) && opened.length > 1) leave(opened);
    opened.at(-1).append(kind ? h("span", { class: `json-${kind}` }, visible(piece)) : piece);
    if (isBracket(piece) && !/^[}\]]/.test(pieces[index + 1]?.[0] ?? "}")) enter(opened);
  }
}

const isBracket = (piece) => piece === "{" || piece === "[";

/** Deeper ones than the limit go into the element above, and count. */
function enter(opened) {
  const above = opened.at(-1);
  if (opened.length > FOLDED_DEPTH) return opened.push(above);
  const inside = h("span", null);
  const flip = () => {
    inside.hidden = !inside.hidden;
    button.setAttribute("aria-expanded", String(!inside.hidden));
    button.classList.toggle("is-folded", inside.hidden);
  };
  const properties = { type: "button", class: "fold", "aria-label": "Fold", "aria-expanded": "true", on: { click: flip } };
  const button = h("button", properties);
  above.append(button, inside);
  return opened.push(inside);
}

const leave = (opened) => opened.pop();

/** @param {string} text */
export const plain = (text) => h("pre", { class: "content", tabindex: 0 }, visible(text));

function indent(text, give) {
  let depth = 0;
  let before = "";
  const newline = () => give(`\n${"  ".repeat(Math.min(depth, INDENT_DEPTH))}`, "");
  const tokens = text.match(TOKENS) ?? [];
  for (let index = 0; index < tokens.length; index += 1) {
    const token = tokens[index];
    const opens = token === "{" || token === "[";
    const closes = token === "}" || token === "]";
    if (closes) {
      depth -= 1;
      if (before !== "{" && before !== "[") newline();
    } else if (before === "{" || before === "[" || before === ",") {
      newline();
    }
    give(token === ":" ? ": " : token, kindOf(token, tokens[index + 1]));
    if (opens) depth += 1;
    before = token;
  }
  return depth === 0;
}

function kindOf(token, next) {
  if (token.length === 1 && "{}[],:".includes(token)) return "";
  if (token.startsWith('"')) return next === ":" ? "name" : "text";
  return /^(true|false|null)$/.test(token) ? "word" : "number";
}

/** Sixteen bytes a line: position, bytes, and the letters among them. @param {Uint8Array} bytes */
export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const numbers = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${numbers.padEnd(47)}  ${letters}`);
  }
  return h("pre", { class: "content", tabindex: 0 }, lines.join("\n"));
}
