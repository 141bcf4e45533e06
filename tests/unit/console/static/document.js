/**
 * As much of a document as the console's modules touch, for Node.js: elements with attributes, children and listeners.
 *
 * Selectors are lists of compounds of tag, .class, [name] and [name=value], without combinators but the space before
 * [data-search]. Events bubble; focus is document.activeElement.
 */

class FakeNode extends EventTarget {
  parent = null;

  get textContent() {
    return this.childNodes.map((child) => child.textContent).join("");
  }

  remove() {
    if (this.parent) this.parent.childNodes.splice(this.parent.childNodes.indexOf(this), 1);
    this.parent = null;
  }
}

class Text extends FakeNode {
  constructor(text) {
    super();
    this.text = text;
  }

  get textContent() {
    return this.text;
  }
}

const REFLECTED = ["id", "name", "type", "title", "tabindex"];

class FakeElement extends FakeNode {
  constructor(tag) {
    super();
    this.tagName = tag.toUpperCase();
    this.childNodes = [];
    this.attributes = new Map();
    this.style = { setProperty: (name, value) => this.attributes.set(`style:${name}`, value) };
    this.dataset = new Proxy({}, { get: (_, name) => this.getAttribute(`data-${String(name)}`) ?? undefined });
    this.classList = {
      contains: (name) => this.classes.includes(name),
      toggle: (name, on) => {
        const others = this.classes.filter((each) => each !== name);
        this.setAttribute("class", (on ? [...others, name] : others).join(" "));
      },
    };
  }

  get classes() {
    return (this.getAttribute("class") ?? "").split(" ").filter(Boolean);
  }

  setAttribute(name, value) {
    this.attributes.set(name, String(value));
    if (REFLECTED.includes(name) || name === "hidden" || name === "disabled") this[name] = value;
  }

  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }

  removeAttribute(name) {
    this.attributes.delete(name);
  }

  append(...nodes) {
    for (const each of nodes) {
      const node = typeof each === "string" ? new Text(each) : each;
      node.remove();
      node.parent = this;
      this.childNodes.push(node);
    }
  }

  appendChild(node) {
    this.append(node);
    return node;
  }

  replaceChildren(...nodes) {
    for (const child of [...this.childNodes]) child.remove();
    this.append(...nodes);
  }

  prepend(...nodes) {
    for (const node of nodes.toReversed()) {
      node.remove();
      node.parent = this;
      this.childNodes.unshift(node);
    }
  }

  after(node) {
    node.remove();
    node.parent = this.parent;
    this.parent.childNodes.splice(this.parent.childNodes.indexOf(this) + 1, 0, node);
  }

  get children() {
    return this.childNodes.filter((child) => child instanceof FakeElement);
  }

  get nextElementSibling() {
    const all = this.parent?.children ?? [];
    return all[all.indexOf(this) + 1] ?? null;
  }

  get rows() {
    return this.children.filter((child) => child.tagName === "TR");
  }

  /** The selected option of a select; the text of any other field. */
  get value() {
    if (this.tagName !== "SELECT") return this.text ?? this.getAttribute("value") ?? "";
    const options = this.children;
    return this.text ?? (options.find((each) => each.getAttribute("selected") !== null) ?? options[0])?.value ?? "";
  }

  set value(text) {
    this.text = text;
  }

  *descendants() {
    for (const child of this.children) {
      yield child;
      yield* child.descendants();
    }
  }

  matches(selector) {
    return selector.split(",").some((each) => {
      const compound = each.trim().split(" ").at(-1);
      const [, tag, tests] = /^([a-z0-9]*)(.*)$/.exec(compound);
      if (tag && tag.toUpperCase() !== this.tagName) return false;
      return (tests.match(/\.[\w-]+|\[[^\]]+\]/g) ?? []).every((test) => {
        if (test.startsWith(".")) return this.classes.includes(test.slice(1));
        const [name, value] = test.slice(1, -1).split("=");
        const has = this.getAttribute(name);
        return value === undefined ? has !== null : has === value.replaceAll(/['"]/g, "");
      });
    });
  }

  closest(selector) {
    for (let each = this; each; each = each.parent) if (each.matches(selector)) return each;
    return null;
  }

  contains(other) {
    return other === this || [...this.descendants()].includes(other);
  }

  querySelectorAll(selector) {
    return [...this.descendants()].filter((each) => each.matches(selector));
  }

  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  focus() {
    document.activeElement = this;
  }

  blur() {
    document.activeElement = document.body;
  }

  click() {
    fire(this, "click");
  }

  showModal() {
    this.setAttribute("open", "");
  }

  close() {
    this.removeAttribute("open");
    this.dispatchEvent(new Event("close"));
  }
}

/** An event on an element and all around it. Returns it. */
export function fire(element, type, fields = {}) {
  const event = Object.assign(new Event(type, { cancelable: true }), fields);
  Object.defineProperty(event, "target", { value: element });
  for (let each = element; each; each = each.parent) each.dispatchEvent(event);
  return event;
}

class FakeDocument extends FakeElement {
  constructor() {
    super("html");
    this.hidden = false;
    this.documentElement = this;
  }

  createElement(tag) {
    return new FakeElement(tag);
  }

  createElementNS(_, tag) {
    return new FakeElement(tag);
  }

  createTextNode(text) {
    return new Text(text);
  }
}

globalThis.Node = FakeNode;
globalThis.Element = FakeElement;
globalThis.document = new FakeDocument();
document.body = document.appendChild(document.createElement("body"));
document.activeElement = document.body;
globalThis.getSelection = () => "";
globalThis.location = { pathname: "/", search: "", origin: "http://console" };
globalThis.ResizeObserver = class {
  observe() {}
};
