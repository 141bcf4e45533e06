/**
 * Elements without a framework: h("td", { class: "number" }, "12").
 *
 * Text becomes text nodes and attributes go through setAttribute, so nothing that a message contains is ever read as
 * markup. Styles are set property by property, because the content security policy forbids style attributes. A path in href or src is one within this console.
 */

import { outside } from "./base.js";

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {Node | string | number | null | undefined | false | Child[]} Child
 * @typedef {Record<string, any>} Properties  `on` holds listeners, `style` CSS properties, `ref` gets the element
 */

/** @type {(tag: string, properties?: Properties | null, ...children: Child[]) => HTMLElement} */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** The same for SVG. @type {(tag: string, properties?: Properties | null, ...children: Child[]) => SVGElement} */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

/** Replace everything in an element. @type {(element: Element, ...children: Child[]) => void} */
export function replace(element, ...children) {
  element.replaceChildren(...flat(children));
}

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) set(element, name, value);
  element.append(...flat(children));
  return element;
}

function set(element, name, value) {
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
  } else if (name === "style") {
    for (const [property, text] of Object.entries(value)) element.style.setProperty(property, String(text));
  } else if (name === "ref") {
    value(element);
  } else if (name === "value" || name === "checked" || name === "indeterminate") {
    element[name] = value;
  } else if (name.startsWith("on") || name === "srcdoc") {
    throw new Error(`${name} would be a script: use on: { event: listener }`);
  } else if (value !== null && value !== undefined && value !== false) {
    const text = value === true ? "" : String(value);
    element.setAttribute(name, name === "href" || name === "src" ? outside(text) : text);
  }
}

function flat(children) {
  const nodes = [];
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      nodes.push(child instanceof Node ? child : document.createTextNode(String(child)));
    }
  }
  return nodes;
}
