/** The messages of one topic, in its tab. */

import { MessageView } from "./message_view.js";

/** @param {import("../parts/router.js").View} view @param {any} topic */
export default function topicMessages(view, topic) {
  const messages = new MessageView(view, topic);
  view.root.append(messages.element);
  messages.search();
}
