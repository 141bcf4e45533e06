/** Messages of any topic: choose one, then the same view as in the topic's own tab. */

import { get } from "../parts/api.js";
import { h, replace } from "../parts/element.js";
import { icon } from "../parts/icons.js";
import { empty, notice } from "../parts/notice.js";
import { action, head, lacking } from "../parts/page.js";
import { MessageView } from "./message_view.js";
import { produce } from "./produce.js";

const OFFERED = 30;

/** @param {import("../parts/router.js").View} view */
export default async function messages(view) {
  const chosen = view.query.get("topic") ?? "";
  const options = h("datalist", { id: "topics-offered" });
  const input = h("input", {
    type: "search",
    list: options.id,
    placeholder: "Topic",
    "aria-label": "Topic",
    "data-search": true,
    value: chosen,
    autocomplete: "off",
  });
  const form = h(
    "form",
    { class: "choose-topic" },
    h("div", { class: "search" }, icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/")),
    options,
    h("button", { type: "submit", class: "primary" }, "Open"),
  );
  const content = h("div", { class: "stack" });
  let shown = null;
  const write =
    chosen && action(view.session, "plus", "Produce", async () => (await produce(shown.topic)) && shown.search());
  view.root.append(head(view, "Messages", { actions: write }), form, content);

  const offer = async () => {
    const { items } = await get("/api/topics", { q: input.value, internal: true, page_size: OFFERED }, view.signal);
    replace(
      options,
      items.map((topic) => h("option", { value: topic.name })),
    );
  };
  input.addEventListener("input", () => offer().catch(() => undefined));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    view.go(`/messages?topic=${encodeURIComponent(input.value.trim())}`);
  });
  if (!chosen) {
    replace(
      content,
      empty(
        "Choose a topic",
        "Its newest messages come first; then search from an offset or a time, or for a text in keys, values and headers.",
      ),
    );
    input.focus();
    return offer();
  }
  try {
    const topic = await get(`/api/topics/${encodeURIComponent(chosen)}`, {}, view.signal);
    shown = new MessageView({ ...view, root: content }, topic);
    replace(content, shown.element);
    const lacks = lacking(topic, "WRITE", topic.name);
    if (lacks) Object.assign(write, { disabled: true, title: lacks });
    shown.search();
  } catch (error) {
    replace(content, notice(error));
  }
  return undefined;
}
