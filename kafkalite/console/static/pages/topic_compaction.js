/** Compaction of one topic. */

import { h } from "../parts/element.js";
import { action } from "../parts/page.js";
import { compactionTable, compactNow } from "./compaction.js";

/** @param {import("../parts/router.js").View} view @param {any} topic */
export default async function topicCompaction(view, topic) {
  const isCompacted = (topic.cleanup_policy ?? "").includes("compact");
  const all = action(view.session, "compaction", "Compact all partitions", () => compactNow(topic.name, null));
  if (isCompacted && view.session.can_compact !== false) view.root.append(h("div", { class: "toolbar bare" }, all));
  await compactionTable(view, topic.name);
}
